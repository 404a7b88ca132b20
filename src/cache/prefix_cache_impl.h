// SPDX-License-Identifier: Apache-2.0
// What PrefixCache is made of: the core that all parts share, the tiers, and what is retained. It
// is made in create.cc. Calls on keys are in match.cc, leases.cc and insert.cc, those on running
// requests in requests.cc, those between tiers in tiers.cc, those on what is retained in
// retention.cc, pins.cc, sessions.cc and tenants.cc, those on everything in prefix_cache.cc and
// inspect.cc. The public functions of PrefixCache and Paths, in observed.cc, tell the observer of
// each call; calls inside another one stay in here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <vector>

#include "cache/cache_core.h"
#include "cache/prefill_cost.h"
#include "cache/tenants.h"
#include "cache/tree_tiers.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "pando/retention.h"
#include "tiers/tier_owner.h"

namespace pando {

/// Whole pages that hold so many tokens.
constexpr std::size_t pages_for(std::size_t tokens, std::size_t page_size) {
  return tokens / page_size + (tokens % page_size != 0 ? 1 : 0);
}

struct PrefixCacheImpl final : CacheCore, TierOwner {
  PrefixCacheImpl(const CacheOptions& options, SlotLedger ledger,
                  std::unique_ptr<EvictionPolicy> policy, StateAllocator* states);
  /// Makes the cache, given what its options and its kind of slots have passed, if everything fits
  /// together on every rank.
  static Result<std::unique_ptr<PrefixCache>> make(const CacheOptions& options, const Status& valid,
                                                   const std::function<SlotLedger()>& make_ledger,
                                                   std::unique_ptr<EvictionPolicy> policy,
                                                   StateAllocator* states);

  /// A tombstone of the path that gets its window back: from its page `first` on, by `num_pages` of
  /// the caller's pages, which lie in `revived_pages` from `offset` on.
  struct Revival {
    NodeIndex node = kNoNode;
    std::uint32_t first = 0;
    std::uint32_t num_pages = 0;
    std::size_t offset = 0;
    bool replace = false;  // the caller's pages take the place of the tree's, which nobody reads
  };
  /// A node of the path that is on the host only: the caller's pages, which lie in `adopted_pages`
  /// from `offset` on, put it on the device.
  struct Adoption {
    NodeIndex node = kNoNode;
    std::size_t first = 0;  // page of the key
    std::uint32_t num_pages = 0;
    std::uint32_t without_window = 0;  // of these, from the first
    std::size_t offset = 0;
  };
  /// An insert that has been checked against the tree and the ledger and cannot fail any more. The
  /// new pages are claimed, in `new_pages`; the caller's duplicates are in `duplicates`.
  struct InsertPlan {
    Tree::Cursor cursor;
    std::size_t num_pages = 0;       // of the key
    std::size_t released_pages = 0;  // of the caller's, without a window
  };
  // ---- Calls on keys ----

  Result<Match> match(const Key& key, std::span<SlotId> slots, SessionId session);
  Result<Lease> lock(const Match& match);
  Result<Inserted> insert(const Key& key, std::span<const SlotId> slots,
                          const InsertOptions& options);
  EvictResult evict_for(const EvictGoal& goal);
  Status reset();

  // ---- Calls on running requests ----

  using Running = Request::Impl;
  Result<std::unique_ptr<Running>> start(std::span<const Token> tokens,
                                         const RequestOptions& given);
  Status allocate(Running& request, std::optional<std::size_t> num_tokens);
  Status give_slots(Running& request, std::span<const SlotId> slots);
  Status allocate_extend(std::span<const std::size_t> prefix_lens,
                         std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out, std::string_view ns);
  Status allocate_decode(std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                         std::span<SlotId> out, std::string_view ns);
  Result<StateSlot> allocate_state();
  Status set_snapshot(Running& request, StateSlot slot, std::size_t num_tokens);
  Status checkpoint(Running& request, std::optional<std::size_t> num_computed, bool chunked);
  Status finish(Running& request, std::optional<std::size_t> num_computed);
  void abandon(Running& request);
  void abandon_told(Running& request);
  Result<std::size_t> release_windows(std::span<Running* const> requests,
                                      std::span<const std::size_t> num_tokens);
  Status refuse_foreign(const Running& request, const char* caller) const;
  void tell_finished(Running& request, std::size_t length);
  Status check_requests() const;

  // ---- Calls on tiers ----

  Result<LoadBack> load_back(Lease& lease, std::span<SlotId> slots, const LoadBackOptions& given);
  PollResult poll() override;
  Result<Prefetch> prefetch(const Key& key);

  TierEngine* tier_engine() override { return tier ? &tier->engine : nullptr; }
  CacheObserver* tier_observer() const override { return observer; }
  Status refuse_store() const override { return {}; }
  std::size_t default_fetch_tokens() const override;
  void set_write_policy(WritePolicy policy) override;
  void store_left() override;
  std::size_t evict_host(std::size_t num_tokens, std::size_t group) override;
  void prefilled(std::size_t num_tokens, double seconds, std::size_t cached_tokens) override;

  // ---- What they are made of ----

  /// Changes nothing on error. The key has a whole page at least.
  Result<InsertPlan> plan_insert(const Key& key, std::span<const SlotId> slots,
                                 const InsertOptions& options);
  Inserted apply_insert(const InsertPlan& plan, const Key& key, const InsertOptions& options);

  EvictResult evict(const Evictor::Goal& goal);
  /// nullptr: no store is attached.
  StoreLink* store() const { return tier ? tier->engine.store() : nullptr; }
  /// Returns the tokens that the host has more.
  std::size_t end_prefetch(PrefetchId id, bool keep) {
    return tier ? tier->engine.end_fetch(id, keep) : 0;
  }
  /// Of everything that nobody holds, on all tiers.
  void evict_all();
  /// For whom room is made: whose it is, and how long the requests are that want it.
  struct Asker {
    std::string_view ns;
    std::size_t num_tokens = 0;
  };
  /// alloc(allocator), after evicting what count_pages(full side) says is missing.
  template <typename Alloc, typename CountPages>
  Status allocate(const Asker& asker, Alloc alloc, CountPages count_pages);
  /// Lets go of what a lease holds, and of its host part, if given.
  void unlock(std::span<Lease::Hold* const> holds, NodeId* host_node);
  Lease::Hold hold_path(NodeIndex node);
  Lease::Hold hold_partial(NodeIndex node, std::uint32_t page);
  void release_hold_window(Lease::Hold& hold);
  void release_hold_snapshot(Lease::Hold& hold);
  void release_hold(Lease::Hold& hold);
  void hold_host(Lease& lease, NodeIndex node);
  void release_host(NodeId& node);

  /// Overwrites slots of the request with the tree's own: pages [from, to) of the path to `node`.
  void copy_tree_slots(NodeIndex node, std::size_t from, std::size_t to,
                       std::span<SlotId> slots) const;

  // ---- Retention ----

  /// A pin: held on the device, or by `host` on the host.
  struct HeldPin {
    PinKind kind = PinKind::hard;
    NodeId node = {};
    Lease::Hold device = {};
    NodeId host = {};
    Ticks until = kForever;
  };
  struct OpenSession {
    std::chrono::milliseconds idle_after = {};
    Ticks idle_at = 0;
    bool active = true;
    bool has_timer = false;
    std::vector<EndIndex> ends;
  };
  /// When a pin ends, or a session may have become idle.
  struct Timer {
    Ticks at = 0;
    PinId pin = {};
    SessionId session = {};
    friend bool operator<(const Timer& a, const Timer& b) { return a.at > b.at; }
  };
  /// For a pin or a session: no other cache gives it.
  std::uint64_t next_id() { return std::uint64_t{cache_id} << 32 | ++last_id; }
  Ticks clock() const;
  Ticks now();
  Ticks after(std::chrono::milliseconds duration);
  /// Whether anything ends by itself.
  bool waits_for_time() const;
  void pass_time(Ticks time);
  /// Gives the path its priorities. Returns how many ranges were not whole pages.
  std::size_t retain(NodeIndex end, std::span<const RetentionRange> ranges);

  Status refuse_pin(NodeIndex end);
  void drop_pin(PinId id);
  void loosen_soft_pins();
  void drop_broken_pins();

  Status refuse_session(SessionId id, const char* caller) const;
  /// A session was used, if it is open; and what it has inserted ends here, if that is a node.
  void use_session(SessionId id, NodeIndex end);
  void session_due(SessionId id);
  void release_closed();

  Tenants::Capacity shared_capacity() const;
  std::size_t component_capacity(Tier where, ComponentKind kind) const;
  void apply_limits(OwnerId owner);
  /// An owner with more than its cap gives up its own; what ends at `end`, if that is a node,
  /// stays.
  void enforce_cap(OwnerId owner, NodeIndex end = kNoNode);

  MatchEnd match_end(const Key& key, const Tree::Cursor& walked, const Tree::Cursor& valid) const;

  /// Passes on what the index let go of.
  void give_back();
  Status check_windows() const;
  Status check_snapshots() const;

  // What PrefixCache gives for calls that are not a request's.
  Retention retention_door{*this};
  Inspector inspector{*this};
  Paths paths_door{*this};

  const std::uint32_t cache_id;
  std::vector<Running*> running;
  std::optional<TreeTiers> tier;
  std::size_t num_locks = 0;
  std::size_t num_snapshot_locks = 0;
  std::size_t num_host_locks = 0;

  std::chrono::steady_clock::time_point made_at;
  Ticks agreed_time = 0;
  std::map<std::uint64_t, HeldPin> pins;
  std::uint32_t last_id = 0;     // of pins and sessions
  std::vector<PinId> soft_pins;  // that hold the device still
  std::map<std::uint64_t, OpenSession> sessions;
  std::vector<NodeId> closing;  // ends of closed sessions that somebody held
  std::priority_queue<Timer> timers;
  Tenants tenants;
  std::optional<PrefillCost> prefill_cost;  // if it is to be measured

  // Scratch of one operation, kept for its memory.
  std::vector<std::int64_t> poll_values;
  std::vector<std::uint32_t> new_pages;
  std::vector<std::uint32_t> revived_pages;
  std::vector<Revival> revivals;
  std::vector<std::uint32_t> adopted_pages;
  std::vector<Adoption> adoptions;
  std::vector<PageId> duplicates;

 private:
  Status refuse_start(const RequestOptions& given, std::size_t num_tokens) const;
  Result<Match> find_start(Running& request, std::size_t recompute);
  Result<std::size_t> computed(const Running& request, std::optional<std::size_t> said,
                               const char* caller) const;
  /// What of the computed tokens may go to the tree now; nothing if that is less than the request
  /// got from there.
  Result<std::optional<Key>> insertable(const Running& request, std::size_t num_computed,
                                        const char* caller) const;
  InsertOptions insert_options(const Running& request, bool chunked, bool unfinished) const;
  void end_unused(Running& request);
  void let_go(Running& request);
  std::size_t release_window(Running& request, std::size_t num_tokens);

  Result<NodeIndex> held_node(const Key& key, const InsertOptions& options) const;
  Status refuse_insert(const InsertPlan& plan, const InsertOptions& options) const;
  Status plan_existing(const InsertPlan& plan, std::span<const SlotId> slots,
                       std::size_t owned_pages, bool look_at_last);
  void plan_revival(NodeIndex node, std::uint32_t num_pages, std::uint32_t num_revived);
  Status plan_new(const InsertPlan& plan, std::span<const SlotId> slots);
  Status plan_adoption(const InsertPlan& plan, NodeIndex node, std::size_t first, std::uint32_t n,
                       const SlotId* slots);
  std::size_t apply_adoptions(const InsertPlan& plan, NodeIndex end);
  void adopt(NodeIndex node, std::span<const std::uint32_t> pages, bool with_window);
  std::size_t apply_revivals(const InsertPlan& plan, NodeIndex end);
  NodeIndex apply_new(const InsertPlan& plan, const Key& key, NodeIndex end);
  void apply_snapshot(NodeIndex end, StateSlot snapshot);
};

/// An error unless a range makes sense.
Status refuse_range(const RetentionRange& range, const char* caller);
/// An error unless it is in a request of `length` tokens; of one that `grows`, it may begin with
/// what is to come.
Status refuse_outside(const RetentionRange& range, std::size_t length, bool grows,
                      const char* caller);

}  // namespace pando
