// SPDX-License-Identifier: Apache-2.0
// Uses of paths, and what a policy that learns is told of them.
#include "index/uses.h"

#include <algorithm>

#include "index/broken.h"

namespace pando {

Uses::Uses(Tree& tree, std::unique_ptr<EvictionPolicy> policy, std::size_t capacity_pages)
    : tree_(tree), nodes_(tree.nodes()), edges_(tree.edges()), policy_(std::move(policy)) {
  const std::optional<HazardOptions> hazard = policy_->hazard();
  if (!hazard) return;
  hazard_ = std::make_unique<HazardNodes>(capacity_pages, tree.shape().page_size);
  if (hazard->cost_aware && hazard->attention_tokens)
    set_attention_tokens(*hazard->attention_tokens);
}

void Uses::touch(NodeIndex end) {
  ++now_;
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) nodes_[i].last_access = now_;
}

void Uses::touch_insert(NodeIndex end, const Insert& insert) {
  ++now_;
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    if (node.created == 0) {  // the leaf this insert added
      node.created = now_;
      node.priority = insert.priority;
    }
    node.last_access = now_;
    node.priority = std::max(node.priority, insert.priority);
    node.hits += insert.chunked ? 0 : 1;
  }
  if (hazard_) observe(end, !insert.unfinished);
}

void Uses::add_known(NodeIndex leaf) {
  Node& node = nodes_[leaf];
  node.created = now_ + 1;
  node.last_access = nodes_[node.parent].last_access;
  node.priority = nodes_[node.parent].priority;
  if (!hazard_) return;
  name_pages(leaf);
  hazard_->add_known(leaf, edges_.names(node));
}

void Uses::split(NodeIndex upper_index, NodeIndex lower_index) {
  Node& upper = nodes_[upper_index];
  const Node& lower = nodes_[lower_index];
  upper.last_access = lower.last_access;
  upper.created = lower.created;
  upper.hits = lower.hits;
  upper.priority = lower.priority;
  if (hazard_) hazard_->split(upper_index, lower_index);
}

// ---- A policy that learns ----------------------------------------------------------------------

void Uses::set_attention_tokens(double tokens) {
  if (!hazard_) return;
  const auto page_size = static_cast<double>(tree_.shape().page_size);
  hazard_->index().cost_per_depth = static_cast<float>(page_size / tokens);
}

void Uses::name_pages(NodeIndex leaf) {
  const Node& node = nodes_[leaf];
  const Node& parent = nodes_[node.parent];
  const std::uint64_t before = parent.is_root() ? HazardNodes::name_namespace(parent.info->name)
                                                : edges_.names(parent).back();
  HazardNodes::name_pages(before, node.tokens, node.num_pages, tree_.shape().page_size,
                          tree_.shape().overlap, edges_.names(node).data());
}

void Uses::tell_new(NodeIndex end) {
  if (!hazard_) return;
  path_.clear();
  for (NodeIndex i = end; !nodes_[i].is_root() && nodes_[i].created == 0; i = nodes_[i].parent)
    path_.push_back(i);
  bool continues = true;
  while (!path_.empty()) {
    NodeIndex i = path_.back();
    const std::uint32_t alike = hazard_->num_alike(nodes_[i], edges_.names(nodes_[i]), continues);
    if (alike < nodes_[i].num_pages) {
      i = tree_.split(i, alike);
    } else {
      path_.pop_back();
    }
    hazard_->add(i, nodes_[i], edges_.names(nodes_[i]), continues);
    continues = !hazard_->is_fresh(i);
  }
}

void Uses::observe(NodeIndex end, bool finished) {
  path_.clear();
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) path_.push_back(i);
  std::size_t seen = 0;
  for (std::size_t k = path_.size(); k-- > 0 && !hazard_->is_fresh(path_[k]);)
    seen += nodes_[path_[k]].num_pages;
  hazard_->begin(nodes_[end].end_pages, seen, finished);
  for (std::size_t k = path_.size(); k-- > 0;)
    hazard_->visit(path_[k], nodes_[path_[k]], edges_.names(nodes_[path_[k]]));
}

// ---- Proving -----------------------------------------------------------------------------------

Status Uses::check() const {
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    const Node& parent = nodes_[node.parent];
    if (!node.cut_top && !parent.is_root() && node.last_access > parent.last_access)
      status = broken("node {} used after its parent {}", i, node.parent);
  });
  return status;
}

}  // namespace pando
