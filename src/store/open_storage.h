// SPDX-License-Identifier: Apache-2.0
// From the options of attach_storage to an open store: everything is read and validated before
// anything is opened. The caches call it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "pando/tiers.h"

namespace pando {

struct OpenedStorage {
  std::string backend;
  StoreScope scope;
  PrefetchOptions prefetch;
  std::function<std::chrono::steady_clock::time_point()> now;  // never empty
  std::unique_ptr<Store> store;
};
Result<OpenedStorage> open_storage(const StorageOptions& options);

/// Host tokens that fetches may occupy unless the options say.
std::size_t default_prefetch_tokens(const TierPools& pools);

/// The policies that were given by name.
struct StoragePolicies {
  std::optional<PrefetchPolicy> prefetch;
  std::optional<WritePolicy> write;
};
Result<StoragePolicies> parse_storage_policies(const StorageOptions& options);

}  // namespace pando
