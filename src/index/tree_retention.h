// SPDX-License-Identifier: Apache-2.0
// What the tree keeps longer than its policy would: levels that ranges of pages have for a time,
// pins, sessions, and whose room a namespace takes. Knows Tree, and tells Shelves of levels and
// owners. NodeRetention has what each node knows of it, from the first such call on; a tree that
// is never asked has none of it.
//
// Invariants (check() proves them): the level of a node is the highest that a lasting grant gives
// it, or that of sessions where a session in use ends at or below it; counts of pins and sessions
// are as locks are: own ones + children that have any; pinned pages are those of nodes with a pin,
// and somebody holds these; who used a node without a session used its parent.
// Writes of a node: the owner of roots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "index/node.h"
#include "index/node_retention.h"
#include "index/shelves.h"
#include "index/tree.h"
#include "pando/result.h"

namespace pando {

class TreeRetention {
 public:
  TreeRetention(Tree& tree, Shelves& shelves)
      : tree_(tree), nodes_(tree.nodes()), shelves_(shelves) {}

  // ---- Levels ----

  struct PageRange {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  /// Pages of the path to `end` have at least this level until then. Splits at the range's ends.
  void grant(NodeIndex end, const PageRange& range, Level level, Ticks until);
  /// Grants that end by `now` do not count any more.
  void expire_grants(Ticks now);
  bool has_timed_grants() const { return table_ && table_->has_timed_grants(); }

  // ---- Pins ----

  /// Pins are counted here, apart from the holds that make them good: in pages of all pinned paths
  /// together, `on_device` of those held there.
  void count_pin(NodeIndex end, bool on_device);
  void uncount_pin(NodeIndex end, bool on_device);
  std::size_t pages_to_pin(NodeIndex end, bool on_device);  // that one more would add
  std::size_t pinned_pages(bool on_device) const { return pinned_pages_[on_device]; }

  // ---- Sessions ----

  /// The level of paths to the ends of sessions in use.
  void set_session_level(Level level) { session_level_ = level; }
  /// From now on it is known what only sessions have used.
  void keep_sessions() { table(); }
  /// A session's prefix ends here from now on; it is in use.
  EndIndex add_end(NodeIndex node);
  void remove_end(EndIndex end);
  void set_active(EndIndex end, bool active);
  /// kNoNode if nothing of it is left.
  NodeIndex node_of(EndIndex end) const { return table_->end(end).node; }
  /// The path was used by somebody who is no session.
  void note_common_use(NodeIndex end) {
    if (table_) mark_common(end);
  }
  /// Whether no session, no pin and nobody without a session has use for a node.
  bool is_unused(NodeIndex i) const {
    const NodeRetention::Record& record = (*table_)[i];
    return record.sessions == 0 && !record.common && record.pins == 0;
  }

  // ---- Owners ----

  /// The owner of a namespace that gets a root; kSharedOwner unless set.
  std::function<OwnerId(std::string_view ns)> owner_of;
  OwnerId owner(std::string_view ns) const { return owner_of ? owner_of(ns) : kSharedOwner; }
  /// A namespace has got this root.
  void add_root(NodeIndex root) { nodes_[root].owner = owner(nodes_[root].info->name); }
  /// What is in a namespace, and will be while its root lasts, takes this owner's room. O(subtree).
  void set_owner(std::string_view ns, OwnerId owner);

  // ---- Told of changes ----

  /// Makes room for node i.
  void reach(NodeIndex i) {
    if (table_) table_->reach(i);
  }
  /// `upper` has been split off the front of `lower`.
  void split(NodeIndex upper, NodeIndex lower) {
    if (table_) table_->split(upper, lower);
  }
  /// A leaf is about to leave the tree.
  void remove(NodeIndex leaf) {
    if (!table_) return;
    const NodeIndex parent = nodes_[leaf].parent;
    table_->remove(leaf, parent, nodes_[parent].is_root());
  }

  std::size_t memory_bytes() const { return table_ ? table_->memory_bytes() : 0; }
  /// How many pins callers have, and of these on the device.
  struct Counts {
    std::size_t pins = 0;
    std::size_t device_pins = 0;
  };
  /// O(tree).
  Status check(const Counts& counts) const;

 private:
  NodeRetention& table();  // made when first needed
  Level level_of(NodeIndex i) const;
  std::uint32_t& pins(NodeIndex i, bool on_device) {
    return on_device ? (*table_)[i].device_pins : (*table_)[i].pins;
  }
  template <typename Count, typename OnFirst>
  void count_up(NodeIndex from, Count count, OnFirst on_first);
  template <typename Count, typename OnLast>
  void count_down(NodeIndex from, Count count, OnLast on_last);
  void mark_common(NodeIndex end);
  Status check_counts(const Counts& counts) const;
  Status check_ends() const;

  Tree& tree_;
  NodeSlab& nodes_;
  Shelves& shelves_;
  std::unique_ptr<NodeRetention> table_;
  Level session_level_ = 0;
  std::array<std::size_t, 2> pinned_pages_ = {};  // on any tier, and on the device
};

}  // namespace pando
