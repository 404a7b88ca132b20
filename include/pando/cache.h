// SPDX-License-Identifier: Apache-2.0
// Start here. PrefixCache answers, for the scheduler of an inference engine: how much of this
// prompt do I already hold, keep it there while I use it, give me room for the rest, take what I
// computed. One radix tree over pages of tokens; it owns the slots of what it caches.
//
// Life of a request: start (match + lock + slots) -> allocate_extend -> forward -> checkpoint after
// each chunk -> finish. docs/tour.md follows one through the files.
//
// Every slot has one owner: the allocator, a request, or the tree; check() proves it.
// A cache belongs to one thread. Bad input is refused and changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pando/allocator.h"
#include "pando/events.h"
#include "pando/policy.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

struct CacheOptions {
  std::size_t page_size = 1;  ///< any power of two; that of the allocator
  bool bigram = false;        ///< EAGLE: n tokens are n - 1 overlapping pairs
  bool disabled = false;      ///< nothing is kept; requests get their slots back as they should
  bool events = false;        ///< record KV events
  bool evict_whole_nodes = false;  ///< evict() drops its last victim whole instead of trimming it
  bool partial_pages = true;       ///< report, and hold, further tokens that agree inside a page
  /// Seeds the table that finds children. Random unless given; the tree does not depend on it.
  std::optional<std::uint64_t> hash_seed = {};

  Status validate() const;
};

/// Why a match is not longer.
enum class MatchEnd {
  whole_key,          ///< every token is cached
  no_such_child,      ///< the next page was never stored, or was evicted
  page_boundary,      ///< every whole page is cached; the rest of the key does not fill one
  namespace_unknown,  ///< nothing is cached in this namespace
  disabled,           ///< this cache keeps nothing
};
std::string_view to_string(MatchEnd end);

/// What match() found. Slots go to the caller's buffer, not in here.
struct Match {
  std::size_t length = 0;  ///< tokens, a multiple of the page size
  MatchEnd end = MatchEnd::no_such_child;
  NodeId node = {};  ///< ends exactly at `length`; nothing when length is 0

  /// Inside the next page, this many tokens agree too, in slots [partial_slot, + partial_length):
  /// their rows may be copied instead of computed while a lease on this match is held.
  std::size_t partial_length = 0;
  SlotId partial_slot{0};
  NodeId partial_node = {};

  std::uint32_t cache = 0;  ///< which cache this is from
};

class PrefixCache;

/// Keeps a matched path in place until released. Move-only. Must not outlive its cache.
class [[nodiscard]] Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }

  void release();
  /// Lets go of the partly matched page alone, once its rows are copied.
  void release_partial();
  /// False for an empty lease: nothing was matched.
  explicit operator bool() const { return static_cast<bool>(node_) || static_cast<bool>(partial_); }
  NodeId node() const { return node_; }

 private:
  friend class PrefixCache;
  PrefixCache* cache_ = nullptr;
  NodeId node_;
  NodeId partial_;
};

struct InsertOptions {
  /// slots[0, owned_by_tree) came from a match and are the tree's already; the rest is the
  /// caller's.
  std::size_t owned_by_tree = 0;
  std::int32_t priority = 0;  ///< raises the whole path to at least this
  bool chunked = false;       ///< a part of a prefill: does not count as a hit
};

struct Inserted {
  std::size_t length = 0;  ///< tokens of the key now in the tree; the tail after it is the caller's
  std::size_t existing = 0;  ///< of these, were there before
  std::size_t freed = 0;     ///< duplicate slots given back
  NodeId node = {};          ///< ends at `length`
};

/// A running request, as start, checkpoint and finish see it.
struct Request {
  Key key;                  ///< the tokens whose KV is computed, or about to be
  std::span<SlotId> slots;  ///< one per token or more: extra ones are not computed yet
  std::int32_t priority = 0;

  std::size_t cached_length = 0;  ///< slots[0, cached_length) are the tree's, held by `lease`
  Lease lease = {};
};

/// Takes slots that the cache lets go of, when the engine has an allocator of its own. Called once
/// per cache operation with everything that became free. Must not call back into the cache.
using SlotSink = std::function<void(std::span<const SlotId>)>;

struct EvictResult {
  std::size_t tokens = 0;  ///< given back, whole pages
  std::size_t nodes = 0;   ///< that left the tree; a trimmed one stays
};

/// Totals since creation or reset(), in tokens unless said otherwise.
struct CacheStats {
  std::uint64_t inserted_tokens = 0;   ///< that were new
  std::uint64_t duplicate_tokens = 0;  ///< that the tree had already; their slots were freed
  std::uint64_t evicted_tokens = 0;
  std::uint64_t evicted_nodes = 0;
};

class PrefixCache {
 public:
  /// Over Pando's allocator, which must outlive the cache.
  static Result<std::unique_ptr<PrefixCache>> create(const CacheOptions& options,
                                                     PagedAllocator& allocator,
                                                     std::unique_ptr<EvictionPolicy> policy = {});
  /// Over an engine's own slots, numbered below `max_slots`.
  static Result<std::unique_ptr<PrefixCache>> create(const CacheOptions& options, SlotSink sink,
                                                     std::size_t max_slots,
                                                     std::unique_ptr<EvictionPolicy> policy = {});
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// The longest cached prefix of `key`. Its slots go to the front of `slots`, which is empty (not
  /// wanted) or has room for every token. Counts as a use: may split a node at the match's end and
  /// makes the path the most recent. Tokens are looked at as far as they agree and one page beyond.
  /// Cost: one comparison of the tokens, one copy of the slots.
  Result<Match> match(const Key& key, std::span<SlotId> slots = {});

  /// The length match() would give, changing nothing.
  std::size_t probe(const Key& key) const;
  void probe(std::span<const Key> keys, std::span<std::size_t> lengths) const;

  /// Holds a match in place. An error if it has gone since.
  Result<Lease> lock(const Match& match);

  /// Gives the tree a key and its slots (one per token). It takes the whole pages; of those it has
  /// already, the caller's duplicates are freed. The unaligned tail stays the caller's.
  Result<Inserted> insert(const Key& key, std::span<const SlotId> slots,
                          const InsertOptions& options = {});

  /// Frees at least `num_tokens`, rounded up to whole pages, or less when no more is evictable.
  EvictResult evict(std::size_t num_tokens);

  /// For a request that holds nothing yet: matches (leaving at least one token to compute), locks,
  /// and writes the slots of what is cached.
  Result<Match> start(Request& request);
  /// Room for tokens [from, slots.size()) of the request; evicts exactly what is missing. All or
  /// nothing. Batches go through allocate_extend / allocate_decode below.
  Status allocate(Request& request, std::size_t from);
  /// Inserts what is computed so far, swaps duplicate slots for the tree's, moves the lease.
  Status checkpoint(Request& request, bool chunked = false);
  /// Inserts (or not), frees duplicates and the tail, drops the lease. The request holds nothing.
  Status finish(Request& request, bool insert = true);

  /// As PagedAllocator's, after evicting exactly what is missing.
  Status allocate_extend(std::span<const std::size_t> prefix_lens,
                         std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out);
  Status allocate_decode(std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out);

  /// Empties the tree and gives back its slots. Refused while leases are held.
  Status reset();

  Sizes sizes() const;
  const CacheOptions& options() const;
  CacheStats stats() const;
  std::size_t num_nodes() const;
  std::size_t memory_bytes() const;  ///< bookkeeping of the tree, heap included
  /// Every slot the tree owns, path by path in token order.
  std::vector<SlotId> all_slots() const;
  /// The tree as text, one node a line, children in token order.
  std::string dump() const;
  /// Proves the invariants of the tree and that no slot has two owners. O(tree).
  Status check() const;

  /// Everything since the last call, or nothing of it. Adjacent events are merged.
  std::vector<KvEvent> take_events();

 private:
  friend class Lease;
  struct Impl;
  explicit PrefixCache(std::unique_ptr<Impl> impl);
  void unlock(NodeId node);

  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
