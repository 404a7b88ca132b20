// SPDX-License-Identifier: Apache-2.0
// Which cached prefix goes first. A policy turns what the tree knows of a node into a key; the tree
// keeps its evictable leaves ordered by key, O(log n) per change, and evicts the smallest.
// Built in: lru, lfu, fifo, filo, mru, priority, slru. Implement EvictionPolicy for your own.
//
// One is more than a key: `hazard` learns from the requests when prefixes come back, and evicts
// what promises the fewest hits for the time that one would have to wait for them (docs/tuning.md).
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "pando/result.h"

namespace pando {

/// What a policy may look at. Times are ticks of the cache's logical clock, one per operation.
struct NodeStats {
  std::uint64_t last_access = 0;  ///< last match or insert that used the node
  std::uint64_t created = 0;      ///< when; a split keeps it on both halves
  std::uint32_t hits = 0;         ///< inserts that passed through it; chunked ones do not count
  std::int32_t priority = 0;      ///< the highest any insert through it has asked for
  std::uint32_t num_tokens = 0;   ///< tokens of the node
};

/// Smallest goes first: by `major`, then by `minor`, then by age of the node's place in memory, so
/// that the order is total and the same on every run.
struct EvictionKey {
  std::uint64_t major = 0;
  std::uint64_t minor = 0;

  friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;
};

/// The policy `hazard`, which learns from the requests when prefixes come back, with options.
struct HazardOptions {
  /// Weighs hits by what they save: attention makes the tail of a long prompt cost more to compute
  /// than its beginning. For those who want short times to the first token rather than many hits.
  bool cost_aware = false;
  /// So many tokens into a prompt, attention costs as much as all the rest. `std::nullopt`: it is
  /// measured, see PrefixCache::report_prefill(). Until then all tokens cost the same.
  std::optional<double> attention_tokens = {};

  Status validate() const;  ///< an error where it makes no sense
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  /// Called whenever the stats of an evictable leaf change. Must not call back into the cache.
  virtual EvictionKey key(const NodeStats& stats) const = 0;
  /// Set: caches that can learn do so, and do not ask for keys.
  virtual std::optional<HazardOptions> hazard() const { return {}; }
};

/// A built-in policy by name; the error lists the names.
Result<std::unique_ptr<EvictionPolicy>> make_policy(std::string_view name);
/// `hazard` with options. Where nothing can be learned, it is lru.
Result<std::unique_ptr<EvictionPolicy>> make_hazard_policy(const HazardOptions& options);

}  // namespace pando
