// SPDX-License-Identifier: Apache-2.0
// What slots hold and who gets them. Pins and proofs are in slot_map_pins.cc.
#include "cache/slot_map.h"

#include <algorithm>

#include "base/check.h"

namespace pando {

SlotMap::SlotMap(std::size_t num_slots, std::size_t max_nodes, std::uint64_t hash_seed)
    : max_nodes_(max_nodes),
      index_({.page_size = 1, .numbered = false, .hash_seed = hash_seed}, *make_policy("lru")),
      ends_(index_, num_slots),
      states_(num_slots),
      loose_(num_slots + 1, IdList<Slot>::Start::none),
      blank_(num_slots) {
  blank_.fill();
}

// ---- Ends --------------------------------------------------------------------------------------

NodeIndex SlotMap::split_at(const Tree::Cursor& cursor) {
  const NodeIndex node = index_.tree().split_at(cursor);
  if (node != cursor.node) ends_.split(node, cursor.node);
  return node;
}

// The node that ends after `length` > 0 tokens on the way down to `below`.
NodeIndex SlotMap::node_at(NodeIndex below, std::size_t length) {
  while (index_.node(below).begin_pages() >= length) below = index_.node(below).parent;
  const auto in_node = static_cast<std::uint32_t>(length) - index_.node(below).begin_pages();
  return split_at({below, in_node, length});
}

// The lowest node above both; kNoNode in different namespaces.
NodeIndex SlotMap::common_node(NodeIndex a, NodeIndex b) const {
  while (a != b) {
    if (a == kNoNode || b == kNoNode) return kNoNode;
    NodeIndex& deeper = index_.node(a).end_pages >= index_.node(b).end_pages ? a : b;
    deeper = index_.node(deeper).parent;
  }
  return a;
}

// Where the slot ends from now on; kNoNode: nowhere.
void SlotMap::move(Slot slot, NodeIndex to) {
  if (ends_.is_known(slot)) {
    ends_.remove(slot);
    --num_known_;
  }
  if (to != kNoNode) {
    ends_.add(slot, to, kind_of(slot));
    ++num_known_;
  }
  refresh(slot);
}

SlotKind SlotMap::kind_of(Slot slot) const {
  const State& state = states_[slot];
  if (state.taken) return SlotKind::taken;
  return state.pins + state.holds > 0 ? SlotKind::held : SlotKind::loose;
}

// Lists follow from what is known of the slot and who has it. One that becomes loose has been in
// use until now.
void SlotMap::refresh(Slot slot) {
  const SlotKind kind = kind_of(slot);
  const bool known = ends_.is_known(slot);
  if (known && ends_.kind(slot) != kind) {
    const NodeIndex node = ends_.end_of(slot);
    ends_.remove(slot);
    ends_.add(slot, node, kind);
  }
  const bool loose = kind == SlotKind::loose;
  const bool listed = loose_.has(slot + 1);
  if (loose && known && !listed) loose_.append(slot + 1);
  if (!(loose && known) && listed) loose_.remove(slot + 1);
  if (loose && !known) {
    blank_.set(slot);
  } else {
    blank_.clear(slot);
  }
}

// A node that has lost a slot, a pin or a child goes if it is nothing any more, and so do those
// above it; with one child left it becomes part of that.
void SlotMap::tidy(NodeIndex node) {
  while (!index_.node(node).is_root() && !ends_.is_end(node) && !pins_.contains(node)) {
    if (index_.node(node).num_children > 1) return;
    if (index_.node(node).num_children == 1) {
      if (const NodeIndex child = index_.join_child(node)) ends_.join(node, child);
      return;
    }
    const NodeIndex parent = index_.node(node).parent;
    const bool at_top = index_.node(parent).is_root();
    index_.evictor().remove(node, released_);
    if (at_top) return;  // a root goes by itself
    node = parent;
  }
}

// A leaf's slots still hold what is above it, and more, but nobody could tell later whether they
// do. When all leaves are pinned there is no victim.
void SlotMap::enforce_capacity() {
  while (index_.num_nodes() > max_nodes_) {
    const NodeIndex leaf = index_.evictor().victim();
    if (leaf == kNoNode) return;
    const NodeIndex parent = index_.node(leaf).parent;
    const NodeIndex to = index_.node(parent).is_root() ? kNoNode : parent;
    while (ends_.is_end(leaf)) {
      const Slot slot = ends_.pick_end(leaf);
      move(slot, to);
      ++states_[slot].edition;
    }
    index_.evictor().remove(leaf, released_);
    ++num_evictions_;
  }
}

// ---- Knowing -----------------------------------------------------------------------------------

void SlotMap::learn(const Key& key, Slot slot) {
  const Tree::Cursor cursor = index_.tree().descend(key, nullptr);
  NodeIndex node = cursor.node == kNoNode ? index_.root(key.ns) : split_at(cursor);
  if (cursor.pages < key.tokens.size())
    node = index_.add_leaf(node, key.tokens.data() + cursor.pages,
                           static_cast<std::uint32_t>(key.tokens.size() - cursor.pages));
  index_.touch(node);
  const NodeIndex before = ends_.end_of(slot);
  move(slot, node);
  if (num_unbound_ > 0) bind_unbound(slot);
  if (before != kNoNode) {
    const NodeIndex common = common_node(before, node);
    if (common != before) {  // not an extension
      ++states_[slot].edition;
      rebind(slot, before, common == kNoNode ? 0 : index_.node(common).end_pages);
    }
    if (before != node) tidy(before);
  }
  use(slot);
  enforce_capacity();
}

void SlotMap::forget(Slot slot) { shorten(slot, 0); }

void SlotMap::shorten(Slot slot, std::size_t length) {
  ++states_[slot].edition;
  const NodeIndex before = ends_.end_of(slot);
  if (before == kNoNode || index_.node(before).end_pages <= length) return;
  move(slot, length == 0 ? kNoNode : node_at(before, length));
  rebind(slot, before, length);
  tidy(before);
  enforce_capacity();
}

std::size_t SlotMap::length(Slot slot) const {
  return ends_.is_known(slot) ? index_.node(ends_.end_of(slot)).end_pages : 0;
}

// ---- Having ------------------------------------------------------------------------------------

void SlotMap::set_taken(Slot slot, bool taken) {
  states_[slot].taken = taken;
  refresh(slot);
}

void SlotMap::hold(Slot slot) {
  ++states_[slot].holds;
  refresh(slot);
}

void SlotMap::unhold(Slot slot) {
  PANDO_CHECK(states_[slot].holds > 0, "slot {} is not held", slot);
  --states_[slot].holds;
  refresh(slot);
}

bool SlotMap::can_shorten(Slot slot, std::size_t length) const {
  if (!is_pinned(slot)) return true;
  for (NodeIndex i = ends_.end_of(slot); index_.node(i).end_pages > length;
       i = index_.node(i).parent) {
    const auto pin = pins_.find(i);
    if (pin != pins_.end() && pin->second.slot == slot) return false;
  }
  return true;
}

std::optional<SlotMap::Slot> SlotMap::next_to_give() const {
  if (const std::optional<std::size_t> blank = blank_.find_first())
    return static_cast<Slot>(*blank);
  if (loose_.size() == 0) return std::nullopt;
  return loose_.front() - 1;
}

// ---- Looking -----------------------------------------------------------------------------------

SlotMap::Found SlotMap::find(const Key& key) const {
  const Tree::Cursor cursor = index_.tree().descend(key, nullptr);
  NodeIndex node = cursor.node;
  if (node == kNoNode || cursor.pages == 0) return {};
  while (!ends_.has(node)) {  // pinned, and its slots have gone
    node = index_.node(node).parent;
    if (index_.node(node).is_root()) return {};
  }
  return {node, std::min<std::size_t>(cursor.pages, index_.node(node).end_pages)};
}

SlotMap::Slot SlotMap::pick(NodeIndex node) const {
  for (const SlotKind kind : kSlotKinds) {
    if (ends_.has(node, kind)) return ends_.pick(node, kind);
  }
  PANDO_CHECK(false, "no slot holds node {}", node);
}

// It is taken out of the lists meanwhile: it may stand before others.
std::optional<SlotMap::Slot> SlotMap::pick_other(NodeIndex node, Slot than) {
  const NodeIndex end = ends_.end_of(than);
  if (end != kNoNode) ends_.remove(than);
  std::optional<Slot> slot;
  if (ends_.has(node)) slot = pick(node);
  if (end != kNoNode) ends_.add(than, end, kind_of(than));
  return slot;
}

void SlotMap::use(Slot slot) {
  if (!loose_.has(slot + 1)) return;
  loose_.remove(slot + 1);
  loose_.append(slot + 1);
}

}  // namespace pando
