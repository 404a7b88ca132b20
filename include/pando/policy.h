// SPDX-License-Identifier: Apache-2.0
// Which cached prefix goes first. A policy turns what the tree knows of a node into a key; the tree
// keeps its evictable leaves ordered by key, O(log n) per change, and evicts the smallest.
// Built in: lru, lfu, fifo, filo, mru, priority, slru. Implement EvictionPolicy for your own.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

#include "pando/result.h"

namespace pando {

/// What a policy may look at. Times are ticks of the cache's logical clock, one per operation.
struct NodeStats {
  std::uint64_t last_access = 0;  ///< last match or insert that used the node
  std::uint64_t created = 0;      ///< a split keeps it on both halves
  std::uint32_t hits = 0;         ///< inserts that passed through it; chunked ones do not count
  std::int32_t priority = 0;      ///< the highest any insert through it has asked for
  std::uint32_t num_tokens = 0;
};

/// Smallest goes first: by `major`, then by `minor`, then by age of the node's place in memory, so
/// that the order is total and the same on every run.
struct EvictionKey {
  std::uint64_t major = 0;
  std::uint64_t minor = 0;

  friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  /// Called whenever the stats of an evictable leaf change. Must not call back into the cache.
  virtual EvictionKey key(const NodeStats& stats) const = 0;
};

/// A built-in policy by name; the error lists the names.
Result<std::unique_ptr<EvictionPolicy>> make_policy(std::string_view name);

}  // namespace pando
