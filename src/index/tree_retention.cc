// SPDX-License-Identifier: Apache-2.0
// Levels, pins, sessions and owners along the paths of the tree.
#include "index/tree_retention.h"

#include <algorithm>
#include <vector>

#include "index/broken.h"

namespace pando {

NodeRetention& TreeRetention::table() {
  if (table_) return *table_;
  table_ = std::make_unique<NodeRetention>();
  if (nodes_.end() > 1) table_->reach(nodes_.end() - 1);
  // Whoever has used them was no session.
  tree_.for_each_node([&](NodeIndex i, const Node&) { (*table_)[i].common = true; });
  return *table_;
}

// ---- Levels ------------------------------------------------------------------------------------

Level TreeRetention::level_of(NodeIndex i) const {
  const Level granted = table_->granted(i).value_or(0);
  return (*table_)[i].active > 0 ? std::max(granted, session_level_) : granted;
}

void TreeRetention::grant(NodeIndex end, const PageRange& range, Level level, Ticks until) {
  NodeRetention& grants = table();
  for (NodeIndex i = end; nodes_[i].end_pages > range.begin; i = nodes_[i].parent) {
    if (nodes_[i].begin_pages() >= range.end) continue;
    if (nodes_[i].end_pages > range.end) {  // the next one up is wholly before it
      tree_.split(i, range.end - nodes_[i].begin_pages());
      continue;
    }
    if (nodes_[i].begin_pages() < range.begin)
      tree_.split(i, range.begin - nodes_[i].begin_pages());
    grants.grant(i, level, until);
    shelves_.set_level(i, level_of(i));
  }
}

void TreeRetention::expire_grants(Ticks now) {
  while (const std::optional<NodeIndex> i = table_->next_expired(now)) {
    table_->expire(*i, now);
    if (nodes_[*i].live) shelves_.set_level(*i, level_of(*i));
  }
}

// ---- Pins --------------------------------------------------------------------------------------

// As locks: the first that has some already counts for all above.
template <typename Count, typename OnFirst>
void TreeRetention::count_up(NodeIndex from, Count count, OnFirst on_first) {
  for (NodeIndex i = from; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (count(i)++ != 0) return;
    on_first(i);
  }
}

template <typename Count, typename OnLast>
void TreeRetention::count_down(NodeIndex from, Count count, OnLast on_last) {
  for (NodeIndex i = from; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (--count(i) != 0) return;
    on_last(i);
  }
}

std::size_t TreeRetention::pages_to_pin(NodeIndex end, bool on_device) {
  table();
  NodeIndex i = end;
  while (!nodes_[i].is_root() && pins(i, on_device) == 0) i = nodes_[i].parent;
  return nodes_[end].end_pages - nodes_[i].end_pages;
}

void TreeRetention::count_pin(NodeIndex end, bool on_device) {
  table();
  count_up(
      end, [&](NodeIndex i) -> auto& { return pins(i, on_device); },
      [&](NodeIndex i) { pinned_pages_[on_device] += nodes_[i].num_pages; });
}

void TreeRetention::uncount_pin(NodeIndex end, bool on_device) {
  count_down(
      end, [&](NodeIndex i) -> auto& { return pins(i, on_device); },
      [&](NodeIndex i) { pinned_pages_[on_device] -= nodes_[i].num_pages; });
}

// ---- Sessions ----------------------------------------------------------------------------------

void TreeRetention::mark_common(NodeIndex end) {
  for (NodeIndex i = end; !nodes_[i].is_root() && !(*table_)[i].common; i = nodes_[i].parent)
    (*table_)[i].common = true;
}

EndIndex TreeRetention::add_end(NodeIndex node) {
  const EndIndex end = table().new_end();
  table_->link(end, node);
  count_up(
      node, [&](NodeIndex i) -> auto& { return (*table_)[i].sessions; }, [](NodeIndex) {});
  set_active(end, true);
  return end;
}

void TreeRetention::remove_end(EndIndex end) {
  const NodeIndex node = table_->end(end).node;
  if (node != kNoNode) {
    set_active(end, false);
    table_->unlink(end);
    count_down(
        node, [&](NodeIndex i) -> auto& { return (*table_)[i].sessions; }, [](NodeIndex) {});
  }
  table_->free_end(end);
}

void TreeRetention::set_active(EndIndex index, bool active) {
  NodeRetention::End& end = table_->end(index);
  if (end.node == kNoNode || end.active == active) return;
  end.active = active;
  const auto count = [&](NodeIndex i) -> auto& { return (*table_)[i].active; };
  const auto place = [&](NodeIndex i) { shelves_.set_level(i, level_of(i)); };
  if (active) {
    count_up(end.node, count, place);
  } else {
    count_down(end.node, count, place);
  }
}

// ---- Owners ------------------------------------------------------------------------------------

void TreeRetention::set_owner(std::string_view ns, OwnerId owner) {
  const NodeIndex root = tree_.find_root(ns);
  if (root == kNoNode) return;
  nodes_[root].owner = owner;
  for (const NodeIndex i : tree_.below(root)) shelves_.set_owner(i, owner);
}

// ---- Proving -----------------------------------------------------------------------------------

Status TreeRetention::check_counts(const Counts& counts) const {
  std::vector<Counts> below(nodes_.end());  // children that have any
  std::size_t pages = 0, device_pages = 0;
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    const NodeRetention::Record& record = (*table_)[i];
    below[node.parent].pins += record.pins > 0 ? 1 : 0;
    below[node.parent].device_pins += record.device_pins > 0 ? 1 : 0;
    pages += record.pins > 0 ? node.num_pages : 0;
    device_pages += record.device_pins > 0 ? node.num_pages : 0;
    if (record.common && !nodes_[node.parent].is_root() && !(*table_)[node.parent].common)
      status = broken("node {} was used by somebody who has not used its parent", i);
    if (node.level != level_of(i)) status = broken("node {} has an old level", i);
    if (record.device_pins > 0 && node.locks == 0)
      status = broken("node {} is pinned, and nobody holds it", i);
    if (record.pins > 0 && node.locks + node.host_locks == 0)
      status = broken("node {} is pinned, and nobody holds it anywhere", i);
  });
  Counts own;
  tree_.for_each_node([&](NodeIndex i, const Node&) {
    own.pins += (*table_)[i].pins - below[i].pins;
    own.device_pins += (*table_)[i].device_pins - below[i].device_pins;
  });
  if (!status) return status;
  if (pages != pinned_pages_[false] || device_pages != pinned_pages_[true] ||
      own.pins != counts.pins || own.device_pins != counts.device_pins)
    return broken("{} pins on {} pages, {} on {} of the device; counted {} on {} and {} on {}",
                  own.pins, pages, own.device_pins, device_pages, counts.pins, pinned_pages_[false],
                  counts.device_pins, pinned_pages_[true]);
  return {};
}

Status TreeRetention::check_ends() const {
  struct Ends {
    std::uint32_t open = 0, active = 0;
  };
  std::vector<Ends> below(nodes_.end());  // children that have any
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    below[node.parent].open += (*table_)[i].sessions > 0 ? 1 : 0;
    below[node.parent].active += (*table_)[i].active > 0 ? 1 : 0;
  });
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node&) {
    const NodeRetention::Record& record = (*table_)[i];
    Ends found = below[i];
    for (EndIndex end = record.ends; end != kNoEnd; end = table_->end(end).next) {
      ++found.open;
      found.active += table_->end(end).active ? 1 : 0;
      if (table_->end(end).node != i) status = broken("node {} has an end of another", i);
    }
    if (record.sessions != found.open || record.active != found.active)
      status = broken("node {} counts other sessions than end at or below it", i);
  });
  return status;
}

Status TreeRetention::check(const Counts& counts) const {
  if (!table_) return {};
  if (Status s = check_counts(counts); !s) return s;
  return check_ends();
}

}  // namespace pando
