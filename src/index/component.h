// SPDX-License-Identifier: Apache-2.0
// What a node may have beside its full-attention side: the window of its tokens, or a snapshot of
// recurrent state at its end. A Component knows of every node whether it has it, how many leases
// hold it, and keeps those that may lose it on a shelf of its own. RadixIndex tells it of every
// change; it decides nothing about the tree.
//
// Invariant: candidates of the shelf are exactly the nodes that have it and whose side nobody
// holds, under the key of their present stats; equal keys (nodes last used together lie on one
// path) go shallow before deep. The shelf's total is the weight of all nodes that have it.
// Costs: O(log n) per change of a node's place, O(1) otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/node.h"
#include "index/shelf.h"
#include "pando/policy.h"
#include "pando/types.h"

namespace pando {

class Component {
 public:
  /// What a node weighs in the sizes: its pages, or one snapshot.
  enum class Weight { pages, one };
  explicit Component(Weight weight, const HazardIndex* hazard = nullptr)
      : weight_(weight), shelf_(Shelf::Kind::nodes, hazard) {}

  struct Side {
    EvictionKey key;          // under which it is in the order, if it is
    std::uint32_t locks = 0;  // leases that hold this side
    StateSlot snapshot = {};  // only of the state component
    bool present = false;
    bool in_order = false;
  };
  const Side& operator[](NodeIndex i) const { return sides_[i]; }
  bool has(NodeIndex i) const { return sides_[i].present; }

  /// Makes room for node i, which has nothing yet.
  void reach(NodeIndex i) { sides_.reach(i); }
  /// Node i has it from now on. It enters the order by place().
  void add(NodeIndex i, const Node& node, StateSlot snapshot = {});
  /// Node i, held by nobody, loses it.
  void drop(NodeIndex i, const Node& node);
  /// Node i has its place by `key` if it belongs in the order, and no other.
  void place(NodeIndex i, const Node& node, const EvictionKey& key);
  /// `upper` has been split off the front of `lower`: both have what lower had. Weights do not
  /// change; the caller places both.
  void copy(NodeIndex upper, NodeIndex lower);
  /// Leaves the order, to come back by place(): the node's length or place on the path changes.
  void leave(NodeIndex i, const Node& node);
  /// So many pages at the end of a node that has it go, and what they weighed.
  void trim(const Node& node, std::uint32_t pages) { shelf_.remove(node.owner, pages, true); }
  /// So does all that a node weighs, to another owner; it has left the order.
  void move(NodeIndex i, const Node& node, OwnerId to);

  void lock(NodeIndex i, const Node& node);
  /// True when this was the last lock: the caller places the node.
  bool unlock(NodeIndex i, const Node& node);

  Shelf& shelf() { return shelf_; }
  const Shelf& shelf() const { return shelf_; }
  std::size_t evictable() const { return shelf_.sum().evictable; }
  std::size_t held() const { return shelf_.sum().total - shelf_.sum().evictable; }
  std::size_t weight(const Node& node) const {
    return weight_ == Weight::pages ? node.num_pages : 1;
  }
  std::size_t memory_bytes() const { return sides_.memory_bytes() + shelf_.memory_bytes(); }

 private:
  const Weight weight_;
  NodeTable<Side> sides_;
  Shelf shelf_;
};

}  // namespace pando
