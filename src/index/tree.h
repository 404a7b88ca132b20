// SPDX-License-Identifier: Apache-2.0
// The shape of the radix tree: a root for each namespace, nodes with an edge of whole pages, the
// table that finds a child by its first page, and the index that has the children in token order.
// Tree walks, splits, grows and removes; it knows no other part of RadixIndex. Parts that have
// something of their own at a node are told of splits by the hook `on_split`.
//
// A walk is read-only: descend() follows a key and returns a Cursor; split_at() and add_leaf() then
// change the tree at that place. So bad input is refused after the walk and before the first
// change.
//
// Invariants (check() proves them, and those of Edges): an edge has at least one page; siblings
// differ in their first page; a node is in the child table and counted by its parent, unless it was
// cut off; a root has a child, or one that was cut off from it.
// Writes of a node: hash, parent, num_children, branch_up, children, end_pages, info, generation,
// live, cut_top; device_children where children come and go; the locks of roots.
// Costs: descend compares each token once and looks up one child per edge.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "index/branch_index.h"
#include "index/child_table.h"
#include "index/edges.h"
#include "index/node.h"
#include "index/page_shape.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class Tree {
 public:
  struct Options {
    Edges::Options edges = {};
    std::uint64_t hash_seed = 0;
  };
  explicit Tree(const Options& options);

  /// `upper` has been split off the front of `lower`. Called when both are in the tree.
  std::function<void(NodeIndex upper, NodeIndex lower)> on_split;

  // ---- Walking ----

  /// Where a key leaves the tree: after `pages` whole pages, `pages_in_node` into `node`.
  struct Cursor {
    NodeIndex node = kNoNode;  // kNoNode: the namespace is unknown
    std::uint32_t pages_in_node = 0;
    std::size_t pages = 0;
  };
  /// Follows the key as far as the tree agrees. Writes the slots of what agrees and is on the
  /// device to `out` unless it is nullptr.
  Cursor descend(const Key& key, SlotId* out) const;
  /// The same from the end of this node on, up to which the key is known to agree.
  Cursor descend_behind(NodeIndex node, const Key& key) const;
  /// The end of a node.
  Cursor end_of(NodeIndex node) const {
    return {node, nodes_[node].num_pages, nodes_[node].end_pages};
  }

  /// Which page agrees longest with what the key has behind the cursor, and for how many tokens.
  struct NearestPage {
    NodeIndex node = kNoNode;
    std::uint32_t page_in_node = 0;
    std::size_t length = 0;
  };
  NearestPage nearest_page(const Key& key, const Cursor& cursor) const;

  /// Calls fn(node, first, n) for the nodes along the cursor's path, from its end to the root:
  /// pages [first, first + n) of the key lie in the first n pages of the node.
  template <typename Fn>
  void for_each_on_path(const Cursor& cursor, Fn&& fn) const;
  /// Whether `node` is on the path to `end`, which it may be.
  bool is_on_path(NodeIndex node, NodeIndex end) const;

  // ---- Growing ----

  /// kNoNode if the namespace has none.
  NodeIndex find_root(std::string_view ns) const { return find_root(ns, hash_namespace(ns)); }
  /// A namespace that has none gets one. It goes when its last child does.
  NodeIndex add_root(std::string_view ns);
  /// Splits so that the cursor is at the end of a node, and returns that node (the namespace's root
  /// for 0 pages). The lower half keeps the identity: leases and handles stay with the end they
  /// were made for.
  NodeIndex split_at(const Cursor& cursor) {
    if (cursor.pages_in_node == nodes_[cursor.node].num_pages) return cursor.node;
    return split(cursor.node, cursor.pages_in_node);
  }
  /// The same `at_page` pages into `lower`. Returns the upper half.
  NodeIndex split(NodeIndex lower, std::uint32_t at_page);
  /// Hangs pages below `parent`: tokens has num_pages * page_size (bigram: one more). On the device
  /// with `pages`, or where pages have no numbers.
  NodeIndex add_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages,
                     const std::uint32_t* pages);

  // ---- Shrinking ----

  /// Returns the parent, or kNoNode if that is a root, which goes with its last child.
  NodeIndex remove_leaf(NodeIndex leaf);
  /// A leaf keeps its first pages. Its end moves, so handles to it are stale.
  void trim(NodeIndex leaf, std::uint32_t keep_pages);
  /// Undoes a split: `upper` becomes part of its only child, which keeps its identity and is
  /// returned. kNoNode, and nothing changes, where Edges cannot join them.
  NodeIndex join_child(NodeIndex upper);
  /// No walk finds `node` or what is below it any more. Its parent does not count it as a child.
  void cut(NodeIndex node);

  // ---- Reading ----

  NodeSlab& nodes() { return nodes_; }
  const NodeSlab& nodes() const { return nodes_; }
  Edges& edges() { return edges_; }
  const Edges& edges() const { return edges_; }
  const PageShape& shape() const { return shape_; }
  /// Names of those that have anything, in order, `max` at most.
  std::vector<std::string_view> namespaces(std::size_t max = SIZE_MAX) const;
  /// The name of the root above a node.
  const std::string& namespace_of(NodeIndex node) const;
  /// Calls fn(index, node) for every node but roots.
  template <typename Fn>
  void for_each_node(Fn&& fn) const;
  /// Calls fn(index) for every node, roots too, path by path in token order; those that were cut
  /// off left out.
  template <typename Fn>
  void for_each_in_order(Fn&& fn) const;
  /// All below a node, parents before their children.
  std::vector<NodeIndex> below(NodeIndex node) const;
  /// Every page has its hash from now on; computes those that are missing. O(tree) once.
  void keep_hashes();

  /// What removing `node` will read first, and then. Part of its callers by force: gcc drops calls
  /// of functions that do nothing but prefetch.
  [[gnu::always_inline]] void prefetch_links(const Node& node) const {
    __builtin_prefetch(node.segment);
    __builtin_prefetch(node.pages);
    __builtin_prefetch(&nodes_[node.parent]);
    __builtin_prefetch(children_.line_of(node.hash));
    __builtin_prefetch(branches_.line_of(node));
  }
  [[gnu::always_inline]] void prefetch_next_link(const Node& node) const {
    __builtin_prefetch(branches_.next_line_of(node));
  }

  std::size_t memory_bytes() const;
  /// O(tree).
  Status check() const;

 private:
  Cursor descend(Cursor from, const Key& key, SlotId* out) const;
  NodeIndex find_root(std::string_view ns, std::uint32_t hash) const;
  std::uint32_t hash_namespace(std::string_view ns) const;
  std::uint32_t hash_page(NodeIndex parent, const Token* tokens) const;
  std::size_t agreeing_pages(const Token* a, const Token* b, std::size_t max_pages) const;
  std::vector<NodeIndex> roots() const;
  void drop_root_if_empty(NodeIndex root);
  Status check_node(NodeIndex index) const;

  const PageShape shape_;
  std::array<std::uint64_t, 24> secret_;  // of the hash that finds children
  NodeSlab nodes_;
  Edges edges_;
  ChildTable children_;
  BranchIndex branches_;
  std::size_t num_cut_off_ = 0;  // subtrees
};

template <typename Fn>
void Tree::for_each_node(Fn&& fn) const {
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    if (nodes_[i].live && !nodes_[i].is_root()) fn(i, nodes_[i]);
  }
}

template <typename Fn>
void Tree::for_each_in_order(Fn&& fn) const {
  std::vector<NodeIndex> todo = roots();
  std::reverse(todo.begin(), todo.end());
  while (!todo.empty()) {
    const NodeIndex i = todo.back();
    todo.pop_back();
    fn(i);
    const std::size_t first = todo.size();
    branches_.for_each_child(i, [&](NodeIndex child) { todo.push_back(child); });
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
  }
}

template <typename Fn>
void Tree::for_each_on_path(const Cursor& cursor, Fn&& fn) const {
  std::size_t end = cursor.pages;
  std::uint32_t n = cursor.pages_in_node;
  for (NodeIndex i = cursor.node; end > 0; i = nodes_[i].parent, n = nodes_[i].num_pages) {
    end -= n;
    fn(i, end, n);
  }
}

}  // namespace pando
