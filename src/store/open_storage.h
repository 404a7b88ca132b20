// SPDX-License-Identifier: Apache-2.0
// From the options of attach_storage to an open store: everything is read and validated before
// anything is opened. The caches call it.
#pragma once

#include <chrono>
#include <cstddef>
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
  std::size_t max_queued_pages = 0;                            // that the store takes at once
  std::unique_ptr<Store> store;

  /// By the timeout policy: so many tokens have been waited for since then for too long.
  bool is_late(std::chrono::steady_clock::time_point since, std::size_t num_tokens) const;
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
