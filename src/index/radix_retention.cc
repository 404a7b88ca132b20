// SPDX-License-Identifier: Apache-2.0
// What the tree keeps longer than its policy would: levels that ranges have for a time, pins,
// sessions, and whose room a namespace takes.
#include <algorithm>

#include "base/check.h"
#include "index/radix_index.h"

namespace pando {

NodeRetention& RadixIndex::retention() {
  if (retention_) return *retention_;
  retention_ = std::make_unique<NodeRetention>();
  if (nodes_.end() > 1) retention_->reach(nodes_.end() - 1);
  // Whoever has used them was no session.
  for_each_node([&](NodeIndex i, const Node&) { (*retention_)[i].common = true; });
  return *retention_;
}

// ---- Levels ------------------------------------------------------------------------------------

Level RadixIndex::level_of(NodeIndex i) const {
  const Level granted = retention_->granted(i).value_or(0);
  return (*retention_)[i].active > 0 ? std::max(granted, session_level_) : granted;
}

void RadixIndex::relevel(NodeIndex i) {
  Node& node = nodes_[i];
  const Level level = level_of(i);
  if (level == node.level) return;
  leave_order(i);
  leave_components(i);
  node.level = level;
  enter_order(i);
  if (has_components()) place_components(i);
}

void RadixIndex::leave_components(NodeIndex i) {
  for (auto* component : {&window_, &state_, &host_window_, &host_state_}) {
    if (*component) (*component)->leave(i, nodes_[i]);
  }
}

void RadixIndex::grant(NodeIndex end, const PageRange& range, Level level, Ticks until) {
  NodeRetention& table = retention();
  for (NodeIndex i = end; nodes_[i].end_pages > range.begin; i = nodes_[i].parent) {
    if (nodes_[i].begin_pages() >= range.end) continue;
    if (nodes_[i].end_pages > range.end) {  // the next one up is wholly before it
      split(i, range.end - nodes_[i].begin_pages());
      continue;
    }
    if (nodes_[i].begin_pages() < range.begin) split(i, range.begin - nodes_[i].begin_pages());
    table.grant(i, level, until);
    relevel(i);
  }
}

void RadixIndex::expire_grants(Ticks now) {
  while (const std::optional<NodeIndex> i = retention_->next_expired(now)) {
    retention_->expire(*i, now);
    if (nodes_[*i].live) relevel(*i);
  }
}

// ---- Pins --------------------------------------------------------------------------------------

// As locks: the first that has some already counts for all above.
template <typename Count, typename OnFirst>
void RadixIndex::count_up(NodeIndex from, Count count, OnFirst on_first) {
  for (NodeIndex i = from; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (count(i)++ != 0) return;
    on_first(i);
  }
}

template <typename Count, typename OnLast>
void RadixIndex::count_down(NodeIndex from, Count count, OnLast on_last) {
  for (NodeIndex i = from; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (--count(i) != 0) return;
    on_last(i);
  }
}

std::size_t RadixIndex::pages_to_pin(NodeIndex end, bool on_device) {
  const NodeRetention& table = retention();
  const auto is_counted = [&](NodeIndex i) {
    return (on_device ? table[i].device_pins : table[i].pins) > 0;
  };
  NodeIndex i = end;
  while (!nodes_[i].is_root() && !is_counted(i)) i = nodes_[i].parent;
  return nodes_[end].end_pages - (nodes_[i].is_root() ? 0 : nodes_[i].end_pages);
}

void RadixIndex::count_pin(NodeIndex end, bool on_device) {
  NodeRetention& table = retention();
  std::size_t& pages = on_device ? device_pinned_pages_ : pinned_pages_;
  count_up(
      end, [&](NodeIndex i) -> auto& { return on_device ? table[i].device_pins : table[i].pins; },
      [&](NodeIndex i) { pages += nodes_[i].num_pages; });
}

void RadixIndex::uncount_pin(NodeIndex end, bool on_device) {
  NodeRetention& table = retention();
  std::size_t& pages = on_device ? device_pinned_pages_ : pinned_pages_;
  count_down(
      end, [&](NodeIndex i) -> auto& { return on_device ? table[i].device_pins : table[i].pins; },
      [&](NodeIndex i) { pages -= nodes_[i].num_pages; });
}

bool RadixIndex::is_on_host(NodeIndex end) const {
  if (host_state_ && !has_host_snapshot(end)) return false;
  const std::size_t window_from =
      nodes_[end].end_pages - std::min<std::size_t>(nodes_[end].end_pages, window_pages_);
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (!nodes_[i].on_host) return false;
    if (window_ && nodes_[i].end_pages > window_from && !has_host_window(i)) return false;
  }
  return true;
}

// ---- Sessions ----------------------------------------------------------------------------------

void RadixIndex::mark_common(NodeIndex end) {
  for (NodeIndex i = end; !nodes_[i].is_root() && !(*retention_)[i].common; i = nodes_[i].parent)
    (*retention_)[i].common = true;
}

EndIndex RadixIndex::add_end(NodeIndex node) {
  const EndIndex end = retention().new_end();
  attach_end(end, node);
  return end;
}

void RadixIndex::attach_end(EndIndex end, NodeIndex node) {
  retention_->link(end, node);
  count_up(
      node, [&](NodeIndex i) -> auto& { return (*retention_)[i].sessions; }, [](NodeIndex) {});
  set_active(end, true);
}

void RadixIndex::detach_end(EndIndex end) {
  const NodeIndex node = retention_->end(end).node;
  if (node == kNoNode) return;
  set_active(end, false);
  retention_->unlink(end);
  count_down(
      node, [&](NodeIndex i) -> auto& { return (*retention_)[i].sessions; }, [](NodeIndex) {});
}

void RadixIndex::remove_end(EndIndex end) {
  detach_end(end);
  retention_->free_end(end);
}

void RadixIndex::set_active(EndIndex index, bool active) {
  NodeRetention::End& end = retention_->end(index);
  if (end.node == kNoNode || end.active == active) return;
  end.active = active;
  const auto count = [&](NodeIndex i) -> auto& { return (*retention_)[i].active; };
  const auto place = [&](NodeIndex i) { relevel(i); };
  if (active) {
    count_up(end.node, count, place);
  } else {
    count_down(end.node, count, place);
  }
}

bool RadixIndex::release_private(NodeIndex node, Released& out, Evicted& evicted) {
  while (!nodes_[node].is_root()) {
    const NodeRetention::Side& side = (*retention_)[node];
    if (side.sessions > 0 || side.common || side.pins > 0 || nodes_[node].num_children > 0)
      return true;
    if (!nodes_[node].is_free_leaf()) return false;
    const NodeIndex parent = nodes_[node].parent;
    const NodeId parent_id = nodes_.id(parent);
    drop_leaf(node, out, evicted);
    if (nodes_.resolve(parent_id) == kNoNode) return true;
    node = parent;
  }
  return true;
}

bool RadixIndex::is_on_path(NodeIndex node, NodeIndex end) const {
  while (nodes_[end].end_pages > nodes_[node].end_pages) end = nodes_[end].parent;
  return node == end;
}

// ---- Owners ------------------------------------------------------------------------------------

void RadixIndex::set_limits(Medium tier, ComponentKind kind, OwnerId owner,
                            const Shelf::Limits& limits) {
  if (Shelf* const of = shelf(tier, kind)) of->set_limits(owner, limits);
  if (mirrors_first_ && tier == Medium::host && kind == ComponentKind::full)
    mirror_shelf_.set_limits(owner, limits);
}

void RadixIndex::set_owner(std::string_view ns, OwnerId owner) {
  const NodeIndex root = find_root(ns, hash_namespace(ns));
  if (root == kNoNode) return;
  nodes_[root].owner = owner;
  std::vector<NodeIndex> todo;
  const auto add_children = [&](NodeIndex i) {
    branches_.for_each_child(i, [&](NodeIndex child) { todo.push_back(child); });
  };
  add_children(root);
  for (std::size_t at = 0; at < todo.size(); ++at) {
    const NodeIndex i = todo[at];
    retire(i);
    leave_components(i);
    for (auto* component : {&window_, &state_, &host_window_, &host_state_}) {
      if (*component) (*component)->move(i, nodes_[i], owner);
    }
    nodes_[i].owner = owner;
    admit(i);
    if (has_components()) place_components(i);
    add_children(i);
  }
}

// ---- Proving -----------------------------------------------------------------------------------

Status RadixIndex::check_retention(const Holds& holds) const {
  struct Count {
    std::uint32_t pins = 0, device_pins = 0, sessions = 0, active = 0;
  };
  std::vector<Count> below(nodes_.end());  // children that have any
  Count own;
  std::size_t pages = 0, device_pages = 0;
  Status status;
  const auto broken = [&](NodeIndex i, const char* what) {
    status = make_error(ErrorCode::corrupt, "radix index: node {} {}", i, what);
  };
  for_each_node([&](NodeIndex i, const Node& node) {
    const NodeRetention::Side& side = (*retention_)[i];
    Count& parent = below[node.parent];
    parent.pins += side.pins > 0 ? 1 : 0;
    parent.device_pins += side.device_pins > 0 ? 1 : 0;
    parent.sessions += side.sessions > 0 ? 1 : 0;
    parent.active += side.active > 0 ? 1 : 0;
    pages += side.pins > 0 ? node.num_pages : 0;
    device_pages += side.device_pins > 0 ? node.num_pages : 0;
    if (side.common && !nodes_[node.parent].is_root() && !(*retention_)[node.parent].common)
      broken(i, "was used by somebody who has not used its parent");
    if (node.level != level_of(i)) broken(i, "has an old level");
    if (side.device_pins > 0 && node.locks == 0) broken(i, "is pinned, and nobody holds it");
    if (side.pins > 0 && node.locks + node.host_locks == 0)
      broken(i, "is pinned, and nobody holds it anywhere");
  });
  for_each_node([&](NodeIndex i, const Node&) {
    const NodeRetention::Side& side = (*retention_)[i];
    Count ends;
    for (EndIndex end = side.ends; end != kNoEnd; end = retention_->end(end).next) {
      ++ends.sessions;
      ends.active += retention_->end(end).active ? 1 : 0;
      if (retention_->end(end).node != i) broken(i, "has an end of another");
    }
    if (side.sessions != below[i].sessions + ends.sessions ||
        side.active != below[i].active + ends.active)
      broken(i, "counts other sessions than end at or below it");
    own.pins += side.pins - below[i].pins;
    own.device_pins += side.device_pins - below[i].device_pins;
  });
  if (!status) return status;
  if (pages != pinned_pages_ || device_pages != device_pinned_pages_ || own.pins != holds.pins ||
      own.device_pins != holds.device_pins)
    return make_error(ErrorCode::corrupt,
                      "radix index: {} pins on {} pages, {} on {} of the device; counted {} on {} "
                      "and {} on {}",
                      own.pins, pages, own.device_pins, device_pages, holds.pins, pinned_pages_,
                      holds.device_pins, device_pinned_pages_);
  return status;
}

}  // namespace pando
