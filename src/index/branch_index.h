// SPDX-License-Identifier: Apache-2.0
// The children of a node in token order: a crit-bit trie over their first pages. It answers what a
// hash cannot: which child agrees longest with a page that is not there (partial-page reuse), and
// what the children are, in an order that depends on nothing but their tokens.
//
// Invariant: children of one node differ in their first page. A node with n children has n - 1
// branches, 16 bytes each; each branch tests one bit, and positions grow downwards.
// Insert and longest: O(depth), about log2(children). Erase and replace: O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "index/node.h"

namespace pando {

class BranchIndex {
 public:
  /// `page_tokens`: raw tokens that make a first page (page size, one more for bigram keys).
  BranchIndex(NodeSlab& nodes, std::size_t page_tokens) : nodes_(nodes), width_(page_tokens) {}

  /// Adds `child` below its parent.
  void insert(NodeIndex child);
  void erase(NodeIndex child);
  /// `replacement` takes the place of `child`; same parent, same first page.
  void replace(NodeIndex child, NodeIndex replacement);

  struct Longest {
    NodeIndex child = kNoNode;
    std::size_t length = 0;  // tokens that agree
  };
  /// The child of `parent` whose first page agrees longest with tokens[0, n).
  Longest longest(NodeIndex parent, const Token* tokens, std::size_t n) const;

  /// Where erase of this child will look first, and then: to prefetch. nullptr: nowhere.
  const void* line_of(const Node& child) const {
    return child.branch_up == 0 ? nullptr : &branch(child.branch_up);
  }
  const void* next_line_of(const Node& child) const {
    if (child.branch_up == 0) return nullptr;
    const Branch& at = branch(child.branch_up);
    return at.up == 0 ? nullptr : &branch(at.up);
  }

  /// Calls fn(child) for each child of `parent` in token order.
  template <typename Fn>
  void for_each_child(NodeIndex parent, Fn&& fn) const {
    std::vector<std::uint32_t> todo{nodes_[parent].children};
    while (!todo.empty()) {
      const std::uint32_t link = todo.back();
      todo.pop_back();
      if (link == 0) continue;
      if (is_branch(link)) {
        todo.push_back(branch(link).kids[1]);
        todo.push_back(branch(link).kids[0]);
      } else {
        fn(link);
      }
    }
  }

  std::size_t num_branches() const { return branches_.size() - num_free_; }
  std::size_t memory_bytes() const { return branches_.memory_bytes(); }

 private:
  // A link names a node or, with the top bit, a branch; 0 is neither.
  static constexpr std::uint32_t kBranchBit = 1u << 31;
  static bool is_branch(std::uint32_t link) { return (link & kBranchBit) != 0; }

  struct Branch {
    std::uint32_t position;  // token * 32 + bit from the top
    std::uint32_t up;        // branch link; 0 directly under the parent node
    std::uint32_t kids[2];   // by the bit
  };
  /// Branches in chunks: growth moves nothing.
  class Chunks {
   public:
    Branch& operator[](std::size_t i) { return chunks_[i / kChunk][i % kChunk]; }
    const Branch& operator[](std::size_t i) const { return chunks_[i / kChunk][i % kChunk]; }
    std::size_t size() const { return size_; }
    std::size_t grow() {
      if (size_ == chunks_.size() * kChunk)
        chunks_.push_back(std::make_unique_for_overwrite<Branch[]>(kChunk));
      return size_++;
    }
    std::size_t memory_bytes() const { return chunks_.size() * kChunk * sizeof(Branch); }

   private:
    static constexpr std::size_t kChunk = 1024;
    std::vector<std::unique_ptr<Branch[]>> chunks_;
    std::size_t size_ = 0;
  };

  Branch& branch(std::uint32_t link) { return branches_[link & ~kBranchBit]; }
  const Branch& branch(std::uint32_t link) const { return branches_[link & ~kBranchBit]; }
  static std::uint32_t bit(const Token* tokens, std::uint32_t position) {
    return (static_cast<std::uint32_t>(tokens[position / 32]) >> (31 - position % 32)) & 1;
  }
  std::uint32_t new_branch();
  void free_branch(std::uint32_t link);
  std::uint32_t& up_of(std::uint32_t link) {
    return is_branch(link) ? branch(link).up : nodes_[link].branch_up;
  }
  /// The field that points at `link`: a kid of the branch `up`, or the parent's `children`.
  std::uint32_t& down_to(std::uint32_t link, std::uint32_t up, NodeIndex parent);

  NodeSlab& nodes_;
  std::size_t width_;
  Chunks branches_;
  std::uint32_t free_list_ = 0;
  std::size_t num_free_ = 0;
};

}  // namespace pando
