// SPDX-License-Identifier: Apache-2.0
// Turns of victims, and the ways out of the tree.
#include "index/evictor.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "index/broken.h"

namespace pando {

Evictor::Evictor(const Shared& shared, const Options& options)
    : tree_(shared.tree),
      nodes_(shared.tree.nodes()),
      uses_(shared.uses),
      components_(shared.components),
      shelves_(shared.shelves),
      residency_(shared.residency),
      retention_(shared.retention),
      device_(*shared.shelves.shelf(Tier::device, ComponentKind::full)),
      options_(options) {}

// ---- Whose turn --------------------------------------------------------------------------------

// A victim is cold by definition: half a dozen cache lines that have not been touched for long. The
// order tells who is next, so they are fetched while earlier victims leave, across calls: first the
// node, then what it points at. (EvictOne at a million leaves: 590 ns without, 330 ns with.)
// Part of its callers by force: gcc drops calls of functions that do nothing but prefetch.
[[gnu::always_inline]] inline void Evictor::prefetch_victims(const Shelf& shelf) {
  const EvictionOrder* const order = shelf.order_in_turn();
  if (order != nullptr) __builtin_prefetch(order->line_ahead());
  if (const NodeIndex i = order != nullptr ? order->peek(12) : shelf.upcoming(1)) {
    const auto* lines = reinterpret_cast<const char*>(&nodes_[i]);
    __builtin_prefetch(lines);
    __builtin_prefetch(lines + kCacheLine);
    if (components_.window) __builtin_prefetch(&(*components_.window)[i]);
    if (components_.state) __builtin_prefetch(&(*components_.state)[i]);
  }
  if (const NodeIndex i = order != nullptr ? order->peek(8) : shelf.upcoming(0))
    tree_.prefetch_links(nodes_[i]);
  if (order == nullptr) return;
  if (const NodeIndex i = order->peek(4)) tree_.prefetch_next_link(nodes_[i]);
}

Evicted Evictor::evict(const Goal& goal, bool whole_nodes, Released& out) {
  Evicted evicted;
  uses_.look_ahead(goal.request_pages);
  evict_leaves(goal, whole_nodes, out, evicted);
  if (components_.window) evict_component(Tier::device, ComponentKind::window, goal, out, evicted);
  if (components_.state) evict_component(Tier::device, ComponentKind::state, goal, out, evicted);
  return evicted;
}

// A snapshot is at the end of its node: trimming would lose it, so then nodes go whole. So does one
// that has something below it on the host and no copy of its own there.
void Evictor::evict_leaves(const Goal& goal, bool whole_nodes, Released& out, Evicted& evicted) {
  const auto take = [&](const Shelf::Turn& turn) {
    prefetch_victims(device_);
    const Node& node = nodes_[turn.node];
    const bool goes_whole = whole_nodes || components_.state ||
                            (node.num_children > 0 && !node.on_host && !save_to_host);
    if (goes_whole && node.num_pages > turn.limit) return false;
    const std::uint32_t keep = goes_whole ? 0 : pages_to_keep(turn, goal.pages - evicted.pages);
    if (shelves_.with_host() && leave_to_host(turn.node, keep, out, evicted)) return true;
    if (keep == 0) {
      drop_from_device(turn.node, out, evicted);
    } else {
      trim(turn.node, keep, out, evicted);
    }
    return true;
  };
  device_.give(
      demand_of(goal), [&] { return evicted.pages >= goal.pages; }, take);
}

// Where `missing` pages are wanted and a turn gives what it may.
std::uint32_t Evictor::pages_to_keep(const Shelf::Turn& turn, std::size_t missing) const {
  const std::uint32_t num_pages = nodes_[turn.node].num_pages;
  const std::size_t take =
      std::min({missing, turn.wanted, turn.limit, uses_.rank_pages(turn.node)});
  return num_pages <= take ? 0 : num_pages - static_cast<std::uint32_t>(take);
}

// Windows or snapshots of a tier: from any node, or the node with all it has on the device where
// nothing could match its end any more.
void Evictor::evict_component(Tier tier, ComponentKind kind, const Goal& goal, Released& out,
                              Evicted& evicted) {
  Shelf& shelf = *shelves_.shelf(tier, kind);
  const bool on_device = tier == Tier::device;
  const bool windows = kind == ComponentKind::window;
  const std::size_t& taken = on_device
                                 ? (windows ? evicted.window_pages : evicted.snapshots)
                                 : (windows ? evicted.host_window_pages : evicted.host_snapshots);
  const auto take = [&](const Shelf::Turn& turn) {
    if (on_device) prefetch_victims(shelf);
    if (windows && nodes_[turn.node].num_pages > turn.limit) return false;
    if (on_device && nodes_[turn.node].is_candidate())
      return leave_device_for(goal.by, turn.node, out, evicted);
    residency_.detach_component(tier, kind, turn.node, out, evicted);
    drop_if_bare(turn.node, out, evicted);
    return true;
  };
  const std::size_t wanted = windows ? goal.window_pages : goal.snapshots;
  shelf.give(
      windows ? demand_of(goal) : Shelf::Demand{goal.by, goal.snapshots},
      [&] { return taken >= wanted; }, take);
}

Evicted Evictor::evict_host(const Goal& goal, Released& out) {
  Evicted evicted;
  uses_.look_ahead(goal.request_pages);
  evict_mirrors(goal, out, evicted);
  evict_host_leaves(goal, out, evicted);
  if (components_.host_window)
    evict_component(Tier::host, ComponentKind::window, goal, out, evicted);
  if (components_.host_state) evict_component(Tier::host, ComponentKind::state, goal, out, evicted);
  return evicted;
}

void Evictor::evict_mirrors(const Goal& goal, Released& out, Evicted& evicted) {
  Shelf* const mirrors = shelves_.mirrors();
  if (mirrors == nullptr) return;
  const auto take = [&](const Shelf::Turn& turn) {
    if (nodes_[turn.node].num_pages > turn.limit) return false;
    residency_.detach_host(turn.node, out, evicted);
    drop_if_bare(turn.node, out, evicted);
    return true;
  };
  mirrors->give(
      demand_of(goal), [&] { return evicted.host_pages >= goal.pages; }, take);
}

void Evictor::evict_host_leaves(const Goal& goal, Released& out, Evicted& evicted) {
  Shelf& shelf = *shelves_.shelf(Tier::host, ComponentKind::full);
  const bool goes_whole = components_.host_state.has_value();
  const auto take = [&](const Shelf::Turn& turn) {
    prefetch_victims(shelf);
    if (goes_whole && nodes_[turn.node].num_pages > turn.limit) return false;
    const std::uint32_t keep =
        goes_whole ? 0 : pages_to_keep(turn, goal.pages - evicted.host_pages);
    if (keep == 0) {
      drop_leaf(turn.node, out, evicted);
    } else {
      trim(turn.node, keep, out, evicted);
    }
    return true;
  };
  shelf.give(
      demand_of(goal), [&] { return evicted.host_pages >= goal.pages; }, take);
}

// ---- Leaving the device ------------------------------------------------------------------------

// A node that may leave the device does so, to the host if it has a copy there or gets one: with
// its pages, of which its owner keeps as many as are its floor unless it asks itself.
bool Evictor::leave_device_for(OwnerId by, NodeIndex index, Released& out, Evicted& evicted) {
  const Node& node = nodes_[index];
  const std::size_t floor = device_.limits(node.owner).floor;
  if (node.owner != by && device_.of(node.owner).total < floor + node.num_pages) return false;
  if (!leave_to_host(index, 0, out, evicted)) drop_from_device(index, out, evicted);
  return true;
}

// The pages of a device leaf from `keep` on leave the device and stay on the host. False: they have
// no copy there and there is no way to get one.
bool Evictor::leave_to_host(NodeIndex index, std::uint32_t keep, Released& out, Evicted& evicted) {
  if (!nodes_[index].on_host && !save_to_host) return false;
  if (keep > 0) tree_.split(index, keep);
  if (nodes_[index].on_host || save_to_host(index)) {
    residency_.detach_device(index, out, evicted);
    drop_if_bare(index, out, evicted);
  } else {
    drop_from_device(index, out, evicted);
  }
  return true;
}

// It is not to stay anywhere, so neither is what hangs below it on the host.
void Evictor::drop_from_device(NodeIndex index, Released& out, Evicted& evicted) {
  if (nodes_[index].num_children > 0) drop_children(index, out, evicted);
  drop_leaf(index, out, evicted);
}

// ---- Leaving the tree --------------------------------------------------------------------------

// The leaf goes with all it has, and so do tombstones above that it leaves without children.
void Evictor::drop_leaf(NodeIndex leaf, Released& out, Evicted& evicted) {
  while (leaf != kNoNode) {
    const NodeIndex parent = drop_one(leaf, out, evicted);
    if (parent == kNoNode) return;
    shelves_.leave(parent);
    const bool goes_too = residency_.is_bare_leaf(parent);
    if (!goes_too) shelves_.enter(parent);
    leaf = goes_too ? parent : kNoNode;
  }
}

// Returns the parent, if it is not a root.
NodeIndex Evictor::drop_one(NodeIndex leaf, Released& out, Evicted& evicted) {
  shelves_.retire(leaf);
  residency_.release(leaf, out, evicted);
  uses_.remove(leaf, 0);
  retention_.remove(leaf);
  ++evicted.nodes;
  return tree_.remove_leaf(leaf);
}

void Evictor::remove(NodeIndex leaf, Released& out) {
  PANDO_CHECK(nodes_[leaf].is_free_leaf() && !shelves_.places_path(), "node {} is held, or no leaf",
              leaf);
  Evicted ignored;
  drop_leaf(leaf, out, ignored);
}

// A leaf that is on one tier, of which it keeps the first pages.
void Evictor::trim(NodeIndex leaf, std::uint32_t keep_pages, Released& out, Evicted& evicted) {
  shelves_.retire(leaf);
  shelves_.leave_components(leaf);
  residency_.release_tail(leaf, keep_pages, out, evicted);
  uses_.remove(leaf, keep_pages);
  tree_.trim(leaf, keep_pages);
  shelves_.admit(leaf);
  shelves_.place_components(leaf);
}

void Evictor::drop_children(NodeIndex index, Released& out, Evicted& evicted) {
  const std::vector<NodeIndex> below = tree_.below(index);
  for (std::size_t i = below.size(); i-- > 0;) drop_one(below[i], out, evicted);
}

void Evictor::drop_subtree(NodeIndex index, Released& out, Evicted& evicted) {
  drop_children(index, out, evicted);
  drop_leaf(index, out, evicted);
}

bool Evictor::release_private(NodeIndex node, Released& out, Evicted& evicted) {
  while (!nodes_[node].is_root()) {
    if (!retention_.is_unused(node) || nodes_[node].num_children > 0) return true;
    if (!nodes_[node].is_free_leaf()) return false;
    const NodeIndex parent = nodes_[node].parent;
    const NodeId parent_id = nodes_.id(parent);
    drop_leaf(node, out, evicted);
    if (nodes_.resolve(parent_id) == kNoNode) return true;
    node = parent;
  }
  return true;
}

// Whoever holds it, or something below, holds its parent too: so the way up stays.
void Evictor::cut_off(NodeIndex index, Released& out) {
  const NodeIndex parent = nodes_[index].parent;
  const NodeId parent_id = nodes_.id(parent);
  shelves_.leave(parent);
  tree_.cut(index);
  shelves_.enter(parent);

  std::vector<NodeIndex> cut = tree_.below(index);
  cut.insert(cut.begin(), index);
  for (const NodeIndex i : cut) {
    shelves_.retire(i);
    nodes_[i].cut_off = true;
    shelves_.admit(i);
  }
  Evicted ignored;
  for (std::size_t i = cut.size(); i-- > 0;) {
    if (nodes_[cut[i]].is_free_leaf()) drop_one(cut[i], out, ignored);
  }
  if (nodes_.resolve(parent_id) != kNoNode && !nodes_[parent].is_root())
    drop_if_bare(parent, out, ignored);
}

void Evictor::thin_snapshots(NodeIndex end, Released& out) {
  const Component& state = *components_.state;
  std::vector<NodeIndex> above;  // with a snapshot, from the root down
  for (NodeIndex i = nodes_[end].parent; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (state.has(i)) above.push_back(i);
  }
  std::reverse(above.begin(), above.end());
  const auto is_held = [&](NodeIndex i) { return state[i].locks > 0; };
  const auto branches = [&](NodeIndex i) { return nodes_[i].num_children > 1; };
  Evicted ignored;
  const auto drop = [&](NodeIndex i) {
    residency_.detach_component(Tier::device, ComponentKind::state, i, out, ignored);
    return true;
  };

  std::uint32_t previous = 0;
  std::erase_if(above, [&](NodeIndex i) {
    const std::uint32_t at = nodes_[i].end_pages;
    if (at - previous < options_.snapshot_interval_pages && !is_held(i) && !branches(i))
      return drop(i);
    previous = at;
    return false;
  });
  std::size_t excess =
      above.size() + 1 - std::min(above.size() + 1, options_.max_snapshots_per_path);
  for (const bool also_branches : {false, true}) {
    std::erase_if(above, [&](NodeIndex i) {
      if (excess == 0 || is_held(i) || (branches(i) && !also_branches)) return false;
      --excess;
      return drop(i);
    });
  }
}

Status Evictor::check() const {
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node&) {
    if (residency_.is_bare_leaf(i)) status = broken("leaf {} is a tombstone that nobody holds", i);
  });
  return status;
}

}  // namespace pando
