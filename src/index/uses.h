// SPDX-License-Identifier: Apache-2.0
// When and how nodes were used, and the key that this gives them in the eviction orders: from the
// policy, or, for one that learns, from HazardNodes, which is told of names, new nodes and requests
// here. Knows the Tree. RadixIndex takes a path out of the orders before a use and puts it back
// after it.
//
// Invariant (check() proves it): a node was used at least as recently as its children.
// Writes of a node: last_access, created, hits, priority.
// Costs: O(nodes of the path) per use; with a policy that learns O(pages) per insert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "index/hazard_nodes.h"
#include "index/node.h"
#include "index/tree.h"
#include "pando/policy.h"
#include "pando/result.h"

namespace pando {

class Uses {
 public:
  /// `capacity_pages` of the device: what a policy that learns remembers goes by it.
  Uses(Tree& tree, std::unique_ptr<EvictionPolicy> policy, std::size_t capacity_pages);

  /// The path from `end` to the root was used just now.
  void touch(NodeIndex end);
  struct Insert {
    std::int32_t priority = 0;  // raises that of the path
    bool chunked = false;       // does not count as a hit
    bool unfinished = false;    // the same request will insert more
  };
  /// Before touch_insert(): an insert has ended at `end`. Parts of new nodes that had been seen
  /// before, or had other numbers of hits, become nodes of their own.
  void tell_new(NodeIndex end);
  /// The path was used just now by an insert.
  void touch_insert(NodeIndex end, const Insert& insert);
  /// A request that ended here has finished without inserting more.
  void finish(NodeIndex end) { observe(end, /*finished=*/true); }

  /// Whether the policy learns from requests.
  bool learns() const { return hazard_ != nullptr; }
  EvictionKey key(NodeIndex i) const { return hazard_ ? hazard_->key(i) : policy_->key(stats(i)); }
  /// So many pages at a node's end go by its key; those before them may be worth more.
  std::size_t rank_pages(NodeIndex i) const { return hazard_ ? hazard_->rank_pages(i) : SIZE_MAX; }
  const HazardIndex* hazard_index() const { return hazard_ ? &hazard_->index() : nullptr; }
  /// So many tokens into a prompt, attention costs as much as all the rest: for a policy that
  /// weighs hits by what they save.
  void set_attention_tokens(double tokens);
  /// A request of so many pages wants room.
  void look_ahead(std::size_t num_pages) {
    if (hazard_) hazard_->look_ahead(num_pages);
  }

  /// Makes room for node i.
  void reach(NodeIndex i) {
    if (hazard_) hazard_->reach(i);
  }
  /// A leaf has been hung into the tree.
  void add(NodeIndex leaf) {
    if (hazard_) name_pages(leaf);
  }
  /// The same from another tier. The caller touches it.
  void add_known(NodeIndex leaf);
  /// `upper` has been split off the front of `lower`.
  void split(NodeIndex upper, NodeIndex lower);
  /// Pages [keep, ...) of a node leave the tree.
  void remove(NodeIndex i, std::uint32_t keep) {
    if (hazard_) hazard_->remove(i, nodes_[i], keep, edges_.names(nodes_[i]));
  }

  std::size_t memory_bytes() const { return hazard_ ? hazard_->memory_bytes() : 0; }
  Status check() const;

 private:
  NodeStats stats(NodeIndex i) const {
    const Node& node = nodes_[i];
    return {.last_access = node.last_access,
            .created = node.created,
            .hits = node.hits,
            .priority = node.priority,
            .num_tokens = static_cast<std::uint32_t>(node.num_pages * tree_.shape().page_size)};
  }
  void name_pages(NodeIndex leaf);
  void observe(NodeIndex end, bool finished);

  Tree& tree_;
  NodeSlab& nodes_;
  const Edges& edges_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<HazardNodes> hazard_;  // if that is the policy
  std::uint64_t now_ = 0;
  std::vector<NodeIndex> path_;  // scratch
};

}  // namespace pando
