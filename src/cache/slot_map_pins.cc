// SPDX-License-Identifier: Apache-2.0
// Pins of a SlotMap, and its pictures and proofs. A pin is at the end of a node, which the index
// keeps while it is locked, so a split or a join beside it never moves the pin.
#include "base/check.h"
#include "cache/slot_map.h"

namespace pando {

// ---- Pins --------------------------------------------------------------------------------------

// To a slot that is kept anyway, if there is one.
void SlotMap::bind(NodeIndex node, Pin& pin) {
  for (const SlotKind kind : {SlotKind::held, SlotKind::taken, SlotKind::loose}) {
    if (!ends_.has(node, kind)) continue;
    pin.slot = ends_.pick(node, kind);
    ++states_[*pin.slot].pins;
    refresh(*pin.slot);
    return;
  }
  ++num_unbound_;
}

void SlotMap::unbind(Pin& pin) {
  if (!pin.slot) {
    --num_unbound_;
    return;
  }
  --states_[*pin.slot].pins;
  refresh(*pin.slot);
  pin.slot.reset();
}

// The slot is the first for a while to hold these prefixes.
void SlotMap::bind_unbound(Slot slot) {
  for (NodeIndex i = ends_.end_of(slot); !index_.node(i).is_root(); i = index_.node(i).parent) {
    const auto pin = pins_.find(i);
    if (pin == pins_.end() || pin->second.slot) continue;
    unbind(pin->second);
    bind(i, pin->second);
  }
}

// The slot, which ended in `from`, holds no more than `keep` of those tokens.
void SlotMap::rebind(Slot slot, NodeIndex from, std::size_t keep) {
  for (NodeIndex i = from; is_pinned(slot) && index_.node(i).end_pages > keep;
       i = index_.node(i).parent) {
    const auto pin = pins_.find(i);
    if (pin == pins_.end() || pin->second.slot != slot) continue;
    unbind(pin->second);
    bind(i, pin->second);
  }
}

Status SlotMap::pin(const Key& key) {
  const Found found = find(key);
  if (found.length < key.tokens.size())
    return make_error(ErrorCode::not_found,
                      "pin of {} tokens: slots hold only the first {} of them", key.tokens.size(),
                      found.length);
  const NodeIndex node = node_at(found.node, found.length);
  Pin& pin = pins_[node];
  if (pin.count++ == 0) {
    index_.holds().lock(node);
    bind(node, pin);
  }
  index_.touch(node);
  enforce_capacity();
  return {};
}

Status SlotMap::release(const Key& key) {
  const Tree::Cursor cursor = index_.tree().descend(key, nullptr);
  const bool is_node = cursor.node != kNoNode && cursor.pages == key.tokens.size() &&
                       cursor.pages_in_node == index_.node(cursor.node).num_pages;
  const auto pin = is_node ? pins_.find(cursor.node) : pins_.end();
  if (pin == pins_.end())
    return make_error(ErrorCode::not_found, "release of {} tokens that are not pinned",
                      key.tokens.size());
  if (--pin->second.count > 0) return {};
  unbind(pin->second);
  pins_.erase(pin);
  index_.unlock(cursor.node, released_);
  tidy(cursor.node);
  enforce_capacity();
  return {};
}

// ---- Telling -----------------------------------------------------------------------------------

std::size_t SlotMap::memory_bytes() const {
  const std::size_t pin_bytes =
      pins_.size() * (sizeof(std::pair<NodeIndex, Pin>) + 2 * sizeof(void*)) +
      pins_.bucket_count() * sizeof(void*);
  return sizeof(*this) - sizeof(index_) + index_.memory_bytes() + ends_.memory_bytes() +
         states_.capacity() * sizeof(State) + loose_.memory_bytes() + blank_.memory_bytes() +
         pin_bytes;
}

std::string SlotMap::dump() const {
  constexpr const char* kNames[] = {"free", "kept", "taken"};
  std::string text = index_.dump();
  for (Slot slot = 0; slot < states_.size(); ++slot) {
    if (!ends_.is_known(slot)) continue;
    text += fmt::format("slot {} holds {} tokens of \"{}\", {}, {} pins\n", slot, length(slot),
                        index_.tree().namespace_of(ends_.end_of(slot)),
                        kNames[static_cast<std::size_t>(kind_of(slot))], states_[slot].pins);
  }
  return text;
}

// ---- Proving -----------------------------------------------------------------------------------

Status SlotMap::check_pins() const {
  std::vector<std::uint32_t> pins(states_.size());
  std::size_t unbound = 0;
  for (const auto& [node, pin] : pins_) {
    if (pin.count == 0) return make_error(ErrorCode::corrupt, "node {} is pinned by nobody", node);
    unbound += pin.slot ? 0 : 1;
    if (!pin.slot && ends_.has(node))
      return make_error(ErrorCode::corrupt, "the pin of node {} is bound to none of its slots",
                        node);
    if (!pin.slot) continue;
    ++pins[*pin.slot];
    const NodeIndex end = ends_.end_of(*pin.slot);
    if (end == kNoNode || common_node(end, node) != node)
      return make_error(ErrorCode::corrupt, "node {} is bound to slot {}, which ends in node {}",
                        node, *pin.slot, end);
  }
  if (unbound != num_unbound_)
    return make_error(ErrorCode::corrupt, "{} pins without a slot, counted {}", unbound,
                      num_unbound_);
  for (Slot slot = 0; slot < states_.size(); ++slot) {
    if (states_[slot].pins != pins[slot])
      return make_error(ErrorCode::corrupt, "slot {} counts {} pins, has {}", slot,
                        states_[slot].pins, pins[slot]);
  }
  return {};
}

Status SlotMap::check() const {
  if (Status s = index_.check({.locks = pins_.size()}); !s) return s;
  if (Status s = ends_.check(); !s) return s;
  if (Status s = check_pins(); !s) return s;
  if (Status s = blank_.check(); !s) return s;
  std::size_t known = 0;
  for (Slot slot = 0; slot < states_.size(); ++slot) {
    const bool is_known = ends_.is_known(slot);
    const bool loose = kind_of(slot) == SlotKind::loose;
    known += is_known ? 1 : 0;
    if (is_known && ends_.kind(slot) != kind_of(slot))
      return make_error(ErrorCode::corrupt, "slot {} is listed as of kind {}, is of kind {}", slot,
                        static_cast<int>(ends_.kind(slot)), static_cast<int>(kind_of(slot)));
    if (loose_.has(slot + 1) != (loose && is_known))
      return make_error(ErrorCode::corrupt, "slot {} is {}in the order of use", slot,
                        loose_.has(slot + 1) ? "" : "not ");
    if (blank_.test(slot) != (loose && !is_known))
      return make_error(ErrorCode::corrupt, "slot {} is {}listed as blank", slot,
                        blank_.test(slot) ? "" : "not ");
  }
  if (known != num_known_)
    return make_error(ErrorCode::corrupt, "{} slots are known, counted {}", known, num_known_);
  Status status;
  index_.tree().for_each_node([&](NodeIndex i, const Node& node) {
    if (node.num_children == 0 && !ends_.is_end(i) && !pins_.contains(i))
      status = make_error(ErrorCode::corrupt, "leaf {} is the end of no slot", i);
  });
  if (status.ok() && num_nodes() > max_nodes_ && index_.evictor().has_victim())
    status = make_error(ErrorCode::corrupt, "{} nodes, more than {}, and one could go", num_nodes(),
                        max_nodes_);
  return status;
}

}  // namespace pando
