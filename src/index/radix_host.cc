// SPDX-License-Identifier: Apache-2.0
// Nodes between tiers: getting a host copy, leaving the device for it, coming back, and leaving the
// host. What is on the device is the top of the tree, so a node leaves the device from below and
// comes back from above.
#include <algorithm>
#include <vector>

#include "base/append.h"
#include "base/check.h"
#include "base/page_hash.h"
#include "index/radix_index.h"

namespace pando {
namespace {

void store(std::span<const HostPageId> pages, std::uint32_t* to) {
  for (const HostPageId page : pages) *to++ = index_of(page);
}

constexpr StateSlot as_slot(HostPageId page) { return {.index = index_of(page), .pool = 1}; }

}  // namespace

static_assert(sizeof(HostPageId) == sizeof(std::uint32_t));

std::span<const PageId> RadixIndex::device_pages(const Node& node) const {
  return {reinterpret_cast<const PageId*>(node.pages), node.on_device() ? node.num_pages : 0};
}

std::span<const HostPageId> RadixIndex::host_pages(const Node& node) const {
  const auto* pages = reinterpret_cast<const HostPageId*>(node.segment->host.get());
  return {pages + node.offset_pages, node.num_pages};
}

std::span<const HostPageId> RadixIndex::host_window_pages(const Node& node) const {
  const auto* pages = reinterpret_cast<const HostPageId*>(node.segment->host.get());
  return {pages + node.segment->num_pages + node.offset_pages, node.num_pages};
}

Sizes RadixIndex::host_sizes(ComponentKind kind) const {
  const Shelf* const of = shelf(Medium::host, kind);
  if (of == nullptr) return {};
  const Shelf::Tally& tally = of->sum();
  return {tally.evictable, tally.total - tally.evictable, tally.total};
}

// ---- Holding -----------------------------------------------------------------------------------

void RadixIndex::lock_host(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    if (node.host_locks != 0) {
      ++node.host_locks;
      return;
    }
    retire(i);
    node.host_locks = 1;
    admit(i);
    if (has_host_window(i)) host_window_->lock(i, node);
    if (has_host_snapshot(i)) host_state_->lock(i, node);
  }
}

void RadixIndex::unlock_host(NodeIndex index, Released& out) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    PANDO_CHECK(node.host_locks > 0, "unlock_host of node {}, which nobody holds", i);
    if (node.host_locks != 1) {
      --node.host_locks;
      break;
    }
    retire(i);
    node.host_locks = 0;
    admit(i);
    if (has_host_window(i)) host_window_->unlock(i, node);
    if (has_host_snapshot(i)) host_state_->unlock(i, node);
    if (has_components()) place_components(i);
  }
  Evicted ignored;
  drop_if_bare(index, out, ignored);
}

void RadixIndex::drop_if_bare(NodeIndex index, Released& out, Evicted& evicted) {
  if (is_bare_leaf(index)) drop_leaf(index, out, evicted);
}

// ---- Coming ------------------------------------------------------------------------------------

void RadixIndex::attach_host(NodeIndex index, const HostSides& sides) {
  Node& node = nodes_[index];
  segments_.add_host(node.segment);
  std::uint32_t* const host = node.segment->host.get() + node.offset_pages;
  if (!sides.pages.empty()) {
    PANDO_CHECK(!node.on_host && sides.pages.size() == node.num_pages,
                "{} host pages for node {} of {} pages", sides.pages.size(), index, node.num_pages);
    store(sides.pages, host);
    retire(index);
    node.on_host = true;
    admit(index);
  }
  if (!sides.window_pages.empty() && !has_host_window(index)) {
    store(sides.window_pages, host + node.segment->num_pages);
    host_window_->add(index, node);
    if (node.host_locks > 0 || node.backing_up) host_window_->lock(index, node);
  }
  if (sides.snapshot && !has_host_snapshot(index)) {
    host_state_->add(index, node, as_slot(*sides.snapshot));
    if (node.host_locks > 0 || node.backing_up) host_state_->lock(index, node);
  }
  if (has_components()) place_components(index);
}

void RadixIndex::set_backing_up(NodeIndex index, bool yes) {
  Node& node = nodes_[index];
  retire(index);
  node.backing_up = yes;
  admit(index);
  const auto hold = [&](std::optional<Component>& component) {
    if (!component || !component->has(index)) return;
    if (yes) {
      component->lock(index, node);
    } else {
      component->unlock(index, node);
    }
  };
  hold(host_window_);
  hold(host_state_);
  if (has_components()) place_components(index);
}

NodeIndex RadixIndex::add_host_leaf(NodeIndex parent, const Token* tokens, const HostSides& sides) {
  const NodeIndex index =
      hang_leaf(parent, tokens, static_cast<std::uint32_t>(sides.pages.size()), nullptr);
  Node& node = nodes_[index];
  node.created = now_ + 1;  // the caller touches it
  node.last_access = nodes_[parent].last_access;
  node.priority = nodes_[parent].priority;
  if (hazard_) hazard_->add_known(index, names(node));
  attach_host(index, sides);
  return index;
}

void RadixIndex::attach_device(NodeIndex index, std::span<const std::uint32_t> pages,
                               bool with_window) {
  Node& node = nodes_[index];
  PANDO_CHECK(!node.on_device() && pages.size() == node.num_pages,
              "{} device pages for node {} of {} pages", pages.size(), index, node.num_pages);
  leave_order(node.parent);
  ++nodes_[node.parent].device_children;
  retire(index);
  node.pages = node.segment->pages() + node.offset_pages;
  std::copy(pages.begin(), pages.end(), node.pages);
  admit(index);
  if (window_ && with_window) attach_window(index);
}

void RadixIndex::attach_window(NodeIndex index) {
  window_->add(index, nodes_[index]);
  place_components(index);
}

// ---- Leaving the device ------------------------------------------------------------------------

void RadixIndex::detach_device(NodeIndex index, Released& out, Evicted& evicted) {
  Node& node = nodes_[index];
  PANDO_CHECK(node.on_host && node.device_children == 0,
              "node {} leaves the device with {} children there{}", index, node.device_children,
              node.on_host ? "" : ", without a host copy");
  retire(index);
  release_tail(index, 0, out, evicted);
  evicted.demoted_pages += node.num_pages;
  if (!node.backing_up) {
    const auto pages = host_pages(node);
    append(out.demoted_pages, pages);
  }
  if (window_ && window_->has(index)) drop_window(index, out);
  if (has_snapshot(index)) {
    drop_snapshot(index, out);
    ++evicted.snapshots;
  }
  node.pages = nullptr;
  admit(index);
  const NodeIndex parent = node.parent;
  leave_order(parent);
  --nodes_[parent].device_children;
  enter_order(parent);
  drop_if_bare(index, out, evicted);
}

// The pages of a device leaf from `keep` on leave the device and stay on the host. False: they have
// no copy there and get none; then a node was split off that holds exactly them if there is a
// way to save nodes at all.
bool RadixIndex::leave_to_host(NodeIndex index, std::uint32_t keep, Released& out,
                               Evicted& evicted) {
  if (!nodes_[index].on_host && !save_to_host) return false;
  if (keep > 0) split(index, keep);
  if (!nodes_[index].on_host && !save_to_host(index)) {
    drop_from_device(index, out, evicted);
  } else {
    detach_device(index, out, evicted);
  }
  return true;
}

// Whoever holds it, or something below, holds its parent too: so the way up stays.
void RadixIndex::cut_off(NodeIndex index, Released& out) {
  Node& node = nodes_[index];
  const NodeIndex parent = node.parent;
  const NodeId parent_id = nodes_.id(parent);
  leave_order(parent);
  children_.erase(node.hash, index);
  branches_.erase(index);
  --nodes_[parent].num_children;
  if (node.on_device()) --nodes_[parent].device_children;
  node.cut_top = true;
  ++num_cut_off_;
  if (nodes_[parent].is_root()) ++nodes_[parent].locks;
  enter_order(parent);

  std::vector<NodeIndex> below{index};  // parents before children
  for (std::size_t i = 0; i < below.size(); ++i)
    branches_.for_each_child(below[i], [&](NodeIndex child) { below.push_back(child); });
  Evicted ignored;
  for (const NodeIndex i : below) {
    retire(i);
    nodes_[i].cut_off = true;
    admit(i);
  }
  for (std::size_t i = below.size(); i-- > 0;) {
    if (nodes_[below[i]].is_free_leaf()) drop_one(below[i], out, ignored);
  }
  if (nodes_.resolve(parent_id) != kNoNode && !nodes_[parent].is_root())
    drop_if_bare(parent, out, ignored);
}

// ---- Leaving the host --------------------------------------------------------------------------

// The host pages of a node from `keep` on are on their way out, with their windows. The caller has
// retired the node.
void RadixIndex::release_host_tail(NodeIndex index, std::uint32_t keep, Released& out,
                                   Evicted& evicted) {
  const Node& node = nodes_[index];
  if (!node.on_host) return;
  const auto pages = host_pages(node).subspan(keep);
  append(out.host_pages, pages);
  evicted.host_pages += pages.size();
  if (on_removed) on_removed(Medium::host, node, keep, static_cast<std::uint32_t>(pages.size()));
  if (!has_host_window(index)) return;
  const auto windows = host_window_pages(node).subspan(keep);
  append(out.host_window_pages, windows);
  evicted.host_window_pages += windows.size();
  if (keep > 0) host_window_->trim(node, static_cast<std::uint32_t>(windows.size()));
}

// All that a retired node has on the host.
void RadixIndex::drop_host_side(NodeIndex index, Released& out, Evicted& evicted) {
  Node& node = nodes_[index];
  if (node.backing_up && has_host_window(index)) host_window_->unlock(index, node);
  if (node.backing_up && has_host_snapshot(index)) host_state_->unlock(index, node);
  release_host_tail(index, 0, out, evicted);
  if (has_host_window(index)) host_window_->drop(index, node);
  if (has_host_snapshot(index)) {
    out.host_snapshots.push_back(host_snapshot(index));
    host_state_->drop(index, node);
    ++evicted.host_snapshots;
  }
  node.on_host = false;
}

// The device has it, and keeps it.
void RadixIndex::drop_host_copy(NodeIndex index, Released& out, Evicted& evicted) {
  retire(index);
  drop_host_side(index, out, evicted);
  admit(index);
  drop_if_bare(index, out, evicted);
}

void RadixIndex::drop_children(NodeIndex index, Released& out, Evicted& evicted) {
  std::vector<NodeIndex> below;  // parents before children
  const auto add_children = [&](NodeIndex i) {
    branches_.for_each_child(i, [&](NodeIndex child) { below.push_back(child); });
  };
  add_children(index);
  for (std::size_t i = 0; i < below.size(); ++i) add_children(below[i]);
  for (std::size_t i = below.size(); i-- > 0;) drop_one(below[i], out, evicted);
}

void RadixIndex::drop_subtree(NodeIndex index, Released& out, Evicted& evicted) {
  drop_children(index, out, evicted);
  drop_leaf(index, out, evicted);
}

void RadixIndex::evict_host_window(const Goal& goal, Released& out, Evicted& evicted) {
  const auto take = [&](const Shelf::Turn& turn) {
    const Node& node = nodes_[turn.node];
    if (node.num_pages > turn.limit) return false;
    const auto pages = host_window_pages(node);
    append(out.host_window_pages, pages);
    evicted.host_window_pages += pages.size();
    host_window_->drop(turn.node, node);
    drop_if_bare(turn.node, out, evicted);
    return true;
  };
  host_window_->shelf().give(
      demand_of(goal), [&] { return evicted.host_window_pages >= goal.window_pages; }, take);
}

void RadixIndex::evict_host_snapshots(const Goal& goal, Released& out, Evicted& evicted) {
  const auto take = [&](const Shelf::Turn& turn) {
    out.host_snapshots.push_back(host_snapshot(turn.node));
    host_state_->drop(turn.node, nodes_[turn.node]);
    ++evicted.host_snapshots;
    drop_if_bare(turn.node, out, evicted);
    return true;
  };
  host_state_->shelf().give(
      {goal.by, goal.snapshots}, [&] { return evicted.host_snapshots >= goal.snapshots; }, take);
}

// ---- Hashes ------------------------------------------------------------------------------------

void RadixIndex::keep_hashes() {
  if (with_hashes_) return;
  with_hashes_ = true;
  std::vector<NodeIndex> todo = roots();
  while (!todo.empty()) {
    const NodeIndex i = todo.back();
    todo.pop_back();
    Node& node = nodes_[i];
    if (node.is_root()) {
      node.info->chain_start = chain_start(node.info->name);
    } else {
      segments_.add_hashes(node.segment);
      hash_page_chain(parent_hash(node), node.tokens, node.num_pages, page_size_, overlap_ != 0,
                      node.segment->hashes.get() + node.offset_pages);
    }
    branches_.for_each_child(i, [&](NodeIndex child) { todo.push_back(child); });
  }
}

}  // namespace pando
