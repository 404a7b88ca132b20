// SPDX-License-Identifier: Apache-2.0
// Tree against the set of all prefixes that are in it: random inserts, splits, removals, trims and
// joins, with and without page hashes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>
#include <vector>

#include "index/tree.h"
#include "support/random_ops.h"

namespace pando::testing {
namespace {

class Model {
 public:
  explicit Model(bool hashes) : hashes_(hashes), tree_({{.hashes = hashes}, 1}) {}

  void apply(std::uint64_t op) {
    const auto bits = [&op](std::uint64_t below) {
      const std::uint64_t value = op % below;
      op /= below;
      return value;
    };
    const std::uint64_t kind = bits(8);
    std::vector<Token> key(1 + bits(10));
    for (Token& token : key) token = static_cast<Token>(bits(3));
    const Tree::Cursor cursor = tree_.descend({key}, nullptr);
    RC_ASSERT(cursor.pages == known_length(key));
    if (kind < 4) {
      insert(key, cursor);
    } else if (cursor.pages > 0 && kind == 4) {
      tree_.split_at(cursor);
    } else if (cursor.pages > 0) {
      shrink(cursor.node, kind, static_cast<std::uint32_t>(bits(4)));
    }
    const Status proof = tree_.check();
    if (!proof.ok()) RC_FAIL(proof.error().message);
  }

 private:
  std::size_t known_length(const std::vector<Token>& key) const {
    std::size_t n = 0;
    while (n < key.size() && prefixes_.contains({key.begin(), key.begin() + to_offset(n + 1)})) ++n;
    return n;
  }
  static std::ptrdiff_t to_offset(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

  void insert(const std::vector<Token>& key, const Tree::Cursor& cursor) {
    const NodeIndex at = cursor.node == kNoNode ? tree_.add_root({}) : tree_.split_at(cursor);
    const auto rest = static_cast<std::uint32_t>(key.size() - cursor.pages);
    const std::vector<std::uint32_t> pages(rest, 1);
    if (rest > 0) tree_.add_leaf(at, key.data() + cursor.pages, rest, pages.data());
    for (std::size_t n = 1; n <= key.size(); ++n)
      prefixes_.insert({key.begin(), key.begin() + to_offset(n)});
  }
  void shrink(NodeIndex i, std::uint64_t kind, std::uint32_t keep) {
    const Node& node = tree_.nodes()[i];
    if (node.num_children == 1 && kind == 5 && !hashes_) {
      tree_.join_child(i);
    } else if (node.num_children == 0 && kind == 6 && keep > 0 && keep < node.num_pages) {
      forget(i, keep);
      tree_.trim(i, keep);
    } else if (node.num_children == 0) {
      forget(i, 0);
      tree_.remove_leaf(i);
    }
  }
  /// Pages from `keep` on of a leaf.
  void forget(NodeIndex i, std::uint32_t keep) {
    const Node& node = tree_.nodes()[i];
    std::vector<Token> path(node.end_pages);
    tree_.for_each_on_path(tree_.end_of(i), [&](NodeIndex at, std::size_t first, std::uint32_t n) {
      std::copy_n(tree_.nodes()[at].tokens, n, path.begin() + to_offset(first));
    });
    for (; path.size() > node.begin_pages() + keep; path.pop_back()) prefixes_.erase(path);
  }

  const bool hashes_;
  Tree tree_;
  std::set<std::vector<Token>> prefixes_;
};

TEST(TreeModel, WalksAsFarAsThereArePrefixes) {
  for (const bool hashes : {false, true}) {
    ASSERT_TRUE(check_random_ops(20'000, [&](const auto& ops) {
      Model model(hashes);
      for (const std::uint64_t op : ops) model.apply(op);
    }));
  }
}

}  // namespace
}  // namespace pando::testing
