// SPDX-License-Identifier: Apache-2.0
// What SlotCache knows: a radix tree over tokens (RadixIndex, pages of one token, which have no
// numbers), where in it each slot's sequence ends (SlotEnds), which prefixes are pinned, and
// which slots may be given to a new sequence. SlotCache checks what callers say and moves bytes.
//
// Invariants (check() proves them):
// - a slot that ends in a node holds the KV of all tokens from the root to the node's end;
// - a leaf is the end of a slot, or pinned; a node that is neither, with one child, is joined with
//   it, so nodes are as many as branches (but for joins that would copy a shared block);
// - a pinned prefix is bound to one slot that holds it, as long as there is one, and that slot is
//   not given away: it is `held`;
// - in the order of use are the loose slots with a sequence; blank are the free ones without.
// Costs: a walk over the key, then O(depth) in nodes; nothing depends on the number of slots.
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bitmask.h"
#include "base/id_list.h"
#include "cache/slot_ends.h"
#include "index/radix_index.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class SlotMap {
 public:
  using Slot = SlotEnds::Slot;

  /// All slots are free and hold nothing that is known.
  SlotMap(std::size_t num_slots, std::size_t max_nodes, std::uint64_t hash_seed);

  // ---- What slots hold.
  /// From now on the slot is known to hold exactly these tokens, none of them negative.
  void learn(const Key& key, Slot slot);
  void forget(Slot slot);
  /// The slot holds the first tokens of its sequence at most; 0 is as forget().
  void shorten(Slot slot, std::size_t length);
  /// How many tokens it is known to hold.
  std::size_t length(Slot slot) const;
  /// Rises whenever less is known of the slot than before, for whatever reason.
  std::uint64_t edition(Slot slot) const { return states_[slot].edition; }

  // ---- Who has them.
  void set_taken(Slot slot, bool taken);
  /// Counted: keeps a free slot from being given away.
  void hold(Slot slot);
  void unhold(Slot slot);
  bool is_taken(Slot slot) const { return states_[slot].taken; }
  bool is_pinned(Slot slot) const { return states_[slot].pins > 0; }
  /// Whether nobody needs what the slot holds beyond `length` tokens.
  bool can_shorten(Slot slot, std::size_t length) const;
  /// The slot to give to a new sequence: a blank one, the lowest, or the least recently used.
  std::optional<Slot> next_to_give() const;

  // ---- Looking.
  struct Found {
    NodeIndex node = kNoNode;
    std::size_t length = 0;  // 0: nothing
  };
  /// The longest prefix that some slot holds; the slot ends at or below the node.
  Found find(const Key& key) const;
  /// A slot that holds what was found: a loose one, else a held one, else a taken one.
  Slot pick(NodeIndex node) const;
  /// The same, but not this one.
  std::optional<Slot> pick_other(NodeIndex node, Slot than);
  /// Counts as a use of the path to the node, and of the slot.
  void touch(NodeIndex node) { index_.touch(node); }
  void use(Slot slot);

  // ---- Pins.
  Status pin(const Key& key);
  Status release(const Key& key);

  std::size_t num_pinned() const { return pins_.size(); }
  std::size_t num_known() const { return num_known_; }
  std::size_t num_nodes() const { return index_.num_nodes(); }
  std::size_t num_evictions() const { return num_evictions_; }
  std::size_t memory_bytes() const;
  std::string dump() const;
  /// O(tree).
  Status check() const;

 private:
  struct State {
    std::uint64_t edition = 0;
    std::uint32_t pins = 0;   // prefixes bound to it
    std::uint32_t holds = 0;  // by hold()
    bool taken = false;       // as the allocator says
  };
  struct Pin {
    std::size_t count = 0;
    std::optional<Slot> slot = {};  // none: no slot holds the prefix any more
  };

  NodeIndex split_at(const Tree::Cursor& cursor);
  NodeIndex node_at(NodeIndex below, std::size_t length);
  NodeIndex common_node(NodeIndex a, NodeIndex b) const;
  void move(Slot slot, NodeIndex to);
  void refresh(Slot slot);
  void tidy(NodeIndex node);
  void enforce_capacity();
  void bind(NodeIndex node, Pin& pin);
  void bind_unbound(Slot slot);
  void unbind(Pin& pin);
  void rebind(Slot slot, NodeIndex from, std::size_t keep);
  SlotKind kind_of(Slot slot) const;
  Status check_pins() const;

  const std::size_t max_nodes_;
  RadixIndex index_;
  SlotEnds ends_;
  std::vector<State> states_;
  IdList<Slot> loose_;  // slot + 1 of those of kind loose, and known; the least recently used first
  HierarchicalBitmask blank_;  // of kind loose, and not known
  std::unordered_map<NodeIndex, Pin> pins_;
  std::size_t num_unbound_ = 0;  // of pins_
  std::size_t num_known_ = 0;
  std::size_t num_evictions_ = 0;
  Released released_;  // stays empty: pages have no numbers
};

}  // namespace pando
