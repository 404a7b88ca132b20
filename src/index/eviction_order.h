// SPDX-License-Identifier: Apache-2.0
// Nodes that may be evicted, smallest eviction key first: the leaves of the tree, and for each
// further component the nodes that may lose it. A node is added when it becomes evictable, removed
// when it is not, and moved when its key changes; so nothing is rebuilt and nothing is skipped when
// a victim is wanted.
//
// A B+ tree of (key, node) with 64 entries a leaf: O(log n) per change, and in practice one cold
// cache line, because under lru a use removes from somewhere and appends at the hot right end, and
// victims leave from the hot left end. (A binary heap with positions in the nodes touches a cold
// line per level; a linked list cannot take a parent that becomes a leaf late.)
// Blocks below a quarter full merge with a neighbour, so memory follows the number of entries.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "index/node.h"
#include "pando/policy.h"
#include "pando/result.h"

namespace pando {

class EvictionOrder {
 public:
  EvictionOrder();
  ~EvictionOrder();
  EvictionOrder(const EvictionOrder&) = delete;
  EvictionOrder& operator=(const EvictionOrder&) = delete;

  /// Equal keys go by `depth`, the smaller first.
  void insert(const EvictionKey& key, NodeIndex node, std::uint32_t depth = 0);
  /// The entry must be there.
  void erase(const EvictionKey& key, NodeIndex node, std::uint32_t depth = 0);

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  struct Entry {
    EvictionKey key;
    std::uint32_t depth = 0;
    NodeIndex node = kNoNode;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  /// The node to evict next; kNoNode when empty.
  NodeIndex front() const;
  /// The same with what it goes by; there must be one.
  const Entry& front_entry() const;
  /// The node `ahead` places behind the front, if it is near at hand, else kNoNode: a hint.
  NodeIndex peek(std::size_t ahead) const;
  /// A line of the block that peek() will look into when the first one runs out: to prefetch. Calls
  /// with a front that moves on cover the block.
  const void* line_ahead() const;

  /// All nodes in order; O(n).
  std::vector<NodeIndex> nodes() const;
  std::size_t memory_bytes() const;
  /// Proves order, links, counts and fill; O(n).
  Status check() const;

 private:
  struct Leaf;
  struct Inner;
  union Block {
    Leaf* leaf;
    Inner* inner;
  };
  struct Step {  // one level of a descent: child `at` of `inner`
    Inner* inner;
    std::uint32_t at;
  };
  static constexpr int kMaxHeight = 16;

  Leaf* descend(const Entry& entry, Step* path) const;
  void split_leaf(Leaf* leaf, const Entry& entry, Step* path);
  void add_child(Step* path, int level, const Entry& low, Block child);
  void remove_child(Step* path, int level, std::uint32_t at);
  void shrink_leaf(Leaf* leaf, Step* path);
  void unlink(Leaf* leaf);
  void destroy(Block block, int height);
  Status check_block(Block block, int height, const Entry* low, const Entry* high,
                     std::size_t* entries, Leaf** previous) const;

  Block root_;
  int height_ = 0;  // 0: the root is a leaf
  Leaf* first_;
  std::size_t size_ = 0;
  std::size_t num_leaves_ = 1;
  std::size_t num_inners_ = 0;
};

}  // namespace pando
