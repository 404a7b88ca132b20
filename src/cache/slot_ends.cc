// SPDX-License-Identifier: Apache-2.0
// The lists behind SlotEnds; see the header.
#include "cache/slot_ends.h"

#include <algorithm>

#include "base/check.h"

namespace pando {

void SlotEnds::add(Slot slot, NodeIndex node, SlotKind kind) {
  PANDO_CHECK(!is_known(slot), "slot {} ends in node {} already", slot, end_of(slot));
  reach(node);
  const bool was_empty = lists(node, kind).empty();
  Lists& own = lists(node, kind);
  slots_[slot] = {node, own.first_slot, 0, kind};
  if (own.first_slot != 0) slots_[own.first_slot - 1].previous = slot + 1;
  own.first_slot = slot + 1;
  if (was_empty) link(node, kind);
}

void SlotEnds::remove(Slot slot) {
  PANDO_CHECK(is_known(slot), "slot {} ends nowhere", slot);
  const Entry entry = slots_[slot];
  Lists& own = lists(entry.node, entry.kind);
  (entry.previous == 0 ? own.first_slot : slots_[entry.previous - 1].next) = entry.next;
  if (entry.next != 0) slots_[entry.next - 1].previous = entry.previous;
  slots_[slot] = {};
  if (own.empty()) unlink(entry.node, entry.kind);
}

// The child is the first of its kind below its parent, or one more.
void SlotEnds::link(NodeIndex child, SlotKind kind) {
  while (!index_.node(child).is_root()) {
    const NodeIndex parent = index_.node(child).parent;
    reach(parent);
    Lists& above = lists(parent, kind);
    const bool was_empty = above.empty();
    lists(child, kind).next = above.first_child;
    lists(child, kind).previous = kNoNode;
    if (above.first_child != kNoNode) lists(above.first_child, kind).previous = child;
    above.first_child = child;
    if (!was_empty) return;
    child = parent;
  }
}

void SlotEnds::unlink(NodeIndex child, SlotKind kind) {
  while (!index_.node(child).is_root()) {
    const NodeIndex parent = index_.node(child).parent;
    Lists& own = lists(child, kind);
    Lists& above = lists(parent, kind);
    (own.previous == kNoNode ? above.first_child : lists(own.previous, kind).next) = own.next;
    if (own.next != kNoNode) lists(own.next, kind).previous = own.previous;
    own.next = own.previous = kNoNode;
    if (!above.empty()) return;
    child = parent;
  }
}

void SlotEnds::replace(NodeIndex parent, NodeIndex old, NodeIndex fresh, SlotKind kind) {
  Lists& from = lists(old, kind);
  Lists& to = lists(fresh, kind);
  to.next = from.next;
  to.previous = from.previous;
  (to.previous == kNoNode ? lists(parent, kind).first_child : lists(to.previous, kind).next) =
      fresh;
  if (to.next != kNoNode) lists(to.next, kind).previous = fresh;
  from.next = from.previous = kNoNode;
}

bool SlotEnds::has(NodeIndex node, SlotKind kind) const { return !lists(node, kind).empty(); }

bool SlotEnds::has(NodeIndex node) const {
  return std::any_of(kSlotKinds.begin(), kSlotKinds.end(),
                     [&](SlotKind kind) { return has(node, kind); });
}

bool SlotEnds::is_end(NodeIndex node) const {
  return std::any_of(kSlotKinds.begin(), kSlotKinds.end(),
                     [&](SlotKind kind) { return lists(node, kind).first_slot != 0; });
}

SlotEnds::Slot SlotEnds::pick(NodeIndex node, SlotKind kind) const {
  PANDO_CHECK(has(node, kind), "no such slot ends at or below node {}", node);
  while (lists(node, kind).first_slot == 0) node = lists(node, kind).first_child;
  return lists(node, kind).first_slot - 1;
}

SlotEnds::Slot SlotEnds::pick_end(NodeIndex node) const {
  for (const SlotKind kind : kSlotKinds) {
    if (lists(node, kind).first_slot != 0) return lists(node, kind).first_slot - 1;
  }
  PANDO_CHECK(false, "no slot ends in node {}", node);
}

void SlotEnds::split(NodeIndex upper, NodeIndex lower) {
  reach(std::max(upper, lower));
  for (const SlotKind kind : kSlotKinds) {
    if (!has(lower, kind)) continue;
    replace(index_.node(upper).parent, lower, upper, kind);
    lists(upper, kind).first_child = lower;
  }
}

void SlotEnds::join(NodeIndex upper, NodeIndex lower) {
  for (const SlotKind kind : kSlotKinds) {
    if (!has(upper, kind)) continue;
    replace(index_.node(lower).parent, upper, lower, kind);
    lists(upper, kind) = {};
  }
}

// ---- Proving -----------------------------------------------------------------------------------

Status SlotEnds::check() const {
  // What must be there, from the slots alone.
  std::array<std::vector<char>, kSlotKinds.size()> reached;
  for (auto& nodes : reached) nodes.resize(nodes_.size());
  for (Slot slot = 0; slot < slots_.size(); ++slot) {
    if (!is_known(slot)) continue;
    const NodeIndex end = end_of(slot);
    if (end >= nodes_.size() || !index_.node(end).live || index_.node(end).is_root())
      return make_error(ErrorCode::corrupt, "slot {} ends in node {}, which is none", slot, end);
    auto& nodes = reached[static_cast<std::size_t>(kind(slot))];
    for (NodeIndex i = end; i != kNoNode && !nodes[i]; i = index_.node(i).parent) nodes[i] = 1;
  }
  std::size_t listed_slots = 0;
  std::size_t listed_children = 0;
  std::size_t children = 0;
  for (NodeIndex node = 1; node < nodes_.size(); ++node) {
    for (const SlotKind kind : kSlotKinds) {
      const auto& nodes = reached[static_cast<std::size_t>(kind)];
      if (has(node, kind) != (nodes[node] != 0))
        return make_error(ErrorCode::corrupt,
                          "node {} {} slots of kind {}, its lists say otherwise", node,
                          nodes[node] ? "has" : "has no", static_cast<int>(kind));
      children += nodes[node] && !index_.node(node).is_root() ? 1 : 0;
      Slot previous = 0;
      for (Slot s = lists(node, kind).first_slot; s != 0; s = slots_[s - 1].next) {
        const Entry& entry = slots_[s - 1];
        if (entry.node != node || entry.kind != kind || entry.previous != previous)
          return make_error(ErrorCode::corrupt, "slot {} is in a list of node {}, ends in {}",
                            s - 1, node, entry.node);
        previous = s;
        ++listed_slots;
      }
      NodeIndex before = kNoNode;
      for (NodeIndex c = lists(node, kind).first_child; c != kNoNode; c = lists(c, kind).next) {
        if (index_.node(c).parent != node || !nodes[c] || lists(c, kind).previous != before)
          return make_error(ErrorCode::corrupt, "node {} is wrongly listed below node {}", c, node);
        before = c;
        ++listed_children;
      }
    }
  }
  const auto known = static_cast<std::size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Entry& e) { return e.node != kNoNode; }));
  if (known != listed_slots || children != listed_children)
    return make_error(ErrorCode::corrupt,
                      "{} slots are known and {} nodes lead to some; listed are {} and {}", known,
                      children, listed_slots, listed_children);
  return {};
}

}  // namespace pando
