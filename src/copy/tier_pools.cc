// SPDX-License-Identifier: Apache-2.0
// See the header.
#include "copy/tier_pools.h"

#include "base/check.h"

namespace pando {

Status validate_tier_pools(const TierPools& pools, std::string_view name, std::size_t page_size,
                           std::size_t num_pages) {
  if (pools.device == nullptr || pools.host == nullptr)
    return make_error(ErrorCode::invalid_argument,
                      "host tier: expected a device pool and a host pool for {}", name);
  if (pools.device->geometry().page_size != page_size)
    return make_error(ErrorCode::invalid_argument,
                      "host tier: the {} pool has pages of {} tokens; expected {}", name,
                      pools.device->geometry().page_size, page_size);
  if (!(pools.device->geometry() == pools.host->geometry()))
    return make_error(ErrorCode::invalid_argument,
                      "host tier: the {} pools differ: the device has {}, the host {}", name,
                      pools.device->geometry().describe(), pools.host->geometry().describe());
  if (pools.device->num_pages() < num_pages)
    return make_error(ErrorCode::invalid_argument,
                      "host tier: the {} pool has {} pages; slots are handed out for {}", name,
                      pools.device->num_pages(), num_pages);
  return {};
}

}  // namespace pando
