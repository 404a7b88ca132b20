// SPDX-License-Identifier: Apache-2.0
// PrefixCache for engines that keep requests and slots themselves: keys and spans of slots in place
// of Request. The engine holds what it matched by a Lease, and says which of the slots that it
// inserts are its own. PrefixCache::paths() is the way in; start(), checkpoint() and finish() are
// made of these calls.
//
// Life of a request: match -> lock -> (load_back) -> slots from the engine's own allocator, or
// allocate_extend -> forward -> insert -> match, lock the new end, drop the old lease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "pando/cache.h"

namespace pando {

/// Takes slots that the cache lets go of. Must not call back into the cache.
using SlotSink = std::function<void(std::span<const SlotId>)>;

/// Slots of an engine that has an allocator of its own. Each of the first four is called at most
/// once per cache operation (dropping a lease is one), in the order move_window, free_window, free.
struct EngineSlots {
  std::size_t max_slots = 0;  ///< slots are numbered below this
  std::size_t page_size = 1;  ///< tokens; any power of two. Pages are handed out whole
  SlotSink free;              ///< with the window side, where they have one
  SlotSink free_window = {};  ///< only the window side; needed with a window, as the next
  /// The window slots of from[i] belong to to[i] from now on, which has none.
  std::function<void(std::span<const SlotId> from, std::span<const SlotId> to)> move_window = {};

  // With a host tier, for load_back. All or nothing.
  /// Whole pages, without a window side.
  std::function<bool(std::span<SlotId> out)> alloc = {};
  /// Gives whole pages of full slots, which have none, their window side.
  std::function<bool(std::span<const SlotId> full)> alloc_window = {};
  /// The window slot of each full slot, which has one.
  std::function<void(std::span<const SlotId> full, std::span<SlotId> window)> translate = {};
};

/// Keeps a matched path in place until released: the nodes up to the root, of the window what the
/// next token can see, and the snapshot; of the host part, what is on the host. Move-only. Must not
/// outlive its cache.
class [[nodiscard]] Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }

  void release();
  /// Lets go of the partly matched page alone, once its rows are copied.
  void release_partial();
  /// Lets go of the window alone, once it is behind what the request looks at. An error if this
  /// lease does not hold one (any more).
  Status release_window();
  /// Lets go of the snapshot alone, once it is copied. An error if there is none (any more).
  Status release_snapshot();
  /// False for an empty lease: nothing was matched.
  explicit operator bool() const { return path_.node || partial_.node || host_node_; }
  NodeId node() const { return path_.node; }
  /// The end of the host part that load_back() would bring.
  NodeId host_node() const { return host_node_; }

 private:
  friend struct PrefixCacheImpl;
  struct Hold {
    NodeId node = {};
    std::optional<std::uint32_t> window_from = {};  // first page whose window is held
    bool snapshot = false;
  };
  PrefixCacheImpl* cache_ = nullptr;
  Hold path_;
  Hold partial_;
  NodeId host_node_ = {};
};

struct InsertOptions {
  /// slots[0, owned_by_tree) came from a match and are the tree's already; the rest is the
  /// caller's.
  std::size_t owned_by_tree = 0;
  /// A lease that holds exactly these. Then neither their tokens nor their slots are looked at
  /// again, and the cost is that of the rest.
  const Lease* held = nullptr;
  std::int32_t priority = 0;  ///< raises the whole path to at least this
  bool chunked = false;       ///< a part of a prefill: does not count as a hit
  /// The request will insert more: a policy that learns from requests counts it when it has
  /// finished.
  bool unfinished = false;

  /// Priorities of parts of the key, of which all must be.
  std::span<const RetentionRange> retention = {};
  SessionId session = {};  ///< an open one: what is new is its own until others use it

  /// Window component: the caller's own slots before this position, a multiple of the page size,
  /// have given back their window side.
  std::size_t window_released = 0;
  /// State component: the state after the last whole page of the key. The tree takes it.
  StateSlot snapshot = {};
};

struct Inserted {
  std::size_t length = 0;  ///< tokens of the key now in the tree; the tail after it is the caller's
  std::size_t existing = 0;  ///< of these, were there before
  std::size_t freed = 0;     ///< slots given back: the caller's duplicates, or those they replace
  std::size_t revived = 0;   ///< tokens that have a window again
  std::size_t widened_ranges = 0;  ///< of the retention, that were not whole pages
  NodeId node = {};                ///< ends at `length`
  std::uint32_t cache = 0;         ///< which cache this is from

  /// What match() would find of it now, for lock().
  Match match() const {
    return {.length = length,
            .end = MatchEnd::page_boundary,
            .node = node,
            .agreed_length = length,
            .cache = cache};
  }
};

/// The calls of a PrefixCache on keys.
class Paths {
 public:
  /// The longest cached prefix of `key` on whose end all components agree. Its slots go to the
  /// front of `slots`, which is empty (not wanted) or has room for every token; what is behind them
  /// in the buffer may be overwritten. Counts as a use: may split a node at the match's end and
  /// makes the path the most recent. Tokens are looked at as far as they agree and one page beyond.
  /// Cost: one comparison of the tokens, one copy of the slots. `session`: whose request looks.
  Result<Match> match(const Key& key, std::span<SlotId> slots = {}, SessionId session = {});

  /// The length match() would give, changing nothing.
  std::size_t probe(const Key& key) const;
  /// The same for several; as many lengths as keys.
  void probe(std::span<const Key> keys, std::span<std::size_t> lengths) const;

  /// Holds a match in place. An error if it, its window or its snapshot has gone since.
  Result<Lease> lock(const Match& match);

  /// Gives the tree a key and its slots (one per token). It takes the whole pages; of those it has
  /// already, the caller's duplicates are freed; but where the tree's have lost their window and
  /// the caller's have it, the caller's take their place (or, where someone reads the tree's, their
  /// window is moved over). The unaligned tail stays the caller's.
  Result<Inserted> insert(const Key& key, std::span<const SlotId> slots,
                          const InsertOptions& options = {});

  /// Brings back what the lease's match found on the host: all of it or nothing. Makes room if need
  /// be, writes the slots of the new part to their place in `slots` (one per token of the whole
  /// match), and makes the lease hold it on the device. The layers arrive one after the other:
  /// reads through the pools' gates wait for them.
  Result<LoadBack> load_back(Lease& lease, std::span<SlotId> slots,
                             const LoadBackOptions& options = {});

  /// As the allocators', after evicting exactly what is missing, for the tenant of a namespace.
  Status allocate_extend(std::span<const std::size_t> prefix_lens,
                         std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out, std::string_view ns = {});
  Status allocate_decode(std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out, std::string_view ns = {});

 private:
  friend struct PrefixCacheImpl;
  explicit Paths(PrefixCacheImpl& cache) : cache_(cache) {}
  PrefixCacheImpl& cache_;
};

}  // namespace pando
