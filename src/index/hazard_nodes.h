// SPDX-License-Identifier: Apache-2.0
// The hazard policy over the nodes of a radix tree: what each node is ranked by, what the learner
// is told of requests, and which blocks have gone lately. Uses tells it of inserts, splits and
// removals, and asks for keys; docs/tuning.md says what the policy does and what it gains.
//
// A block is a page, or as many pages as make 64 tokens: so that ages and counts mean the same at
// every page size. Blocks are named by a chained hash of their tokens; the last page of a block
// stands for it.
//
// Invariant: a node's key is when its path was last inserted by a request that has finished, and
// its class then. `fresh` are nodes put there by a request that has not: to that request they are
// new, though they are in the tree.
// Costs: O(pages) per insert, most of it to compare a hash with a bound; O(1) otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "index/block_history.h"
#include "index/hazard_index.h"
#include "index/node.h"
#include "pando/policy.h"

namespace pando {

class HazardNodes {
 public:
  HazardNodes(std::size_t capacity_pages, std::size_t page_size);

  void reach(NodeIndex i) { records_.reach(i); }
  EvictionKey key(NodeIndex i) const { return {records_[i].key, 0}; }
  /// So many pages at the node's end have this key; those before them have another class.
  std::size_t rank_pages(NodeIndex i) const {
    return (records_[i].key & kLastBlock) != 0 ? pages_per_block_ : SIZE_MAX;
  }
  const HazardIndex& index() const { return index_; }
  HazardIndex& index() { return index_; }
  /// A request of so many pages wants room: until the next call, all are older by them.
  void look_ahead(std::size_t num_pages) { index_.ahead = num_pages / pages_per_block_; }

  /// Names of pages [0, n) behind one with the name `parent`.
  static void name_pages(std::uint64_t parent, const Token* tokens, std::size_t n,
                         std::size_t page_size, std::size_t overlap, std::uint64_t* ids);
  static std::uint64_t name_namespace(std::string_view ns);

  /// Of a node that was hung into the tree: how many of its first pages go together, all seen
  /// before and with as many hits, or all not. `continues`: all that is before them was seen.
  std::uint32_t num_alike(const Node& node, std::span<const std::uint64_t> ids,
                          bool continues) const;
  /// A new node whose pages go together: its hits are those that its blocks had when they went.
  void add(NodeIndex i, const Node& node, std::span<const std::uint64_t> ids, bool continues);
  /// As add(), of a node that came from another tier: seen before, by whomever.
  void add_known(NodeIndex i, std::span<const std::uint64_t> ids);
  /// `upper` has been split off the front of `lower`.
  void split(NodeIndex upper, NodeIndex lower);
  /// Pages [keep, ...) of a node leave the tree.
  void remove(NodeIndex i, const Node& node, std::uint32_t keep,
              std::span<const std::uint64_t> ids);

  bool is_fresh(NodeIndex i) const { return records_[i].fresh; }

  /// A request of so many pages, of which the first `seen` were seen before, was inserted; visit()
  /// every node of its path. Not counted as one unless it has finished.
  void begin(std::size_t num_pages, std::size_t seen, bool finished);
  void visit(NodeIndex i, const Node& node, std::span<const std::uint64_t> ids);

  std::size_t memory_bytes() const;

 private:
  static constexpr ReuseHazard::Class kLastBlock = 1;  // the bit of a class that says so
  struct Record {
    HazardIndex::Key key = 0;
    std::uint32_t hits = 0;
    bool fresh = false;
  };
  /// Whether a page, counted from the root, ends a block.
  bool ends_block(std::size_t page) const { return (page + 1) % pages_per_block_ == 0; }

  const std::size_t pages_per_block_;
  NodeTable<Record> records_;
  HazardIndex index_;
  BlockHistory history_;
  // Of the request whose path is visited.
  std::size_t num_pages_ = 0;
  std::size_t new_blocks_ = 0;
  bool finished_ = false;
  std::size_t odd_pages_ = 0;  // of requests so far, that made no block
};

}  // namespace pando
