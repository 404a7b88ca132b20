// SPDX-License-Identifier: Apache-2.0
// The host tier at work: reserves host pages, starts copies, and applies what they have done. The
// index decides what goes where; this moves it. One per PrefixCache that has a host tier.
//
// Invariant: a host page is free in its pool, a node's, or of one of the copies listed here. Both
// sides of a copy are held, the node against eviction and the pages in their pool's states, until
// poll() has seen it end. Backups, and loads, are applied in the order they were started.
//
// Ranks keep their trees alike: room is counted, not looked up, so that all evict the same; and
// whatever a pool or a copier may refuse to one rank is taken here first, then either all ranks
// have it or all give it back. For backups that is told by report() and apply(), when they end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/cache_core.h"
#include "cache/cost_gate.h"
#include "index/radix_index.h"
#include "pando/tiers.h"

namespace pando {

class HostTier {
 public:
  /// Makes room on the device.
  using Evict = std::function<void(const Evictor::Goal&)>;
  HostTier(CacheCore& core, const HostTierOptions& options, Evict evict);
  ~HostTier();
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  /// An insert ended here: starts copies of the nodes on its path that have been hit often enough.
  void write_through(NodeIndex end);
  /// Starts copies of all nodes on the path that have none, whatever the policy.
  void back_up(NodeIndex end);
  /// A node leaves the device without a host copy. True: it has host pages now, into which
  /// finish_write_back() will copy before its device pages are given away.
  bool write_back(NodeIndex node);
  void finish_write_back();

  /// Starts loading what the device lacks of the path to `end`, beyond `from` pages. All or
  /// nothing: unless it is `loaded`, nothing but room on the device has changed.
  Result<LoadOutcome> load(NodeIndex end, std::size_t from, const LoadBackOptions& options);

  /// Appends a number for each copy under way, see Agreement.
  void report(std::vector<std::int64_t>& values) const;
  /// The same numbers, each the least of all ranks.
  void apply(std::span<const std::int64_t> values, PollResult& result);
  /// Waits for everything under way and applies it as it is here: before everything goes.
  void drain();
  bool idle() const { return backups_.empty() && loads_.empty(); }
  void count(UnderWay& under_way) const {
    under_way.backups = backups_.size();
    under_way.loads = loads_.size();
  }
  Evicted evict(const Evictor::Goal& goal);

  /// Host pages that something under way has asked for. Ranks ask alike, though a pool may refuse
  /// one of them.
  struct Claim {
    std::array<std::size_t, 3> pages = {};  // by ComponentKind
    bool refused = false;
  };
  /// Host pages for a component, after evicting what is missing: appended to `out`, unless the pool
  /// refuses. False, and nothing is claimed, if there is no room on any rank.
  /// It is `by` that will have them.
  bool reserve(ComponentKind kind, std::size_t n, OwnerId by, std::vector<HostPageId>& out,
               Claim& claim);
  /// So many of them belong to a node now, or are not wanted any more.
  void settle(Claim& claim, ComponentKind kind, std::size_t n);
  void settle(Claim& claim);

  const TierPools& pools(ComponentKind kind) const;
  void set_write_policy(WritePolicy policy) { options_.write_policy = policy; }
  WritePolicy write_policy() const { return options_.write_policy; }
  /// Called for every node that has just got its host copy.
  std::function<void(NodeIndex)> on_backed_up;

  /// Gives back what the index let go of on the host, and tells the pools what left the device.
  void give_back(Released& released);
  /// The device has computed anew what is on the host: of the node, its window, its snapshot.
  void device_came(NodeIndex node, bool pages, bool window, bool snapshot);

  std::size_t num_locks() const { return num_locks_; }
  std::size_t num_state_locks() const { return num_state_locks_; }
  std::size_t num_host_locks() const { return num_host_locks_; }
  /// Pages that belong to neither a node nor a copy.
  struct Reserved {
    std::vector<HostPageId> full, window, state;
  };
  /// Every page of the host pools has one owner, in the state that its owner says, and what is
  /// claimed adds up. Fetches write to `fetching`, and have claimed `claimed`.
  Status check(const Reserved& fetching, const Claim& claimed) const;

  TierStats stats;
  CostGate gate;

 private:
  /// Pages of one component, side by side.
  struct Pages {
    std::vector<PageId> device;
    std::vector<HostPageId> host;
  };
  /// A node that is copied. It may be split meanwhile: so it is named by its end, and by the page
  /// where it began.
  struct Part {
    NodeId node = {};
    std::uint32_t begin = 0;  // pages from the root
    std::size_t full = 0;     // where its pages begin in those of the copy
    std::size_t window = 0;
    bool has_window = false;
    std::optional<std::size_t> state = {};
  };
  struct Copy {
    std::vector<Part> parts;
    Pages full, window, state;
    Claim claim;  // of a backup
    std::vector<Transfer> transfers;
    std::size_t num_pages = 0;
    bool broken = false;  // a pool or the copier refused some of it

    void clear();  // keeps the room
    bool finished() const;
    /// True if every byte has arrived.
    bool wait() const;
    std::int64_t progress() const;
    /// Calls fn(pools, pages) for each component of which there are pages.
    template <typename Fn>
    void for_each_pool(const HostTierOptions& options, Fn&& fn) {
      if (!full.host.empty()) fn(options.full, full);
      if (!window.host.empty()) fn(options.window, window);
      if (!state.host.empty()) fn(options.state, state);
    }
  };
  struct Load {
    Copy copy;
    Part held;                // the path to its end, its window, its snapshot
    std::uint32_t begin = 0;  // pages from the root: where the first loaded page is
  };
  struct LoadPlan;  // host_load.cc

  static PageId page_of(StateSlot slot) { return PageId{slot.index + 1}; }
  std::size_t room(ComponentKind kind) const;
  bool keeps_to_cap(OwnerId owner, std::size_t n);
  void copy_path(NodeIndex end, std::size_t enough_hits);
  bool reserve_node(NodeIndex node, Copy& copy);
  void take_back_last(Copy& copy);
  void note_demotions(Released& released);
  std::unique_ptr<Copy> new_copy();
  void recycle(std::unique_ptr<Copy> copy);
  void start_backup(Copy& copy);
  void hold(const Part& part);
  void release(const Part& part);
  void apply_backup(Copy& copy, bool copied);
  void tell(NodeIndex node);
  void count_backup(const Copy& copy, bool copied);
  void attach(NodeIndex node, const Part& part, const Copy& copy, bool is_end);

  LoadPlan plan_load(NodeIndex end);
  bool is_worth_loading(const LoadPlan& plan, std::size_t num_tokens);
  Evictor::Goal shortage(const LoadPlan& plan) const;
  bool can_evict(const Evictor::Goal& goal) const;
  Evictor::Goal take_pages(LoadPlan& plan);
  void give_up(LoadPlan& plan);
  Status start_load(LoadPlan& plan, LoadOrder order);
  void stop_load(LoadPlan& plan);
  Result<bool> try_load(LoadPlan& plan, LoadOrder order);
  void commit(LoadPlan& plan, Load& load);
  void apply_load(Load& load, bool loaded);

  CacheCore& core_;
  RadixIndex& index_;
  HostTierOptions options_;
  Evict evict_;
  std::deque<std::unique_ptr<Copy>> backups_;
  std::deque<Load> loads_;
  Copy victims_;  // of the eviction under way
  // Ended backups, for the next ones to use their room. (PollCompletions: 188 ns without, 138
  // with.)
  std::vector<std::unique_ptr<Copy>> spare_;
  std::array<std::size_t, 3> capacity_ = {};   // pages that every rank has, by ComponentKind
  std::array<std::size_t, 3> under_way_ = {};  // pages claimed
  std::size_t num_locks_ = 0;
  std::size_t num_state_locks_ = 0;
  std::size_t num_host_locks_ = 0;
  std::vector<NodeIndex> path_;  // scratch
};

/// An error unless pools, copier and cache fit together.
Status validate_host_tier(const CacheOptions& options, const SlotLedger& ledger,
                          const StateAllocator* states);

}  // namespace pando
