// SPDX-License-Identifier: Apache-2.0
// Start here. PrefixCache answers, for the scheduler of an inference engine: how much of this
// prompt do I already hold, keep it there while I use it, give me room for the rest, take what I
// computed. One radix tree over pages of tokens; it owns the slots of what it caches.
//
// Life of a request: start (match, lock, slots) -> allocate -> forward -> checkpoint after each
// chunk; append and allocate for each sampled token -> finish. docs/tour.md follows one through the
// files.
//
// Hybrid models switch on components that a node may have beside its full-attention side: a window
// (sliding-window layers) and a snapshot of state (recurrent layers). A match then ends where all
// agree. A node that lost one of them is a tombstone; it goes when nothing is left below it.
//
// Every slot has one owner: the allocator, a request, or the tree; check() proves it.
// A cache belongs to one thread. Bad input is refused and changes nothing.
#pragma once

#include <chrono>
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
#include "pando/explain.h"
#include "pando/policy.h"
#include "pando/ranks.h"
#include "pando/result.h"
#include "pando/retention.h"
#include "pando/state_allocator.h"
#include "pando/tiers.h"
#include "pando/types.h"
#include "pando/window_allocator.h"

namespace pando {

class CacheObserver;

/// Which snapshots of recurrent state stay when a path grows beyond them.
struct StateOptions {
  static constexpr std::size_t kOnlyEnds = SIZE_MAX;
  /// A snapshot with a newer one below it stays if it is at least this many tokens behind the one
  /// before it (or the start), or where paths branch. 0 keeps all; kOnlyEnds keeps those at ends.
  std::size_t snapshot_interval = 0;
  /// At most so many on the path of an insert: the shallowest go first, branching points last.
  std::size_t max_per_path = SIZE_MAX;
};

struct CacheOptions {
  std::size_t page_size = 1;  ///< any power of two; that of the allocator
  bool bigram = false;        ///< EAGLE: n tokens are n - 1 overlapping pairs
  bool disabled = false;      ///< nothing is kept; requests get their slots back as they should
  bool events = false;        ///< record KV events
  /// What is evicted first: a name that make_policy() knows. A policy that create() is given wins.
  std::string policy = "lru";
  bool evict_whole_nodes = false;  ///< evict() drops its last victim whole instead of trimming it
  bool partial_pages = true;       ///< report, and hold, further tokens that agree inside a page
  /// Seeds the table that finds children. Random unless given; the tree does not depend on it.
  std::optional<std::uint64_t> hash_seed = {};
  /// Tokens that a sliding-window layer looks back, 1 at least; it may be shorter than a page.
  /// Needs a WindowAllocator, or an engine's slots that have a window side.
  ///
  /// Invariant: a match of n tokens is valid when each of the last min(n, window) of them has its
  /// window side. Window sides come and go in whole pages and n is whole pages, so these are the
  /// last ceil(window / page_size) pages before n, or all pages where there are fewer. With a
  /// window of a page or less that is the last page alone, though the next token sees only its end.
  std::optional<std::size_t> window = {};
  /// For models with recurrent layers. Needs a StateAllocator.
  std::optional<StateOptions> state = {};
  /// What the device evicts goes on in host memory. The pools and the copier must outlive the
  /// cache.
  std::optional<HostTierOptions> host = {};
  /// What is kept longer than the policy would keep it, and for whom.
  RetentionOptions retention = {};
  /// Others that mirror this cache (tensor and pipeline parallelism): every rank makes the same
  /// calls in the same order, and what depends on local timing or room is agreed. Must outlive it.
  Ranks* ranks = nullptr;
  /// Told of every call and what came of it (observer.h). Must outlive the cache. Without one no
  /// clock is read.
  CacheObserver* observer = nullptr;
  /// How many evicted pages explain() remembers; 0: none. Costs a hash of every page.
  std::size_t remember_evicted = 0;

  Status validate() const;
};

/// Why a match is not longer.
enum class MatchEnd {
  whole_key,          ///< every token is cached
  no_such_child,      ///< the next page was never stored, or was evicted
  page_boundary,      ///< every whole page is cached; the rest of the key does not fill one
  namespace_unknown,  ///< nothing is cached in this namespace
  window_gone,        ///< more is cached, but the window that ends there is not
  no_snapshot,        ///< more is cached, but there is no snapshot of the state there
  disabled,           ///< this cache keeps nothing
};
std::string_view to_string(MatchEnd end);

/// What match() found. Slots go to the caller's buffer, not in here.
struct Match {
  std::size_t length = 0;  ///< tokens on the device, a multiple of the page size
  MatchEnd end = MatchEnd::no_such_child;
  NodeId node = {};  ///< ends exactly at `length`; nothing when length is 0

  /// So many more tokens can be had by load_back().
  std::size_t host_length = 0;
  NodeId host_node = {};  ///< ends at length + host_length; nothing when host_length is 0

  /// Tokens that the tree has of this key; beyond `length`, a component is missing. With a state
  /// component this is the branching point: a snapshot taken here lets the next such prompt start
  /// here.
  std::size_t agreed_length = 0;
  /// State component: copy this snapshot, while a lease on the match is held, and compute on.
  StateSlot snapshot = {};

  /// Inside the next page, this many tokens agree too, in slots [partial_slot, + partial_length):
  /// their rows may be copied instead of computed while a lease on this match is held.
  std::size_t partial_length = 0;
  SlotId partial_slot{0};
  NodeId partial_node = {};

  std::uint32_t cache = 0;  ///< which cache this is from
};

class PrefixCache;

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
  friend class PrefixCache;
  struct Hold {
    NodeId node = {};
    std::optional<std::uint32_t> window_from = {};  // first page whose window is held
    bool snapshot = false;
  };
  PrefixCache* cache_ = nullptr;
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

struct RequestOptions {
  std::string ns = {};  ///< where its tokens may be shared, see make_namespace()
  std::int32_t priority = 0;
  /// Ranges of the prompt, or of everything that the request will have (kToEnd), that are kept
  /// longer once they are cached.
  std::vector<RetentionRange> retention = {};
  SessionId session = {};  ///< an open one
  /// Tokens at the end of the prompt to compute even where they are cached. The logits of the last
  /// token need one; SIZE_MAX looks nothing up, and computes everything again.
  std::size_t recompute = 1;
};

/// A running request: its tokens, the slots where their KV lives, and what of them the tree holds
/// for it. Made by PrefixCache::start(). Each of its slots has one owner: the tree before
/// cached_length(), the request from there on. finish() and abandon() give everything back, and so
/// does its destructor, as abandon() would. Move-only; must not outlive its cache while it runs.
class [[nodiscard]] Request {
 public:
  Request();
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request();

  /// Whether it holds anything: from start() until finish() or abandon().
  bool is_running() const;
  std::span<const Token> tokens() const;
  std::string_view ns() const;
  /// More tokens, as they are sampled. Refused if one of them is negative.
  Status append(std::span<const Token> tokens);
  Status append(Token token) { return append({&token, 1}); }

  /// What start() found: its `length`, what the host has, a partly matched page, a snapshot.
  const Match& found() const;
  /// Of the first tokens, as many as have room: slots()[i] is where the KV of token i lives.
  std::span<const SlotId> slots() const;
  /// Slots before this are the tree's, and held for this request.
  std::size_t cached_length() const;
  /// Window component: own slots before this have given back their window side.
  std::size_t window_released() const;
  /// State component: what set_snapshot() was told and checkpoint() has not yet taken.
  StateSlot snapshot() const;
  std::size_t snapshot_length() const;
  /// How many ranges of the retention began or ended inside a page, and were widened to whole ones:
  /// by the last checkpoint(), or by finish().
  std::size_t widened_ranges() const;

  /// Lets go of the partly matched page, once its rows are copied.
  void release_partial();
  /// Lets go of the matched snapshot, once it is copied. An error if there is none (any more).
  Status release_snapshot();

 private:
  friend class PrefixCache;
  struct Impl;
  explicit Request(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Takes slots that the cache lets go of. Must not call back into the cache.
using SlotSink = std::function<void(std::span<const SlotId>)>;

/// Slots of an engine that has an allocator of its own. Each of the first four is called at most
/// once per cache operation (dropping a lease is one), in the order move_window, free_window, free.
struct EngineSlots {
  std::size_t max_slots = 0;  ///< slots are numbered below this
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

/// What to free at least, and for whom: other tenants keep what they have up to their floors.
struct EvictGoal {
  std::size_t tokens = 0;
  std::size_t window_tokens = 0;
  std::size_t snapshots = 0;
  std::string_view ns = {};
};

/// What was freed, by whatever way: a leaf goes with its window and its snapshot.
struct EvictResult {
  std::size_t tokens = 0;  ///< whole pages
  std::size_t window_tokens = 0;
  std::size_t snapshots = 0;
  std::size_t nodes = 0;           ///< that left the tree; a trimmed one, or a new tombstone, stays
  std::size_t demoted_tokens = 0;  ///< of `tokens`, are still on the host
};

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

class PrefixCache {
 public:
  /// Over Pando's allocators, or an engine's own slots. `policy`: one of your own, instead of the
  /// one that the options name. Snapshots live in `states`, if the options
  /// ask for them. Whatever is given by reference or pointer must outlive the cache.
  static Result<std::unique_ptr<PrefixCache>> create(const CacheOptions& options,
                                                     PagedAllocator& allocator,
                                                     std::unique_ptr<EvictionPolicy> policy = {},
                                                     StateAllocator* states = nullptr);
  static Result<std::unique_ptr<PrefixCache>> create(const CacheOptions& options,
                                                     WindowAllocator& allocator,
                                                     std::unique_ptr<EvictionPolicy> policy = {},
                                                     StateAllocator* states = nullptr);
  static Result<std::unique_ptr<PrefixCache>> create(const CacheOptions& options, EngineSlots slots,
                                                     std::unique_ptr<EvictionPolicy> policy = {},
                                                     StateAllocator* states = nullptr);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// The longest cached prefix of `key` on whose end all components agree. Its slots go to the
  /// front of `slots`, which is empty (not wanted) or has room for every token; what is behind them
  /// in the buffer may be overwritten. Counts as a use: may split a node at the match's end and
  /// makes the path the most recent. Tokens are looked at as far as they agree and one page beyond.
  /// Cost: one comparison of the tokens, one copy of the slots. `session`: whose request looks.
  Result<Match> match(const Key& key, std::span<SlotId> slots = {}, SessionId session = {});

  /// The length match() would give, changing nothing.
  std::size_t probe(const Key& key) const;
  void probe(std::span<const Key> keys, std::span<std::size_t> lengths) const;

  /// Holds a match in place. An error if it, its window or its snapshot has gone since.
  Result<Lease> lock(const Match& match);

  /// Gives the tree a key and its slots (one per token). It takes the whole pages; of those it has
  /// already, the caller's duplicates are freed; but where the tree's have lost their window and
  /// the caller's have it, the caller's take their place (or, where someone reads the tree's, their
  /// window is moved over). The unaligned tail stays the caller's.
  Result<Inserted> insert(const Key& key, std::span<const SlotId> slots,
                          const InsertOptions& options = {});

  /// Frees at least what is asked, rounded up to whole pages, or less when no more is evictable:
  /// first leaves for `tokens`, then windows and snapshots of any node.
  EvictResult evict(const EvictGoal& goal);
  EvictResult evict(std::size_t num_tokens) { return evict(EvictGoal{.tokens = num_tokens}); }

  /// Brings back what the lease's match found on the host: all of it or nothing. Makes room if need
  /// be, writes the slots of the new part to their place in `slots` (one per token of the whole
  /// match), and makes the lease hold it on the device. The layers arrive one after the other:
  /// reads through the pools' gates wait for them.
  Result<LoadBack> load_back(Lease& lease, std::span<SlotId> slots,
                             const LoadBackOptions& options = {});
  /// The same for a running request, before allocate(): cached_length() grows.
  Result<LoadBack> load_back(Request& request, const LoadBackOptions& options = {});

  /// Applies what copies have finished since the last call. Cheap when nothing is under way; an
  /// engine calls it once per step.
  PollResult poll();

  /// Gives a cache with a host tier a store: what is on the host from now on goes there too. With
  /// the store that it has already, only policies change; another one is refused. The text says
  /// what was done. Nothing has changed if it fails.
  Result<std::string> attach_storage(const StorageOptions& options);
  /// Calls off what is under way, releases what it held, and lets go of the store. Without one this
  /// does nothing.
  Result<std::string> detach_storage();
  /// Removes every page from the store.
  Status clear_storage();
  bool has_storage() const;
  StoreStats storage_stats() const;

  /// Begins to bring pages of the key that the tree does not have from the store to the host, while
  /// the request waits: asks what is there, reserves, reads. poll() moves it on.
  Result<Prefetch> prefetch(const Key& key);
  /// Whether the policy lets the request go on. True for one that has ended, or never was.
  bool prefetch_ready(PrefetchId id) const;
  /// Puts what has arrived, in order, into the tree, and gives up the rest. Returns the tokens that
  /// the host has more: once.
  std::size_t end_prefetch(PrefetchId id);
  /// Gives up all of it.
  void abort_prefetch(PrefetchId id);

  /// Drops the least valuable of what is on the host only. In whole pages.
  EvictResult evict_host(std::size_t num_tokens);

  /// A request for these tokens: matches, locks, and has the slots of what is cached. The tokens
  /// are copied.
  Result<Request> start(std::span<const Token> tokens, const RequestOptions& options = {});
  /// Room for its first `num_tokens` tokens, or for all; there may be more of them than tokens, for
  /// those to come. Evicts exactly what is missing. All or nothing; nothing where there is room.
  Status allocate(Request& request, std::optional<std::size_t> num_tokens = {});
  /// For a cache on an engine's own slots, instead of allocate(): `slots` are those of the next
  /// tokens, and the request's from now on.
  Status give_slots(Request& request, std::span<const SlotId> slots);
  /// The KV of the first `num_computed` tokens is in place (unless told: of all that have slots):
  /// inserts them, swaps duplicate slots for the tree's, and holds the new end. `chunked`: a part
  /// of a prefill, which does not count as a hit.
  Status checkpoint(Request& request, std::optional<std::size_t> num_computed = {},
                    bool chunked = false);
  /// The same for the last time: inserts, and gives back duplicates, the tail and a snapshot that
  /// was not taken. The request has its tokens left and holds nothing.
  Status finish(Request& request, std::optional<std::size_t> num_computed = {});
  /// Ends a request without inserting anything: gives back everything that is not the tree's.
  void abandon(Request& request);

  /// State component: `slot` is the state after `num_tokens` tokens, whole pages, for the next
  /// checkpoint() or finish() to give to the tree; what is cached then ends there. The request owns
  /// it. Say it when the state is taken, so that release_window() spares the window before it.
  Status set_snapshot(Request& request, StateSlot slot, std::size_t num_tokens);

  /// With `num_tokens` computed, gives back the window side of the request's own slots that no
  /// token to come can see, in whole pages, and lets go of the lease's window once that lies
  /// behind. The last whole page keeps the window that a match of it will need. Returns the tokens
  /// given back.
  Result<std::size_t> release_window(Request& request, std::size_t num_tokens);
  /// The same for a batch; nothing happens unless all are valid.
  Result<std::size_t> release_window(std::span<Request* const> requests,
                                     std::span<const std::size_t> num_tokens);

  /// A state slot, after evicting a snapshot if none is free.
  Result<StateSlot> allocate_state();

  /// As the allocators', after evicting exactly what is missing, for the tenant of a namespace.
  Status allocate_extend(std::span<const std::size_t> prefix_lens,
                         std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out, std::string_view ns = {});
  Status allocate_decode(std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out, std::string_view ns = {});

  // Retention: see retention.h.
  /// Holds what is on the device of the key, the longest part on whose end all components agree,
  /// without a request; once more each time. Refused if that is nothing, or if more would be pinned
  /// than may be.
  Result<Pinned> pin(const Key& key, const PinOptions& options = {});
  Status unpin(PinId id);
  std::vector<Pin> pins() const;
  /// Of all pinned paths together.
  std::size_t pinned_tokens() const;

  Result<SessionId> open_session(const SessionOptions& options = {});
  /// The session is in use, though no request of it is.
  Status touch(SessionId id);
  /// What only this session has used goes at once, from all tiers.
  Status close_session(SessionId id);
  std::vector<Session> sessions() const;

  /// Adds a tenant or changes its limits. Refused if all floors together are more than there is.
  Status set_tenant(const TenantOptions& tenant);
  Status assign_namespace(std::string_view ns, std::string_view tenant);
  /// The owner of what is no tenant's first, whose name is empty.
  std::vector<TenantUsage> tenants() const;
  Result<TenantUsage> tenant_usage(std::string_view name) const;

  /// Empties the tree and gives back its slots; ends all pins. Refused while leases are held.
  Status reset();

  Sizes sizes(ComponentKind kind = ComponentKind::full) const;
  /// Of the host; evictable is what is nowhere else and not held.
  Sizes host_sizes(ComponentKind kind = ComponentKind::full) const;
  /// Tokens that the device or the host can hold. 0: no such tier, or an engine's own slots.
  std::size_t capacity_tokens(Tier tier) const;
  const CacheOptions& options() const;
  CacheStats stats() const;
  TierStats tier_stats() const;
  UnderWay under_way() const;
  /// The engine has computed so many tokens of a prompt, behind `cached_tokens` of it, in so many
  /// seconds. For the cost gate, and for a policy that weighs hits by what they save.
  Status report_prefill(std::size_t num_tokens, double seconds, std::size_t cached_tokens = 0);
  /// Why each part of the key is, or is not, here: what match() would find, and why no more. What
  /// may be in a store is not asked for.
  Result<Explanation> explain(const Key& key) const;
  std::size_t num_nodes() const;
  std::size_t memory_bytes() const;  ///< bookkeeping of the tree, heap included
  /// Every slot the tree owns, path by path in token order.
  std::vector<SlotId> all_slots() const;
  /// The tree as text, one node a line, children in token order.
  std::string dump() const;
  /// A hash of what ranks agree on: tokens, sides, holds and use of every node, not where they are.
  std::uint64_t digest() const;
  /// Proves the invariants of the tree, and that every slot of the tree and of the running requests
  /// has one owner. O(tree and requests).
  Status check() const;

  /// Everything since the last call, or nothing of it. Adjacent events are merged.
  std::vector<KvEvent> take_events();
  /// Stored events of all that is cached now, parents first: for those who have lost track. With
  /// events only. What take_events() would give next is in it. O(tree).
  std::vector<KvEvent> events_of_all() const;

 private:
  friend class Lease;
  friend class Request;
  struct Impl;
  explicit PrefixCache(std::unique_ptr<Impl> impl);
  void unlock(std::span<Lease::Hold* const> holds, NodeId* host_node);

  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
