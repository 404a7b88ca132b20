// SPDX-License-Identifier: Apache-2.0
// Takes from the tree: the least valuable pages, windows and snapshots of a tier, leaves that are
// of no use any more, what is not to be trusted. Shelves says whose turn it is, Residency releases
// what a node has, Tree removes it; Uses and TreeRetention are told. The ways out are a leaf with
// all it has, the tail of a leaf, a copy on one tier, a window, a snapshot.
//
// Invariants (check() proves the first): with a window or state component, a node that lacks one (a
// tombstone) has children or is held: nothing could ever match the end of another, so it goes, and
// what is left bare above it too. A node on the device without a host copy that leaves takes along
// what hangs below it on the host.
// Writes of a node: cut_off.
// Costs: O(log nodes) per victim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "index/component.h"
#include "index/node.h"
#include "index/released.h"
#include "index/residency.h"
#include "index/shelves.h"
#include "index/tree.h"
#include "index/tree_retention.h"
#include "index/uses.h"
#include "pando/result.h"

namespace pando {

class Evictor {
 public:
  /// What it takes from; all must outlive it.
  struct Shared {
    Tree& tree;
    Uses& uses;
    Components& components;
    Shelves& shelves;
    Residency& residency;
    TreeRetention& retention;
  };
  struct Options {
    std::size_t snapshot_interval_pages = 0;  // see thin_snapshots
    std::size_t max_snapshots_per_path = SIZE_MAX;
  };
  Evictor(const Shared& shared, const Options& options);

  /// Called for a node about to leave the device without a host copy: true if it has been given one
  /// (Residency::attach_host). May evict from the host. Empty: such nodes leave the tree.
  std::function<bool(NodeIndex)> save_to_host;

  struct Goal {
    std::size_t pages = 0;
    std::size_t window_pages = 0;
    std::size_t snapshots = 0;
    OwnerId by = kSharedOwner;       // for whom
    bool only_own = false;           // from what it has itself
    std::size_t incoming_pages = 0;  // that it is going to have more
    std::size_t request_pages = 0;   // of the request that wants room, cached ones included
    bool any() const { return pages + window_pages + snapshots > 0; }
  };
  /// Takes pages from the least valuable leaves of the device until the goal is met, trimming the
  /// last one unless `whole_nodes`; with a host copy they stay in the tree. Then windows and
  /// snapshots, from any node: a leaf that nobody holds goes with them, another stays as a
  /// tombstone. Owners other than the goal's keep what they have up to their floors.
  Evicted evict(const Goal& goal, bool whole_nodes, Released& out);
  /// Takes pages from the least valuable leaves that are on the host only, with `mirrors_first`
  /// after the host copies of nodes that the device will keep longest. Then windows and snapshots.
  Evicted evict_host(const Goal& goal, Released& out);

  /// For an owner that decides itself what is worth a node, on one tier and without components.
  /// The node that would be evicted next; kNoNode when somebody holds each.
  NodeIndex victim() { return device_.next({}).node; }
  bool has_victim() const { return !device_.empty(); }
  /// Removes a leaf that nobody holds; pages that had numbers are released.
  void remove(NodeIndex leaf, Released& out);

  /// Removes a tombstone without children that nobody holds.
  void drop_if_bare(NodeIndex node, Released& out, Evicted& evicted) {
    if (residency_.is_bare_leaf(node)) drop_leaf(node, out, evicted);
  }
  /// Removes `node`, which is not on the device, and all below. Nobody holds any of it.
  void drop_subtree(NodeIndex node, Released& out, Evicted& evicted);
  /// Removes `node` and what is above it, on all tiers, as far as no session, no pin and nobody
  /// without a session has use for it. False: somebody holds it still.
  bool release_private(NodeIndex node, Released& out, Evicted& evicted);
  /// The bytes of `node` on the device are not to be trusted, and so are those computed from them:
  /// nothing at or below it is ever found again. What somebody holds stays until it is let go.
  void cut_off(NodeIndex node, Released& out);
  /// Drops snapshots above `node` that nobody holds: those less than the interval behind the one
  /// before them, branching points excepted, then the shallowest beyond the most a path may have.
  void thin_snapshots(NodeIndex node, Released& out);

  /// O(tree).
  Status check() const;

 private:
  static Shelf::Demand demand_of(const Goal& goal) {
    return {goal.by, goal.incoming_pages, goal.only_own};
  }
  void prefetch_victims(const Shelf& shelf);
  void evict_leaves(const Goal& goal, bool whole_nodes, Released& out, Evicted& evicted);
  void evict_mirrors(const Goal& goal, Released& out, Evicted& evicted);
  void evict_host_leaves(const Goal& goal, Released& out, Evicted& evicted);
  void evict_component(Tier tier, ComponentKind kind, const Goal& goal, Released& out,
                       Evicted& evicted);
  std::uint32_t pages_to_keep(const Shelf::Turn& turn, std::size_t missing) const;

  bool leave_device_for(OwnerId by, NodeIndex node, Released& out, Evicted& evicted);
  bool leave_to_host(NodeIndex node, std::uint32_t keep, Released& out, Evicted& evicted);
  void drop_from_device(NodeIndex node, Released& out, Evicted& evicted);
  void drop_children(NodeIndex node, Released& out, Evicted& evicted);
  void drop_leaf(NodeIndex leaf, Released& out, Evicted& evicted);
  NodeIndex drop_one(NodeIndex leaf, Released& out, Evicted& evicted);
  void trim(NodeIndex leaf, std::uint32_t keep_pages, Released& out, Evicted& evicted);

  Tree& tree_;
  NodeSlab& nodes_;
  Uses& uses_;
  Components& components_;
  Shelves& shelves_;
  Residency& residency_;
  TreeRetention& retention_;
  Shelf& device_;  // of pages
  const Options options_;
};

}  // namespace pando
