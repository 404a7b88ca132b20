// SPDX-License-Identifier: Apache-2.0
// The factories of the stores that come with Pando, for the registry.
#pragma once

#include <memory>

#include "pando/config.h"
#include "pando/store.h"

namespace pando {

Result<std::unique_ptr<StoreBackend>> make_memory_store_from(const Config& config);
Result<std::unique_ptr<StoreBackend>> make_file_store_from(const Config& config);
Result<std::unique_ptr<StoreBackend>> make_redis_store_from(const Config& config);

}  // namespace pando
