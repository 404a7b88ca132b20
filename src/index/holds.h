// SPDX-License-Identifier: Apache-2.0
// Who holds what: the path to a node on the device or on the host, the window before its end, the
// snapshot at its end, and copies to the host that are under way. Knows Tree and Components, and
// takes what is held off the Shelves. Letting go may leave a node without use: RadixIndex removes
// it then.
//
// Invariants (check() proves them): locks of a node = holds on it + children that are locked, and
// so for host locks; whoever holds the window or the snapshot of a node holds the node; what a node
// that is held on the host has of components there is held too.
// Writes of a node: locks (but of roots), host_locks, backing_up; locks of Components.
// Costs: lock and unlock touch the nodes whose state changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/component.h"
#include "index/node.h"
#include "index/shelves.h"
#include "index/tree.h"
#include "pando/result.h"

namespace pando {

class Holds {
 public:
  /// `window_pages`: as much of a window as a match needs.
  Holds(Tree& tree, Shelves& shelves, Components& components, std::size_t window_pages)
      : tree_(tree),
        nodes_(tree.nodes()),
        shelves_(shelves),
        components_(components),
        window_pages_(window_pages) {}

  void lock(NodeIndex node);
  void unlock(NodeIndex node);

  /// Holds the window of the last pages up to the end of `node`, as many as a match needs, or fewer
  /// where it is gone. Returns where the held part begins, in pages from the root; splits there.
  std::uint32_t lock_window(NodeIndex node);
  /// Holds all of the window from `from_page`, where a node begins, to the end of `node`.
  void lock_window(NodeIndex node, std::uint32_t from_page);
  void unlock_window(NodeIndex node, std::uint32_t from_page);

  void lock_state(NodeIndex node) { components_.state->lock(node, nodes_[node]); }
  void unlock_state(NodeIndex node) {
    if (components_.state->unlock(node, nodes_[node])) shelves_.place_components(node);
  }

  /// Keeps the path to `node` on the host, or on whichever tier it is.
  void lock_host(NodeIndex node);
  void unlock_host(NodeIndex node);
  /// A copy of `node` to the host is under way: it does not leave the host meanwhile.
  void set_backing_up(NodeIndex node, bool yes);

  /// `upper` has been split off the front of `lower`: it is held through it.
  void split(NodeIndex upper, NodeIndex lower);

  /// How many holds callers have.
  struct Counts {
    std::size_t locks = 0;
    std::size_t state_locks = 0;
    std::size_t host_locks = 0;
  };
  /// O(tree).
  Status check(const Counts& counts) const;

 private:
  Status check_locks(const Counts& counts) const;
  Status check_components(const Counts& counts) const;
  Status check_windows() const;

  Tree& tree_;
  NodeSlab& nodes_;
  Shelves& shelves_;
  Components& components_;
  const std::size_t window_pages_;
};

}  // namespace pando
