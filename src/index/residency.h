// SPDX-License-Identifier: Apache-2.0
// What is where: which nodes are on the device and on the host, with which pages, windows and
// snapshots. Knows Tree and Components, and tells Shelves of every change. It releases pages;
// whether a node leaves the tree is decided by Evictor.
//
// Invariants (check() proves them):
// - a node is on the device or on the host or on both, and the parent of one that is on the device
//   is too: what is on the device is the top of the tree. So a node leaves the device from below
//   and comes back from above;
// - a window or snapshot is on a tier only where its node is;
// - no page and no state slot is in the tree twice.
// Writes of a node: pages (from and to nullptr), on_host, unstored; device_children of its parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "index/component.h"
#include "index/node.h"
#include "index/released.h"
#include "index/shelves.h"
#include "index/tree.h"
#include "pando/pools.h"
#include "pando/result.h"

namespace pando {

class Residency {
 public:
  Residency(Tree& tree, Shelves& shelves, Components& components)
      : tree_(tree), nodes_(tree.nodes()), shelves_(shelves), components_(components) {}

  /// Called for pages about to leave a tier: n pages of `node` from its page `first` on.
  using OnRemoved =
      std::function<void(Tier from, const Node& node, std::uint32_t first, std::uint32_t n)>;
  OnRemoved on_removed;

  // ---- What a node has ----

  std::span<const PageId> device_pages(const Node& node) const {
    return {reinterpret_cast<const PageId*>(node.pages), node.on_device() ? node.num_pages : 0};
  }
  std::span<const HostPageId> host_pages(const Node& node) const;
  std::span<const HostPageId> host_window_pages(const Node& node) const;
  /// Always, without a window component.
  bool has_window(NodeIndex i) const { return !components_.window || components_.window->has(i); }
  bool has_snapshot(NodeIndex i) const { return components_.state && components_.state->has(i); }
  /// The same on the host.
  bool has_host_window(NodeIndex i) const {
    return components_.host_window && components_.host_window->has(i);
  }
  bool has_host_snapshot(NodeIndex i) const {
    return components_.host_state && components_.host_state->has(i);
  }
  StateSlot snapshot(NodeIndex i) const { return (*components_.state)[i].snapshot; }
  HostPageId host_snapshot(NodeIndex i) const {
    return HostPageId{(*components_.host_state)[i].snapshot.index};
  }
  /// A tombstone without children that nobody holds: nothing can ever match its end.
  bool is_bare_leaf(NodeIndex i) const {
    return nodes_[i].is_free_leaf() && (nodes_[i].cut_off || is_tombstone(i));
  }

  // ---- Coming ----

  /// Host pages of one node: all its pages; their windows, or none; the snapshot at its end.
  struct HostExtent {
    std::span<const HostPageId> pages = {};
    std::span<const HostPageId> window_pages = {};
    std::optional<HostPageId> snapshot = {};
  };
  /// A leaf was hung onto the device, with its window. Its first use gives that a place.
  void add_leaf(NodeIndex leaf) {
    if (components_.window) components_.window->add(leaf, nodes_[leaf]);
  }
  /// `node` has a host copy from now on, or more of one.
  void attach_host(NodeIndex node, const HostExtent& copy);
  /// `node`, on the host only, is on the device too. Its parent is.
  void attach_device(NodeIndex node, std::span<const std::uint32_t> pages, bool with_window);
  /// `node`, on the device without a window, has one again: from its page `first` on, with the
  /// pages given unless there are none. Splits off what stays without.
  void attach_window(NodeIndex node, std::uint32_t first = 0,
                     std::span<const std::uint32_t> pages = {});
  /// The first `pages` of a new leaf, if any, become a node without a window.
  void bury_head(NodeIndex leaf, std::uint32_t pages);
  /// Gives `node`, which has none, a snapshot. The caller touches the path.
  void attach_snapshot(NodeIndex node, StateSlot slot) {
    components_.state->add(node, nodes_[node], slot);
  }
  void set_unstored(NodeIndex node, bool yes) { nodes_[node].unstored = yes; }

  // ---- Going ----

  /// `node`, with a host copy, leaves the device; what is below is on the host only.
  void detach_device(NodeIndex node, Released& out, Evicted& evicted);
  /// `node`, which the device has and keeps, loses its host copy.
  void detach_host(NodeIndex node, Released& out, Evicted& evicted);
  /// `node` loses its window or its snapshot on one tier.
  void detach_component(Tier tier, ComponentKind kind, NodeIndex node, Released& out,
                        Evicted& evicted);
  /// A node off the shelves is about to leave the tree with all it has.
  void release(NodeIndex node, Released& out, Evicted& evicted);
  /// So are its pages from `keep` on.
  void release_tail(NodeIndex node, std::uint32_t keep, Released& out, Evicted& evicted);

  /// `upper` has been split off the front of `lower`.
  void split(NodeIndex upper, NodeIndex lower) {
    nodes_[upper].on_host = nodes_[lower].on_host;
    nodes_[upper].unstored = nodes_[lower].unstored;
  }
  /// O(tree).
  Status check() const;

 private:
  /// Whether a component lacks it on every tier.
  bool is_tombstone(NodeIndex i) const {
    return (components_.window && !has_window(i) && !has_host_window(i)) ||
           (components_.state && !has_snapshot(i) && !has_host_snapshot(i));
  }
  void drop_window(NodeIndex i, Released& out);
  void drop_snapshot(NodeIndex i, Released& out, Evicted& evicted);
  void drop_host_snapshot(NodeIndex i, Released& out, Evicted& evicted);
  void release_device(NodeIndex i, Released& out, Evicted& evicted);
  void release_device_tail(NodeIndex i, std::uint32_t keep, Released& out, Evicted& evicted);
  void release_host(NodeIndex i, Released& out, Evicted& evicted);
  void release_host_tail(NodeIndex i, std::uint32_t keep, Released& out, Evicted& evicted);

  Tree& tree_;
  NodeSlab& nodes_;
  Shelves& shelves_;
  Components& components_;
};

}  // namespace pando
