// SPDX-License-Identifier: Apache-2.0
// Where in a tree the sequences of slots end, so that a slot that holds a prefix is found without a
// search: each node has a list of the slots that end in it, and a list of those children at or
// below which some slot ends; both by kind of slot. SlotMap keeps it beside its RadixIndex.
//
// Invariant: a child is in its parent's list of a kind exactly if a slot of that kind ends at or
// below it. So a change climbs only until it meets a node that has such slots anyway, and any slot
// below a node is found in as many steps as it is deep. 48 bytes a node, 16 a slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "index/radix_index.h"
#include "pando/result.h"

namespace pando {

/// loose: free, and may be given to anyone. held: free, but kept for a pin or a copy. taken: in
/// use.
enum class SlotKind : std::uint8_t { loose, held, taken };
inline constexpr std::array kSlotKinds{SlotKind::loose, SlotKind::held, SlotKind::taken};

class SlotEnds {
 public:
  using Slot = std::uint32_t;

  /// The index must outlive this.
  SlotEnds(const RadixIndex& index, std::size_t num_slots) : index_(index), slots_(num_slots) {}

  bool is_known(Slot slot) const { return slots_[slot].node != kNoNode; }
  /// Where its sequence ends; kNoNode if it is not known.
  NodeIndex end_of(Slot slot) const { return slots_[slot].node; }
  SlotKind kind(Slot slot) const { return slots_[slot].kind; }

  /// A slot that is not known.
  void add(Slot slot, NodeIndex node, SlotKind kind);
  /// A slot that is known.
  void remove(Slot slot);

  /// Whether a slot of this kind, or of any, ends at or below the node.
  bool has(NodeIndex node, SlotKind kind) const;
  bool has(NodeIndex node) const;
  /// Whether a slot ends in the node itself.
  bool is_end(NodeIndex node) const;
  /// A slot of this kind that ends at or below the node, which must have one; in the node if any.
  Slot pick(NodeIndex node, SlotKind kind) const;
  /// A slot that ends in the node, which must be an end.
  Slot pick_end(NodeIndex node) const;

  /// The index has split `lower`, with `upper` as the new node above.
  void split(NodeIndex upper, NodeIndex lower);
  /// The index has joined `upper`, in which nothing ended, with its only child.
  void join(NodeIndex upper, NodeIndex lower);

  std::size_t memory_bytes() const {
    return nodes_.capacity() * sizeof(ByKind) + slots_.capacity() * sizeof(Entry);
  }
  /// Proves the invariant above; O(nodes + slots * depth).
  Status check() const;

 private:
  // Slots are written as their number + 1, so that 0 is none.
  struct Lists {
    Slot first_slot = 0;
    NodeIndex first_child = kNoNode;
    NodeIndex next = kNoNode;  // in the parent's list of children
    NodeIndex previous = kNoNode;
    bool empty() const { return first_slot == 0 && first_child == kNoNode; }
  };
  struct ByKind {
    std::array<Lists, kSlotKinds.size()> lists;
  };
  struct Entry {
    NodeIndex node = kNoNode;
    Slot next = 0;
    Slot previous = 0;
    SlotKind kind = SlotKind::loose;
  };

  const Lists& lists(NodeIndex node, SlotKind kind) const {
    static constexpr Lists kEmpty = {};
    return node < nodes_.size() ? nodes_[node].lists[static_cast<std::size_t>(kind)] : kEmpty;
  }
  Lists& lists(NodeIndex node, SlotKind kind) {
    return nodes_[node].lists[static_cast<std::size_t>(kind)];
  }
  void reach(NodeIndex node) {
    if (node >= nodes_.size()) nodes_.resize(std::size_t{node} + 1);
  }
  void link(NodeIndex child, SlotKind kind);
  void unlink(NodeIndex child, SlotKind kind);
  void replace(NodeIndex parent, NodeIndex old, NodeIndex fresh, SlotKind kind);

  const RadixIndex& index_;
  std::vector<ByKind> nodes_;  // by node; of one that is not live, all empty
  std::vector<Entry> slots_;
};

}  // namespace pando
