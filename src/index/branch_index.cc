// SPDX-License-Identifier: Apache-2.0
// Crit-bit insertion, removal and search; see the header for what it is for.
#include "index/branch_index.h"

#include <bit>

#include "base/check.h"
#include "index/compare.h"

namespace pando {

std::uint32_t BranchIndex::new_branch() {
  if (free_list_ == 0) return static_cast<std::uint32_t>(branches_.grow()) | kBranchBit;
  const std::uint32_t link = free_list_;
  free_list_ = branch(link).up;
  --num_free_;
  return link;
}

void BranchIndex::free_branch(std::uint32_t link) {
  branch(link).up = free_list_;
  free_list_ = link;
  ++num_free_;
}

std::uint32_t& BranchIndex::down_to(std::uint32_t link, std::uint32_t up, NodeIndex parent) {
  if (up == 0) return nodes_[parent].children;
  Branch& above = branch(up);
  return above.kids[above.kids[1] == link];
}

void BranchIndex::insert(NodeIndex child) {
  Node& node = nodes_[child];
  Node& parent = nodes_[node.parent];
  node.branch_up = 0;
  if (parent.children == 0) {
    parent.children = child;
    return;
  }
  // The child that agrees longest tells where the new one branches off ...
  std::uint32_t link = parent.children;
  while (is_branch(link)) link = branch(link).kids[bit(node.tokens, branch(link).position)];
  const Token* other = nodes_[link].tokens;
  const std::size_t same = common_prefix(node.tokens, other, width_);
  PANDO_CHECK(same < width_, "node {} has the same first page as its sibling {}", child, link);
  const auto differ = static_cast<std::uint32_t>(node.tokens[same] ^ other[same]);
  const auto position =
      static_cast<std::uint32_t>(same) * 32 + static_cast<std::uint32_t>(std::countl_zero(differ));
  // ... and the place is on the way back up, above everything that branches later.
  std::uint32_t up = up_of(link);
  while (up != 0 && branch(up).position > position) {
    link = up;
    up = branch(up).up;
  }
  const std::uint32_t added = new_branch();
  down_to(link, up, node.parent) = added;
  const std::uint32_t side = bit(node.tokens, position);
  Branch& fresh = branch(added);
  fresh.position = position;
  fresh.up = up;
  fresh.kids[side] = child;
  fresh.kids[1 - side] = link;
  up_of(link) = added;
  node.branch_up = added;
}

void BranchIndex::erase(NodeIndex child) {
  Node& node = nodes_[child];
  const std::uint32_t gone = node.branch_up;
  node.branch_up = 0;
  if (gone == 0) {
    nodes_[node.parent].children = 0;
    return;
  }
  const Branch& old = branch(gone);
  const std::uint32_t sibling = old.kids[old.kids[0] == child];
  down_to(gone, old.up, node.parent) = sibling;
  up_of(sibling) = old.up;
  free_branch(gone);
}

void BranchIndex::replace(NodeIndex child, NodeIndex replacement) {
  Node& old = nodes_[child];
  down_to(child, old.branch_up, old.parent) = replacement;
  nodes_[replacement].branch_up = old.branch_up;
  old.branch_up = 0;
}

BranchIndex::Longest BranchIndex::longest(NodeIndex parent, const Token* tokens,
                                          std::size_t n) const {
  std::uint32_t link = nodes_[parent].children;
  if (link == 0) return {};
  while (is_branch(link)) {
    const Branch& at = branch(link);
    // Past the end of the key every child below agrees equally long.
    link = at.kids[at.position / 32 < n ? bit(tokens, at.position) : 0];
  }
  const std::size_t same = common_prefix(nodes_[link].tokens, tokens, n < width_ ? n : width_);
  return {link, same};
}

}  // namespace pando
