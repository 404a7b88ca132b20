// SPDX-License-Identifier: Apache-2.0
// Start here. PrefixCache answers, for the scheduler of an inference engine: how much of this
// prompt do I already hold, keep it there while I use it, give me room for the rest, take what I
// computed. One radix tree over pages of tokens; it owns the slots of what it caches.
//
// Life of a request: start (match, lock, slots) -> allocate -> forward -> checkpoint after each
// chunk; append and allocate for each sampled token -> finish. docs/tour.md follows one through the
// files. What is not a request's has its own headers: tiers.h, retention.h, inspect.h, and paths.h
// for engines that keep requests and slots themselves.
//
// Hybrid models switch on components that a node may have beside its full-attention side: a window
// (sliding-window layers) and a snapshot of state (recurrent layers). A match then ends where all
// agree. A node that lost one of them is a tombstone; it goes when nothing is left below it.
//
// Every slot has one owner: the allocator, a request, or the tree; check() proves it.
// A cache belongs to one thread. Bad input is refused and changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pando/allocators.h"
#include "pando/policy.h"
#include "pando/result.h"
#include "pando/retention.h"
#include "pando/tiers.h"
#include "pando/types.h"

namespace pando {

class CacheObserver;
class Inspector;
class Paths;
class PrefixCache;
class Ranks;
struct EngineSlots;
struct KvEvent;
struct PrefixCacheImpl;

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
  bool bigram = false;    ///< EAGLE: n tokens are n - 1 overlapping pairs
  bool disabled = false;  ///< keep nothing: every slot goes back to the allocator at finish()
  bool events = false;    ///< record KV events
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
  friend struct PrefixCacheImpl;
  struct Impl;
  explicit Request(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
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

class PrefixCache {
 public:
  /// Over Pando's allocators, or an engine's own slots (paths.h). `policy`: one of your own,
  /// instead of the one that the options name. Snapshots live in `states`, if the options ask for
  /// them. Whatever is given by reference or pointer must outlive the cache.
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

  // ---- The life of a request, in the order in which its calls come ----

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

  /// A request for these tokens: matches, locks, and has the slots of what is cached. The tokens
  /// are copied.
  Result<Request> start(std::span<const Token> tokens, const RequestOptions& options = {});
  /// Brings back what start() found on the host, before allocate(): all of it or nothing. Makes
  /// room if need be; cached_length() grows. The layers arrive one after the other: reads through
  /// the pools' gates wait for them.
  Result<LoadBack> load_back(Request& request, const LoadBackOptions& options = {});
  /// Room for its first `num_tokens` tokens, or for all; there may be more of them than tokens, for
  /// those to come. Evicts exactly what is missing. All or nothing; nothing where there is room.
  Status allocate(Request& request, std::optional<std::size_t> num_tokens = {});
  /// For a cache on an engine's own slots, instead of allocate(): `slots` are those of the next
  /// tokens, and the request's from now on.
  Status give_slots(Request& request, std::span<const SlotId> slots);
  /// A state slot, after evicting a snapshot if none is free.
  Result<StateSlot> allocate_state();
  /// State component: `slot` is the state after `num_tokens` tokens, whole pages, for the next
  /// checkpoint() or finish() to give to the tree; what is cached then ends there. The request owns
  /// it. Say it when the state is taken, so that release_window() spares the window before it.
  Status set_snapshot(Request& request, StateSlot slot, std::size_t num_tokens);
  /// The KV of the first `num_computed` tokens is in place (unless told: of all that have slots):
  /// inserts them, swaps duplicate slots for the tree's, and holds the new end. `chunked`: a part
  /// of a prefill, which does not count as a hit.
  Status checkpoint(Request& request, std::optional<std::size_t> num_computed = {},
                    bool chunked = false);
  /// With `num_tokens` computed, gives back the window side of the request's own slots that no
  /// token to come can see, in whole pages, and lets go of the lease's window once that lies
  /// behind. The last whole page keeps the window that a match of it will need. Returns the tokens
  /// given back.
  Result<std::size_t> release_window(Request& request, std::size_t num_tokens);
  /// The same for a batch; nothing happens unless all are valid.
  Result<std::size_t> release_window(std::span<Request* const> requests,
                                     std::span<const std::size_t> num_tokens);
  /// As checkpoint(), for the last time: inserts, and gives back duplicates, the tail and a
  /// snapshot that was not taken. The request has its tokens left and holds nothing.
  Status finish(Request& request, std::optional<std::size_t> num_computed = {});
  /// Ends a request without inserting anything: gives back everything that is not the tree's.
  void abandon(Request& request);

  /// Applies what copies have finished since the last call. Cheap when nothing is under way; an
  /// engine calls it once per step.
  PollResult poll();

  // ---- All of it ----

  /// Frees at least what is asked, rounded up to whole pages, or less when no more is evictable:
  /// first leaves for `tokens`, then windows and snapshots of any node.
  EvictResult evict(const EvictGoal& goal);
  EvictResult evict(std::size_t num_tokens) { return evict(EvictGoal{.tokens = num_tokens}); }
  /// Empties the tree and gives back its slots; ends all pins. Refused while leases are held.
  Status reset();
  /// Everything since the last call, or nothing of it. Adjacent events are merged.
  std::vector<KvEvent> take_events();
  /// Proves the invariants of the tree, and that every slot of the tree and of the running requests
  /// has one owner. O(tree and requests).
  Status check() const;
  const CacheOptions& options() const;
  std::size_t page_size() const;  ///< the allocator's, in tokens

  // ---- The rest, by subject; each lives as long as the cache ----

  Tiers& tiers();  ///< host memory and the store behind it
  const Tiers& tiers() const;
  Retention& retention();  ///< pins, sessions, tenants
  const Retention& retention() const;
  const Inspector& inspect() const;  ///< what is in it, and why
  Paths& paths();                    ///< keys and spans of slots in place of requests
  const Paths& paths() const;

 private:
  friend struct PrefixCacheImpl;
  explicit PrefixCache(std::unique_ptr<PrefixCacheImpl> impl);

  std::unique_ptr<PrefixCacheImpl> impl_;
};

}  // namespace pando
