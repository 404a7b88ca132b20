// SPDX-License-Identifier: Apache-2.0
// Who holds what, who goes first, and the ways out of the radix tree: a leaf with all it has, the
// tail of a leaf, a window, a snapshot.
#include <algorithm>

#include "base/append.h"
#include "base/check.h"
#include "index/radix_index.h"

namespace pando {

void RadixIndex::Released::clear() {
  pages.clear();
  window_pages.clear();
  snapshots.clear();
  host_pages.clear();
  host_window_pages.clear();
  host_snapshots.clear();
  demoted_pages.clear();
  demoted_window_pages.clear();
  demoted_snapshots.clear();
}

// ---- Locks -------------------------------------------------------------------------------------

void RadixIndex::lock(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    if (node.locks++ != 0) return;  // everything above is locked already
    if (node.on_host || node.host_locks == 0) device_shelf_.hold(node.owner, node.num_pages);
    leave_order(i);
  }
}

void RadixIndex::unlock(NodeIndex index, Released& out) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    PANDO_CHECK(node.locks > 0, "unlock of node {}, which is not locked", i);
    if (node.locks != 1) {
      --node.locks;
      break;
    }
    retire(i);  // a failed load may have taken it off the device meanwhile
    node.locks = 0;
    admit(i);
  }
  Evicted ignored;
  if (is_bare_leaf(index)) drop_leaf(index, out, ignored);
}

std::uint32_t RadixIndex::lock_window(NodeIndex end) {
  const std::uint32_t end_pages = nodes_[end].end_pages;
  const std::size_t wanted = end_pages - std::min<std::size_t>(end_pages, window_pages_);
  std::uint32_t from = end_pages;
  for (NodeIndex i = end; from > wanted && window_->has(i); i = nodes_[i].parent) {
    if (nodes_[i].begin_pages() < wanted)
      split(i, static_cast<std::uint32_t>(wanted) - nodes_[i].begin_pages());
    window_->lock(i, nodes_[i]);
    from = nodes_[i].begin_pages();
  }
  return from;
}

// A node lies wholly on one side of where a hold begins: that is where a node began, and splits
// only add such places.
void RadixIndex::lock_window(NodeIndex end, std::uint32_t from_page) {
  for (NodeIndex i = end; nodes_[i].end_pages > from_page; i = nodes_[i].parent)
    window_->lock(i, nodes_[i]);
}

bool RadixIndex::has_window(NodeIndex end, std::uint32_t from_page) const {
  NodeIndex i = end;
  while (nodes_[i].end_pages > from_page && has_window(i)) i = nodes_[i].parent;
  return nodes_[i].end_pages <= from_page;
}

void RadixIndex::unlock_window(NodeIndex end, std::uint32_t from_page) {
  for (NodeIndex i = end; nodes_[i].end_pages > from_page; i = nodes_[i].parent) {
    if (window_->unlock(i, nodes_[i])) place_components(i);
  }
}

void RadixIndex::unlock_state(NodeIndex node) {
  if (state_->unlock(node, nodes_[node])) place_components(node);
}

// ---- Order -------------------------------------------------------------------------------------

NodeStats RadixIndex::stats(const Node& node) const {
  return {.last_access = node.last_access,
          .created = node.created,
          .hits = node.hits,
          .priority = node.priority,
          .num_tokens = static_cast<std::uint32_t>(node.num_pages * page_size_)};
}

void RadixIndex::enter_order(NodeIndex index) {
  Node& node = nodes_[index];
  const bool leaves_device = node.is_candidate();
  const bool leaves_host = host_ && node.is_host_candidate();
  if (!leaves_device && !leaves_host) return;
  node.order_key = key_of(index);
  node.in_order = leaves_device;
  node.in_host_order = leaves_host;
  node.in_mirrors = mirrors_first_ && node.is_mirror();
  if (node.in_order) device_shelf_.insert(index, node, node.order_key);
  if (node.in_host_order) host_shelf_.insert(index, node, node.order_key);
  if (node.in_mirrors) mirror_shelf_.insert(index, node, node.order_key);
}

void RadixIndex::leave_orders(NodeIndex index) {
  Node& node = nodes_[index];
  if (node.in_order) device_shelf_.erase(index, node, node.order_key);
  if (node.in_host_order) host_shelf_.erase(index, node, node.order_key);
  if (node.in_mirrors) mirror_shelf_.erase(index, node, node.order_key);
  node.in_order = node.in_host_order = node.in_mirrors = false;
}

void RadixIndex::retire(NodeIndex index) {
  leave_order(index);
  const Node& node = nodes_[index];
  if (node.on_device())
    device_shelf_.remove(node.owner, node.num_pages, node.is_device_evictable());
  if (!node.on_host) return;
  host_shelf_.remove(node.owner, node.num_pages, node.is_host_evictable());
  if (mirrors_first_) mirror_shelf_.remove(node.owner, node.num_pages, false);
}

void RadixIndex::admit(NodeIndex index) {
  const Node& node = nodes_[index];
  if (node.on_device()) device_shelf_.add(node.owner, node.num_pages, node.is_device_evictable());
  if (node.on_host) {
    host_shelf_.add(node.owner, node.num_pages, node.is_host_evictable());
    if (mirrors_first_) mirror_shelf_.add(node.owner, node.num_pages, false);
  }
  enter_order(index);
}

void RadixIndex::place_components(NodeIndex index) {
  const Node& node = nodes_[index];
  const EvictionKey key = key_of(index);
  if (window_) window_->place(index, node, key);
  if (state_) state_->place(index, node, key);
  if (host_window_) host_window_->place(index, node, key);
  if (host_state_) host_state_->place(index, node, key);
}

void RadixIndex::place_path(NodeIndex end) {
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (host_ && i != end) enter_order(i);
    if (has_components()) place_components(i);
  }
}

bool RadixIndex::is_bare_leaf(NodeIndex index) const {
  if (!nodes_[index].is_free_leaf()) return false;
  if (nodes_[index].cut_off) return true;
  if (!has_components()) return false;
  return !window_in_reach(index, Reach::host) || (state_ && !snapshot_in_reach(index, Reach::host));
}

// ---- Evicting ----------------------------------------------------------------------------------

// A victim is cold by definition: half a dozen cache lines that have not been touched for long. The
// order tells who is next, so they are fetched while earlier victims leave, across calls: first the
// node, then what it points at. (EvictOne at a million leaves: 590 ns without, 330 ns with.)
// Part of its callers by force: gcc drops calls of functions that do nothing but prefetch.
[[gnu::always_inline]] inline void RadixIndex::prefetch_victims(const Shelf& shelf) {
  const EvictionOrder* const order = shelf.order_in_turn();
  if (order != nullptr) __builtin_prefetch(order->line_ahead());
  if (const NodeIndex i = order != nullptr ? order->peek(12) : shelf.upcoming(1)) {
    const auto* lines = reinterpret_cast<const char*>(&nodes_[i]);
    __builtin_prefetch(lines);
    __builtin_prefetch(lines + kCacheLine);
    if (window_) __builtin_prefetch(&(*window_)[i]);
    if (state_) __builtin_prefetch(&(*state_)[i]);
  }
  if (const NodeIndex i = order != nullptr ? order->peek(8) : shelf.upcoming(0)) {
    const Node& node = nodes_[i];
    __builtin_prefetch(node.segment);
    __builtin_prefetch(node.pages);
    __builtin_prefetch(&nodes_[node.parent]);
    __builtin_prefetch(children_.line_of(node.hash));
    __builtin_prefetch(branches_.line_of(node));
  }
  if (order == nullptr) return;
  if (const NodeIndex i = order->peek(4)) __builtin_prefetch(branches_.next_line_of(nodes_[i]));
}

RadixIndex::Evicted RadixIndex::evict(const Goal& goal, bool whole_nodes, Released& out) {
  Evicted evicted;
  if (hazard_) hazard_->look_ahead(goal.request_pages);
  evict_leaves(goal, whole_nodes, out, evicted);
  if (window_) evict_window(goal, out, evicted);
  if (state_) evict_snapshots(goal, out, evicted);
  return evicted;
}

// A snapshot is at the end of its node: trimming would lose it, so then nodes go whole. So does one
// that has something below it on the host and no copy of its own there.
void RadixIndex::evict_leaves(const Goal& goal, bool whole_nodes, Released& out, Evicted& evicted) {
  const auto take = [&](const Shelf::Turn& turn) {
    prefetch_victims(device_shelf_);
    const Node& node = nodes_[turn.node];
    const bool goes_whole =
        whole_nodes || state_ || (node.num_children > 0 && !node.on_host && !save_to_host);
    if (goes_whole && node.num_pages > turn.limit) return false;
    const std::uint32_t keep = goes_whole ? 0 : pages_to_keep(turn, goal.pages - evicted.pages);
    if (host_ && leave_to_host(turn.node, keep, out, evicted)) return true;
    if (keep == 0) {
      drop_from_device(turn.node, out, evicted);
    } else {
      trim(turn.node, keep, out, evicted);
    }
    return true;
  };
  device_shelf_.give(
      demand_of(goal), [&] { return evicted.pages >= goal.pages; }, take);
}

// Where `missing` pages are wanted and a turn gives what it may.
std::uint32_t RadixIndex::pages_to_keep(const Shelf::Turn& turn, std::size_t missing) const {
  const std::uint32_t num_pages = nodes_[turn.node].num_pages;
  const std::size_t take = std::min({missing, turn.wanted, turn.limit, rank_pages(turn.node)});
  return num_pages <= take ? 0 : num_pages - static_cast<std::uint32_t>(take);
}

// The window goes, or the node with all it has where nothing could match its end any more.
void RadixIndex::evict_window(const Goal& goal, Released& out, Evicted& evicted) {
  const auto take = [&](const Shelf::Turn& turn) {
    prefetch_victims(window_->shelf());
    const Node& node = nodes_[turn.node];
    if (node.num_pages > turn.limit) return false;
    if (node.is_candidate()) return leave_device_for(goal.by, turn.node, out, evicted);
    for (std::uint32_t i = 0; i < node.num_pages; ++i)
      out.window_pages.push_back(PageId{node.pages[i]});
    evicted.window_pages += node.num_pages;
    drop_window(turn.node, out);
    return true;
  };
  window_->shelf().give(
      demand_of(goal), [&] { return evicted.window_pages >= goal.window_pages; }, take);
}

void RadixIndex::evict_snapshots(const Goal& goal, Released& out, Evicted& evicted) {
  const auto take = [&](const Shelf::Turn& turn) {
    if (nodes_[turn.node].is_candidate()) return leave_device_for(goal.by, turn.node, out, evicted);
    drop_snapshot(turn.node, out);
    ++evicted.snapshots;
    return true;
  };
  state_->shelf().give(
      {goal.by, goal.snapshots}, [&] { return evicted.snapshots >= goal.snapshots; }, take);
}

// With its pages, of which its owner keeps as many as are its floor unless it asks itself.
bool RadixIndex::leave_device_for(OwnerId by, NodeIndex index, Released& out, Evicted& evicted) {
  const Node& node = nodes_[index];
  const std::size_t floor = device_shelf_.limits(node.owner).floor;
  if (node.owner != by && device_shelf_.of(node.owner).total < floor + node.num_pages) return false;
  leave_device(index, out, evicted);
  return true;
}

RadixIndex::Evicted RadixIndex::evict_host(const Goal& goal, Released& out) {
  Evicted evicted;
  if (hazard_) hazard_->look_ahead(goal.request_pages);
  const auto drop_mirror = [&](const Shelf::Turn& turn) {
    if (nodes_[turn.node].num_pages > turn.limit) return false;
    drop_host_copy(turn.node, out, evicted);
    return true;
  };
  const auto take = [&](const Shelf::Turn& turn) {
    prefetch_victims(host_shelf_);
    if (host_state_ && nodes_[turn.node].num_pages > turn.limit) return false;
    const std::uint32_t keep =
        host_state_ ? 0 : pages_to_keep(turn, goal.pages - evicted.host_pages);
    if (keep == 0) {
      drop_leaf(turn.node, out, evicted);
    } else {
      trim(turn.node, keep, out, evicted);
    }
    return true;
  };
  const auto done = [&] { return evicted.host_pages >= goal.pages; };
  if (mirrors_first_) mirror_shelf_.give(demand_of(goal), done, drop_mirror);
  host_shelf_.give(demand_of(goal), done, take);
  if (host_window_) evict_host_window(goal, out, evicted);
  if (host_state_) evict_host_snapshots(goal, out, evicted);
  return evicted;
}

void RadixIndex::drop_snapshot(NodeIndex index, Released& out) {
  out.snapshots.push_back(snapshot(index));
  state_->drop(index, nodes_[index]);
  if (has_host_snapshot(index) && !nodes_[index].backing_up)
    out.demoted_snapshots.push_back(host_snapshot(index));
}

void RadixIndex::drop_window(NodeIndex index, Released& out) {
  window_->drop(index, nodes_[index]);
  if (!has_host_window(index) || nodes_[index].backing_up) return;
  const auto pages = host_window_pages(nodes_[index]);
  append(out.demoted_window_pages, pages);
}

// The device pages of a node from `keep` on are on their way out, with the window side they have.
// The caller has retired the node.
void RadixIndex::release_tail(NodeIndex index, std::uint32_t keep, Released& out,
                              Evicted& evicted) {
  const Node& node = nodes_[index];
  if (!node.on_device()) return;
  const std::uint32_t gone = node.num_pages - keep;
  const std::uint32_t end = numbered_ ? node.num_pages : keep;
  for (std::uint32_t i = keep; i < end; ++i) out.pages.push_back(PageId{node.pages[i]});
  if (on_removed) on_removed(Medium::device, node, keep, gone);
  evicted.pages += gone;
  if (!window_ || !window_->has(index)) return;
  evicted.window_pages += gone;
  if (keep > 0) window_->trim(node, gone);
}

// A node that may leave the device does so, to the host if it has a copy there or gets one.
void RadixIndex::leave_device(NodeIndex index, Released& out, Evicted& evicted) {
  if (!host_ || !leave_to_host(index, 0, out, evicted)) drop_from_device(index, out, evicted);
}

// It is not to stay anywhere, so neither is what hangs below it on the host.
void RadixIndex::drop_from_device(NodeIndex index, Released& out, Evicted& evicted) {
  if (nodes_[index].num_children > 0) drop_children(index, out, evicted);
  drop_leaf(index, out, evicted);
}

// The leaf goes with all it has, and so do tombstones above that it leaves without children.
void RadixIndex::drop_leaf(NodeIndex leaf, Released& out, Evicted& evicted) {
  while (leaf != kNoNode) {
    const NodeIndex parent = drop_one(leaf, out, evicted);
    if (parent == kNoNode) return;
    leave_order(parent);
    const bool goes_too = is_bare_leaf(parent);
    if (!goes_too) enter_order(parent);
    leaf = goes_too ? parent : kNoNode;
  }
}

// Returns the parent, if it is not a root.
NodeIndex RadixIndex::drop_one(NodeIndex leaf, Released& out, Evicted& evicted) {
  retire(leaf);
  release_tail(leaf, 0, out, evicted);
  if (window_ && window_->has(leaf)) drop_window(leaf, out);
  if (has_snapshot(leaf)) {
    drop_snapshot(leaf, out);
    ++evicted.snapshots;
  }
  if (nodes_[leaf].on_host) drop_host_side(leaf, out, evicted);
  ++evicted.nodes;
  return remove_leaf(leaf);
}

// Returns the parent, if it is not a root.
NodeIndex RadixIndex::remove_leaf(NodeIndex index) {
  Node& node = nodes_[index];
  const NodeIndex parent = node.parent;
  if (hazard_) hazard_->remove(index, node, 0, names(node));
  if (retention_) retention_->remove(index, parent, nodes_[parent].is_root());
  if (node.cut_top) {
    --num_cut_off_;
    if (nodes_[parent].is_root()) --nodes_[parent].locks;
  } else {
    children_.erase(node.hash, index);
    branches_.erase(index);
    --nodes_[parent].num_children;
    if (node.on_device()) --nodes_[parent].device_children;
  }
  release_slice(index);
  nodes_.free(index);
  if (!nodes_[parent].is_root()) return parent;
  drop_root_if_empty(parent);
  return kNoNode;
}

// What the node, on its way out, has of its segment, and nobody behind it.
void RadixIndex::release_slice(NodeIndex index) {
  const Node& node = nodes_[index];
  Segment* segment = node.segment;
  segment->live_pages -= node.num_pages;
  if (segment->refs > 1) {  // shared, then the parent holds what is before
    const bool mostly_dead = segment->live_pages * 2 < segment->num_pages;
    segments_.release(segment);
    if (mostly_dead) shrink_segment(node.parent);
  } else {
    segments_.release(segment);
  }
}

void RadixIndex::remove(NodeIndex leaf, Released& out) {
  PANDO_CHECK(nodes_[leaf].is_free_leaf() && !places_path(), "node {} is held, or no leaf", leaf);
  Evicted ignored;
  drop_leaf(leaf, out, ignored);
}

// A leaf that is on one tier, of which it keeps the first pages.
void RadixIndex::trim(NodeIndex index, std::uint32_t keep_pages, Released& out, Evicted& evicted) {
  Node& node = nodes_[index];
  Segment* segment = node.segment;
  retire(index);
  if (window_) window_->leave(index, node);
  if (host_window_) host_window_->leave(index, node);
  release_tail(index, keep_pages, out, evicted);
  release_host_tail(index, keep_pages, out, evicted);
  if (hazard_) hazard_->remove(index, node, keep_pages, names(node));
  segment->live_pages -= node.num_pages - keep_pages;
  node.end_pages -= node.num_pages - keep_pages;
  node.num_pages = keep_pages;
  if (segment->live_pages * 2 < segment->num_pages) shrink_segment(index);
  nodes_.renew(index);  // a handle names the end of a node, and this end has moved
  admit(index);
  if (window_) place_components(index);
}

void RadixIndex::shrink_segment(NodeIndex last_holder) {
  Segment* old = nodes_[last_holder].segment;
  Segment* fresh = segments_.create(old->live_pages, old->hashes != nullptr);
  std::copy_n(old->tokens(), segments_.num_tokens(old->live_pages), fresh->tokens());
  if (numbered_) std::copy_n(old->pages(), old->live_pages, fresh->pages());
  if (hazard_) std::copy_n(segments_.names(old), old->live_pages, segments_.names(fresh));
  if (old->hashes) std::copy_n(old->hashes.get(), old->live_pages, fresh->hashes.get());
  if (old->host) {
    segments_.add_host(fresh);
    std::copy_n(old->host.get(), old->live_pages, fresh->host.get());
    if (window_)
      std::copy_n(old->host.get() + old->num_pages, old->live_pages,
                  fresh->host.get() + fresh->num_pages);
  }
  fresh->refs = 0;
  bool last = false;
  for (NodeIndex i = last_holder; !last; i = nodes_[i].parent) {
    Node& node = nodes_[i];
    last = node.offset_pages == 0;
    set_slice(node, fresh, node.offset_pages, node.num_pages, node.on_device());
    ++fresh->refs;
    segments_.release(old);
  }
}

void RadixIndex::drop_root_if_empty(NodeIndex root) {
  if (nodes_[root].num_children != 0 || nodes_[root].locks != 0) return;
  children_.erase(nodes_[root].hash, root);
  nodes_.free(root);
}

// ---- Thinning ----------------------------------------------------------------------------------

void RadixIndex::thin_snapshots(NodeIndex end, Released& out) {
  std::vector<NodeIndex> above;  // with a snapshot, from the root down
  for (NodeIndex i = nodes_[end].parent; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (state_->has(i)) above.push_back(i);
  }
  std::reverse(above.begin(), above.end());
  const auto is_held = [this](NodeIndex i) { return (*state_)[i].locks > 0; };
  const auto branches = [this](NodeIndex i) { return nodes_[i].num_children > 1; };

  std::uint32_t previous = 0;
  std::erase_if(above, [&](NodeIndex i) {
    const std::uint32_t at = nodes_[i].end_pages;
    if (at - previous < snapshot_interval_pages_ && !is_held(i) && !branches(i)) {
      drop_snapshot(i, out);
      return true;
    }
    previous = at;
    return false;
  });
  std::size_t excess = above.size() + 1 - std::min(above.size() + 1, max_snapshots_per_path_);
  for (const bool also_branches : {false, true}) {
    std::erase_if(above, [&](NodeIndex i) {
      if (excess == 0 || is_held(i) || (branches(i) && !also_branches)) return false;
      drop_snapshot(i, out);
      --excess;
      return true;
    });
  }
}

}  // namespace pando
