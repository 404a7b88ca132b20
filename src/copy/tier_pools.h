// SPDX-License-Identifier: Apache-2.0
// What the two pools of a tier must have in common before anything is copied between them.
#pragma once

#include <cstddef>
#include <string_view>

#include "pando/tiers.h"

namespace pando {

/// An error unless both are there, hold pages of so many tokens, and the device has `num_pages`.
Status validate_tier_pools(const TierPools& pools, std::string_view name, std::size_t page_size,
                           std::size_t num_pages);

}  // namespace pando
