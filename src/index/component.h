// SPDX-License-Identifier: Apache-2.0
// What a node may have beside its pages: the window of its tokens, or a snapshot of recurrent state
// at its end, on the device or on the host. A Component knows of every node whether it has it, how
// many leases hold it, and keeps those that may lose it on a shelf of its own. Components are the
// four of a tree. They decide nothing about it: Residency adds and drops, Holds locks, Shelves
// places.
//
// Invariant (Shelves::check() proves it): candidates of the shelf are exactly the nodes that have
// it and from whom nobody holds it, under the key of their present stats; equal keys (nodes last
// used together lie on one path) go shallow before deep. The shelf's total is the weight of all
// nodes that have it. Costs: O(log n) per change of a node's place, O(1) otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

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

  struct Record {
    EvictionKey key;          // under which it is in the order, if it is
    std::uint32_t locks = 0;  // leases that hold it
    StateSlot snapshot = {};  // only of the state component
    bool present = false;
    bool in_order = false;
  };
  const Record& operator[](NodeIndex i) const { return records_[i]; }
  bool has(NodeIndex i) const { return records_[i].present; }

  /// Makes room for node i, which has nothing yet.
  void reach(NodeIndex i) { records_.reach(i); }
  /// Node i has it from now on. It enters the order by place().
  void add(NodeIndex i, const Node& node, StateSlot snapshot = {});
  /// Node i, held by nobody, loses it.
  void drop(NodeIndex i, const Node& node);
  /// Node i has its place by `key` if it belongs in the order, and no other.
  void place(NodeIndex i, const Node& node, const EvictionKey& key);
  /// `upper` has been split off the front of `lower`: both have what lower had. Weights do not
  /// change; the caller places both.
  void split(NodeIndex upper, NodeIndex lower);
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
  std::size_t weight(const Node& node) const {
    return weight_ == Weight::pages ? node.num_pages : 1;
  }
  std::size_t memory_bytes() const { return records_.memory_bytes() + shelf_.memory_bytes(); }

 private:
  const Weight weight_;
  NodeTable<Record> records_;
  Shelf shelf_;
};

/// Those that a tree has, on the device and on the host.
struct Components {
  struct Options {
    bool window = false;
    bool state = false;
    bool host = false;
  };
  Components(const Options& options, const HazardIndex* hazard);

  std::optional<Component> window;
  std::optional<Component> state;
  std::optional<Component> host_window;
  std::optional<Component> host_state;

  bool any() const { return window || state; }
  template <typename Fn>
  void for_each(Fn fn) {
    for (auto* component : {&window, &state, &host_window, &host_state}) {
      if (*component) fn(**component);
    }
  }
  template <typename Fn>
  void for_each(Fn fn) const {
    const_cast<Components*>(this)->for_each([&](const Component& component) { fn(component); });
  }
  /// Those that node i has on the host.
  template <typename Fn>
  void for_each_on_host(NodeIndex i, Fn fn) {
    if (host_window && host_window->has(i)) fn(*host_window);
    if (host_state && host_state->has(i)) fn(*host_state);
  }
};

}  // namespace pando
