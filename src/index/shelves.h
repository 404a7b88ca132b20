// SPDX-License-Identifier: Apache-2.0
// All rooms of a tree, and who leaves each first: the shelves of pages of the device and of the
// host, and, through Components, those of windows and snapshots. Knows nodes, their keys (Uses) and
// Components. It is told of changes and decides nothing: whoever changes what a node weighs or
// whether it may go takes it out before and puts it back after (retire and admit; leave and enter
// where pages and holds stay as they are).
//
// Invariants (check() proves them): candidates of the device's shelf are exactly the nodes that may
// leave the device (Node::is_candidate), those of the host's the ones that may leave the tree from
// there, those of the mirrors' the ones that may lose their host copy, all under their present
// key; each shelf counts what the nodes of each owner weigh, and how much of it nobody holds; so do
// those of the components.
// Writes of a node: order_key, in_order, in_host_order, in_mirrors, owner (but of roots), level.
// Costs: O(log nodes) per change of a place. With components or a host tier a use places each node
// of its path anew.
#pragma once

#include <cstddef>

#include "index/component.h"
#include "index/node.h"
#include "index/shelf.h"
#include "index/tree.h"
#include "index/uses.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class Shelves {
 public:
  struct Options {
    bool host = false;           // nodes may be on the host
    bool mirrors_first = false;  // host copies of nodes that are on the device too go first
  };
  Shelves(Tree& tree, const Uses& uses, Components& components, const Options& options);

  // ---- Told of changes ----

  /// Out of the orders before anything changes that they go by, and back in after it.
  void leave(NodeIndex i) {
    if (nodes_[i].is_in_an_order()) leave_orders(i);  // few are
  }
  void enter(NodeIndex i);
  /// The same, and out of the tallies of pages and into them.
  void retire(NodeIndex i);
  void admit(NodeIndex i);
  /// The same of the path to `end`, which is about to be used, and was.
  void leave_path(NodeIndex end);
  void enter_path(NodeIndex end);
  /// What a node has of components, likewise; placing one that has its place does no harm.
  void leave_components(NodeIndex i) {
    components_.for_each([&](Component& component) { component.leave(i, nodes_[i]); });
  }
  void place_components(NodeIndex i);

  /// A leaf has been hung into the tree: it takes the room of its parent's owner. Its first use
  /// gives it a place.
  void add_leaf(NodeIndex leaf);
  /// Node i is held from now on, which nobody did.
  void hold(NodeIndex i) {
    const Node& node = nodes_[i];
    if (node.on_host || node.host_locks == 0) device_.hold(node.owner, node.num_pages);
    leave(i);
  }
  void set_level(NodeIndex i, Level level);
  void set_owner(NodeIndex i, OwnerId owner);
  /// `upper` has been split off the front of `lower`.
  void split(NodeIndex upper, NodeIndex lower);
  /// The edge of a node has another length, and it weighs as much as the nodes it is made of.
  void reenter(NodeIndex i) {
    leave(i);
    enter(i);
  }
  /// Makes room for node i.
  void reach(NodeIndex i) {
    components_.for_each([&](Component& component) { component.reach(i); });
  }

  // ---- Asked ----

  /// The room of one component on one tier; nullptr where it is not on.
  Shelf* shelf(Tier tier, ComponentKind kind);
  const Shelf* shelf(Tier tier, ComponentKind kind) const {
    return const_cast<Shelves*>(this)->shelf(tier, kind);
  }
  /// Of the device's candidates, leaves with a host copy, the last one first; kept if they go
  /// first. Counts what the host's counts.
  Shelf* mirrors() { return mirrors_first_ ? &mirrors_ : nullptr; }
  void set_limits(Tier tier, ComponentKind kind, OwnerId owner, const Shelf::Limits& limits);
  /// In pages of each component, and snapshots; of the host, evictable is what is on the host only.
  Sizes sizes(Tier tier, ComponentKind kind) const;
  bool with_host() const { return host_on_; }
  /// Whether nodes above the end of a path have places too.
  bool places_path() const { return components_.any() || host_on_; }

  std::size_t memory_bytes() const;
  /// O(tree).
  Status check() const;

 private:
  void leave_orders(NodeIndex i);
  Status check_pages() const;
  Status check_component(const Component& component, const char* name) const;

  const Tree& tree_;
  NodeSlab& nodes_;
  const Uses& uses_;
  Components& components_;
  const bool host_on_;
  const bool mirrors_first_;
  Shelf device_;   // candidates: leaves of the device that nobody holds
  Shelf host_;     // leaves that are on the host only and that nobody holds
  Shelf mirrors_;  // see mirrors()
};

inline void Shelves::enter(NodeIndex i) {
  Node& node = nodes_[i];
  const bool leaves_device = node.is_candidate();
  const bool leaves_host = host_on_ && node.is_host_candidate();
  if (!leaves_device && !leaves_host) return;
  node.order_key = uses_.key(i);
  node.in_order = leaves_device;
  node.in_host_order = leaves_host;
  node.in_mirrors = mirrors_first_ && node.is_mirror();
  if (node.in_order) device_.insert(i, node, node.order_key);
  if (node.in_host_order) host_.insert(i, node, node.order_key);
  if (node.in_mirrors) mirrors_.insert(i, node, node.order_key);
}

inline void Shelves::leave_orders(NodeIndex i) {
  Node& node = nodes_[i];
  if (node.in_order) device_.erase(i, node, node.order_key);
  if (node.in_host_order) host_.erase(i, node, node.order_key);
  if (node.in_mirrors) mirrors_.erase(i, node, node.order_key);
  node.in_order = node.in_host_order = node.in_mirrors = false;
}

inline void Shelves::retire(NodeIndex i) {
  leave(i);
  const Node& node = nodes_[i];
  if (node.on_device()) device_.remove(node.owner, node.num_pages, node.is_device_evictable());
  if (!node.on_host) return;
  host_.remove(node.owner, node.num_pages, node.is_host_evictable());
  if (mirrors_first_) mirrors_.remove(node.owner, node.num_pages, false);
}

inline void Shelves::admit(NodeIndex i) {
  const Node& node = nodes_[i];
  if (node.on_device()) device_.add(node.owner, node.num_pages, node.is_device_evictable());
  if (node.on_host) {
    host_.add(node.owner, node.num_pages, node.is_host_evictable());
    if (mirrors_first_) mirrors_.add(node.owner, node.num_pages, false);
  }
  enter(i);
}

}  // namespace pando
