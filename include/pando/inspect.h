// SPDX-License-Identifier: Apache-2.0
// What is in a PrefixCache, and why: sizes, totals, the tree as text, and the story of one key,
// part by part. PrefixCache::inspect() is the way in. Nothing here changes the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

struct PrefixCacheImpl;

/// Totals since creation or reset(), in tokens unless said otherwise.
struct CacheStats {
  std::uint64_t inserted_tokens = 0;   ///< that were new
  std::uint64_t duplicate_tokens = 0;  ///< that the tree had already; their slots were freed
  std::uint64_t evicted_tokens = 0;
  std::uint64_t evicted_nodes = 0;
  std::uint64_t evicted_window_tokens = 0;
  std::uint64_t evicted_snapshots = 0;  ///< counted in snapshots
  std::uint64_t revived_tokens = 0;
};

enum class Finding : std::uint8_t {
  on_device,
  on_host,
  window_gone,          ///< its tokens are there, the window that a match there needs is not
  no_snapshot,          ///< its tokens are there, but no recurrent state at or behind their end
  evicted,              ///< was there; see Eviction
  other_namespace,      ///< is there, but under another namespace
  never_seen,           ///< or longer ago than is remembered
  shorter_than_a_page,  ///< the tail: only whole pages are cached
  disabled,             ///< this cache keeps nothing
};
std::string_view to_string(Finding finding);

/// Who needed the room.
enum class Pressure : std::uint8_t {
  allocate,        ///< a request's new tokens
  evict_call,      ///< the engine asked for it
  load_back,       ///< tokens that came back from the host
  host_room,       ///< copies on their way to a full host
  failed_load,     ///< nobody: its bytes had not arrived
  tenant_cap,      ///< newer tokens of the same tenant, beyond its cap
  session_closed,  ///< nobody: the only session that used it was closed
};
std::string_view to_string(Pressure pressure);

struct Eviction {
  Tier from = Tier::device;  ///< the last tier that had it
  Pressure pressure = Pressure::allocate;
  std::size_t pressure_tokens = 0;  ///< that were to be freed
  std::uint64_t at_match = 0;       ///< so many calls of match() and start() came before
};

/// Tokens [from, to) of a key.
struct KeyPart {
  std::size_t from = 0, to = 0;
  Finding finding = Finding::never_seen;
  std::optional<Eviction> eviction = {};  ///< of `evicted`
  std::string ns = {};                    ///< of `other_namespace`: one of them
};

struct Explanation {
  std::vector<KeyPart> parts;  ///< in order, without gaps
  std::uint64_t matches = 0;   ///< calls of match() and start() so far
  /// Evictions had to be forgotten: what was "never seen" may have been.
  bool forgetful = false;
};

class Inspector {
 public:
  /// Of the device.
  Sizes sizes(ComponentKind kind = ComponentKind::full) const;
  /// Of the host; evictable is what is nowhere else and not held.
  Sizes host_sizes(ComponentKind kind = ComponentKind::full) const;
  /// Tokens that the device or the host can hold. 0: no such tier, or an engine's own slots.
  std::size_t capacity_tokens(Tier tier) const;
  CacheStats stats() const;
  std::size_t num_nodes() const;
  std::size_t memory_bytes() const;  ///< bookkeeping of the tree, heap included

  /// Why each part of the key is, or is not, here: what match() would find, and why no more. What
  /// may be in a store is not asked for; what has gone is known as far as
  /// CacheOptions::remember_evicted lets it be remembered.
  Result<Explanation> explain(const Key& key) const;
  /// Every slot the tree owns, path by path in token order.
  std::vector<SlotId> all_slots() const;
  /// Stored events of all that is cached now, parents first: for those who have lost track. With
  /// events only. What take_events() would give next is in it. O(tree).
  std::vector<KvEvent> events_of_all() const;
  /// The tree as text, one node a line, children in token order.
  std::string dump() const;
  /// A hash of what ranks agree on: tokens, sides, holds and use of every node, not where they are.
  std::uint64_t digest() const;

 private:
  friend struct PrefixCacheImpl;
  explicit Inspector(const PrefixCacheImpl& cache) : cache_(cache) {}
  const PrefixCacheImpl& cache_;
};

}  // namespace pando
