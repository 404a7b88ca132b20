// SPDX-License-Identifier: Apache-2.0
// What RadixIndex tells a policy that learns: names of pages, new nodes, requests.
#include "index/radix_index.h"

namespace pando {

void RadixIndex::set_attention_tokens(double tokens) {
  if (hazard_)
    hazard_->index().cost_per_depth = static_cast<float>(static_cast<double>(page_size_) / tokens);
}

void RadixIndex::name_pages(NodeIndex leaf) {
  const Node& node = nodes_[leaf];
  const Node& parent = nodes_[node.parent];
  const std::uint64_t before =
      parent.is_root() ? HazardNodes::name_namespace(parent.info->name) : names(parent).back();
  HazardNodes::name_pages(before, node.tokens, node.num_pages, page_size_, overlap_,
                          segments_.names(node.segment));
}

// The nodes that this insert has added. Parts that have been seen before, or that had other numbers
// of hits, become nodes of their own.
void RadixIndex::tell_new(NodeIndex end) {
  path_.clear();
  for (NodeIndex i = end; !nodes_[i].is_root() && nodes_[i].created == 0; i = nodes_[i].parent)
    path_.push_back(i);
  bool continues = true;
  while (!path_.empty()) {
    NodeIndex i = path_.back();
    const std::uint32_t alike = hazard_->num_alike(nodes_[i], names(nodes_[i]), continues);
    if (alike < nodes_[i].num_pages) {
      i = split(i, alike);
    } else {
      path_.pop_back();
    }
    hazard_->add(i, nodes_[i], names(nodes_[i]), continues);
    continues = !hazard_->is_fresh(i);
  }
}

void RadixIndex::observe(NodeIndex end, bool finished) {
  path_.clear();
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) path_.push_back(i);
  std::size_t seen = 0;
  for (std::size_t k = path_.size(); k-- > 0 && !hazard_->is_fresh(path_[k]);)
    seen += nodes_[path_[k]].num_pages;
  hazard_->begin(nodes_[end].end_pages, seen, finished);
  for (std::size_t k = path_.size(); k-- > 0;)
    hazard_->visit(path_[k], nodes_[path_[k]], names(nodes_[path_[k]]));
}

}  // namespace pando
