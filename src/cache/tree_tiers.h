// SPDX-License-Identifier: Apache-2.0
// The radix tree as an index of the tier engine (tiers/tier_engine.h): which nodes go to the host,
// to the store, and back, and what holds them meanwhile. A node is an extent: its pages of full
// attention, their windows, the snapshot at its end. One per PrefixCache that has a host tier.
//
// Invariant: the node of a copy is held on the device, the node of a put, and the node below which
// a fetch will hang, on the host, until the engine says that it has ended. A node may be split
// meanwhile: so an extent is named by the node at its end, and by the page where it began.
//
// tree_tiers.cc has copies to the host, tree_load.cc those back, tree_store.cc the store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_core.h"
#include "index/radix_index.h"
#include "pando/tiers.h"
#include "tiers/tier_engine.h"

namespace pando {

class TreeTiers final : private TierIndex {
 public:
  /// Makes room on the device.
  using Evict = std::function<void(const Evictor::Goal&)>;
  TreeTiers(CacheCore& core, const HostTierOptions& options, Evict evict);
  ~TreeTiers();
  TreeTiers(const TreeTiers&) = delete;
  TreeTiers& operator=(const TreeTiers&) = delete;

  /// An insert ended here: starts copies of the nodes on its path that have been hit often enough,
  /// and puts what the store lacks of them.
  void inserted(NodeIndex end);
  /// Starts copies of all nodes on the path that have none, whatever the policy.
  void back_up(NodeIndex end);
  /// A node leaves the device without a host copy. True: it has host pages now, into which
  /// finish_write_back() will copy before its device pages are given away.
  bool write_back(NodeIndex node);
  void finish_write_back();

  /// Starts loading what the device lacks of the path to `end`, beyond `from` pages. All or
  /// nothing: unless it is `loaded`, nothing but room on the device has changed.
  Result<LoadOutcome> load(NodeIndex end, std::size_t from, const LoadBackOptions& options);

  Result<Prefetch> prefetch(const Key& key);

  Evicted evict(const Evictor::Goal& goal);
  const TierPools& pools(ComponentKind kind) const;
  void set_write_policy(WritePolicy policy) { options_.write_policy = policy; }
  WritePolicy write_policy() const { return options_.write_policy; }

  /// Gives back what the index let go of on the host, and tells the pools what left the device.
  void give_back(Released& released);
  /// The device has computed anew what is on the host: of the node, its window, its snapshot.
  void device_came(NodeIndex node, bool pages, bool window, bool snapshot);

  /// Adds the locks that things under way hold.
  void add_holds(RadixIndex::HoldCounts& holds) const;
  /// Every page of the host pools has one owner, in the state that its owner says, and what is
  /// claimed adds up.
  Status check() const;

 private:
  struct NodeFetch;  // tree_store.cc
  struct LoadPlan;   // tree_load.cc
  /// What a load under way holds: the path to its end, its window, its snapshot.
  struct HeldPath {
    Extent end;
    std::uint32_t begin = 0;  // pages from the root: where the first loaded page is
  };
  /// Where the pages of an extent begin in those of its copy.
  using Offsets = std::array<std::size_t, 3>;

  static std::uint64_t entry_of(NodeId id) { return std::uint64_t{id.generation} << 32 | id.index; }
  NodeIndex resolve(std::uint64_t entry) const {
    return index_.resolve(
        NodeId{static_cast<std::uint32_t>(entry), static_cast<std::uint32_t>(entry >> 32)});
  }
  static PageId page_of(StateSlot slot) { return PageId{slot.index + 1}; }

  // HostKeeper.
  Share share(std::size_t component, OwnerId owner) const override;
  std::size_t kept_pages(std::size_t component) const override;
  std::size_t evictable_for(std::size_t component, OwnerId owner) const override;
  void evict_host(const Shortage& shortage) override;
  // TierIndex.
  void backup_ended(PageCopy& copy, bool copied) override;
  void load_ended(PageCopy& copy, bool loaded) override;
  // StoreIndex.
  void store_attached() override;
  std::optional<Extent> hold_unstored(std::uint64_t entry, std::vector<NamedPage>& pages) override;
  bool is_unstored(std::uint64_t entry) const override;
  void put_ended(const Extent& extent, bool stored) override;
  std::size_t choose(FetchTarget& target, const std::function<bool(std::size_t)>& has,
                     std::size_t limit) override;
  std::size_t keep(FetchTarget& target, std::span<FetchedPage> pages) override;
  void fetch_ended(FetchTarget& target) override;

  void copy_path(NodeIndex end, std::size_t enough_hits);
  bool reserve_node(NodeIndex node, PageCopy& copy);
  void take_back_last(PageCopy& copy);
  void note_demotions(Released& released);
  void hold(const Extent& extent);
  void release(const Extent& extent);
  void attach(NodeIndex node, const Extent& extent, const PageCopy& copy, const Offsets& at);
  void tell(NodeIndex node);
  void count_backup(const PageCopy& copy, bool copied);

  LoadPlan plan_load(NodeIndex end);
  std::size_t load_bytes(const LoadPlan& plan) const;
  Evictor::Goal shortage(const LoadPlan& plan) const;
  bool can_evict(const Evictor::Goal& goal) const;
  Evictor::Goal take_pages(LoadPlan& plan);
  void give_up(LoadPlan& plan);
  Status start_load(LoadPlan& plan, LoadOrder order);
  void abort_load(LoadPlan& plan);
  Result<bool> try_load(LoadPlan& plan, LoadOrder order);
  void commit(LoadPlan& plan);

  std::size_t unbroken_window(NodeIndex node) const;
  NodeIndex hang(const NodeFetch& fetch, std::span<const FetchedPage> pages, NodeIndex parent,
                 std::size_t begin, std::size_t end);

  CacheCore& core_;
  RadixIndex& index_;
  HostTierOptions options_;
  Evict evict_;
  std::unique_ptr<PageCopy> victims_;  // of the eviction under way
  std::deque<HeldPath> loading_;       // as the engine's loads
  std::size_t num_locks_ = 0;
  std::size_t num_state_locks_ = 0;
  std::size_t num_host_locks_ = 0;
  std::vector<NodeIndex> path_;  // scratch

 public:
  TierEngine engine;
};

/// An error unless pools, copier and cache fit together.
Status validate_host_tier(const CacheOptions& options, const SlotLedger& ledger,
                          const StateAllocator* states);

}  // namespace pando
