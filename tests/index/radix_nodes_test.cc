// SPDX-License-Identifier: Apache-2.0
// RadixIndex for an owner that decides itself what is worth a node: pages without numbers, the next
// victim, removing a leaf, undoing a split; and a slab that grows from small.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "index/radix_index.h"

namespace pando {
namespace {

std::vector<Token> tokens(std::size_t n, Token start) {
  std::vector<Token> out(n);
  std::iota(out.begin(), out.end(), start);
  return out;
}

class RadixNodes : public ::testing::TestWithParam<bool> {
 protected:
  bool numbered() const { return GetParam(); }

  // The node at the end of these tokens, made if need be.
  NodeIndex insert(const std::vector<Token>& key) {
    const Tree::Cursor cursor = index.tree().descend({key}, nullptr);
    NodeIndex node = cursor.node == kNoNode ? index.root({}) : index.tree().split_at(cursor);
    const std::size_t rest = key.size() - cursor.pages;
    const Token* from = key.data() + cursor.pages;
    if (rest > 0 && numbered()) {
      std::vector<std::uint32_t> pages(rest);
      std::iota(pages.begin(), pages.end(), next_page);
      next_page += static_cast<std::uint32_t>(rest);
      node = index.add_leaf(node, from, pages);
    } else if (rest > 0) {
      node = index.add_leaf(node, from, static_cast<std::uint32_t>(rest));
    }
    index.touch(node);
    prove();
    return node;
  }
  std::size_t length(const std::vector<Token>& key) const {
    return index.tree().descend({key}, nullptr).pages;
  }
  void prove(std::size_t locks = 0) const {
    const Status status = index.check({.locks = locks});
    ASSERT_TRUE(status.ok()) << status.error().message << index.dump();
  }

  RadixIndex index{{.page_size = 1, .numbered = GetParam(), .hash_seed = 1}, *make_policy("lru")};
  Released released;
  std::uint32_t next_page = 1;
};

std::vector<Token> operator+(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_P(RadixNodes, TheVictimIsTheLeastRecentlyUsedLeafThatNobodyHolds) {
  EXPECT_EQ(index.evictor().victim(), kNoNode);
  const NodeIndex first = insert(tokens(4, 0));
  const NodeIndex second = insert(tokens(4, 100));
  EXPECT_EQ(index.evictor().victim(), first);
  index.holds().lock(first);
  EXPECT_EQ(index.evictor().victim(), second);
  index.holds().lock(second);
  EXPECT_EQ(index.evictor().victim(), kNoNode);
  prove(2);
}

TEST_P(RadixNodes, RemovingALeafReleasesThePagesThatHaveNumbers) {
  const NodeIndex leaf = insert(tokens(4, 0));
  insert(tokens(2, 0) + tokens(2, 100));
  index.evictor().remove(leaf, released);
  prove();
  EXPECT_EQ(length(tokens(4, 0)), 2u);
  EXPECT_EQ(released.pages.size(), numbered() ? 2u : 0u);
  EXPECT_EQ(index.num_nodes(), 3u);
}

TEST_P(RadixNodes, JoiningTheHalvesOfASplitUndoesIt) {
  const NodeIndex lower = insert(tokens(8, 0));
  const NodeIndex upper = insert(tokens(3, 0));
  ASSERT_EQ(index.num_nodes(), 3u);
  const std::size_t before = index.memory_bytes();
  EXPECT_EQ(index.join_child(upper), lower);
  prove();
  EXPECT_EQ(index.num_nodes(), 2u);
  EXPECT_EQ(index.memory_bytes(), before);
  EXPECT_EQ(index.node(lower).num_pages, 8u);
  EXPECT_EQ(length(tokens(8, 0)), 8u);
}

TEST_P(RadixNodes, JoiningAnExtensionMakesOneBlockOfTwo) {
  const NodeIndex upper = insert(tokens(5, 0));
  const NodeIndex lower = insert(tokens(9, 0));
  EXPECT_EQ(index.join_child(upper), lower);
  prove();
  EXPECT_EQ(index.num_nodes(), 2u);
  EXPECT_EQ(length(tokens(9, 0)), 9u);
  EXPECT_EQ(index.all_pages().size(), numbered() ? 9u : 0u);
}

TEST_P(RadixNodes, JoiningKeepsTheLocksAndTheRestOfAnUpperBlock) {
  const NodeIndex middle = insert(tokens(8, 0));
  const NodeIndex top = insert(tokens(6, 0));
  insert(tokens(6, 0) + tokens(3, 50));
  const NodeIndex end = insert(tokens(20, 0));
  index.holds().lock(end);
  EXPECT_EQ(index.join_child(middle), end);
  prove(1);
  EXPECT_EQ(index.node(end).parent, top);
  EXPECT_EQ(index.node(end).num_pages, 14u);
  EXPECT_EQ(length(tokens(20, 0)), 20u);
  index.unlock(end, released);
  prove();
}

TEST_P(RadixNodes, ABlockThatGoesOnBelowIsNotTornApart) {
  const NodeIndex upper = insert(tokens(4, 0));
  insert(tokens(12, 0));
  insert(tokens(8, 0) + tokens(2, 100));  // splits the second block
  EXPECT_EQ(index.join_child(upper), kNoNode);
  prove();
  EXPECT_EQ(length(tokens(12, 0)), 12u);
}

TEST_P(RadixNodes, NodesStayThemselvesWhileTheirTableGrows) {
  constexpr Token kCount = 20'000;
  std::vector<NodeId> ids;
  for (Token i = 0; i < kCount; ++i) {
    const Token key[] = {i, 7};
    const std::uint32_t pages[] = {next_page++, next_page++};
    const NodeIndex root = index.root({});
    const NodeIndex leaf =
        numbered() ? index.add_leaf(root, key, pages) : index.add_leaf(root, key, std::uint32_t{2});
    index.touch(leaf);
    ids.push_back(index.id(leaf));
  }
  for (Token i = 0; i < kCount; ++i) {
    const Token key[] = {i, 7};
    ASSERT_EQ(index.tree().descend({key}, nullptr).node,
              index.resolve(ids[static_cast<std::size_t>(i)]));
  }
  prove();
}

TEST_P(RadixNodes, ASmallTreeIsSmall) {
  insert(tokens(4, 0));
  EXPECT_LT(index.memory_bytes(), 100'000u);
}

INSTANTIATE_TEST_SUITE_P(Pages, RadixNodes, ::testing::Bool(), [](const auto& numbered) {
  return numbered.param ? "Numbered" : "Unnumbered";
});

TEST(NodeTable, MovesItsFirstChunkAndKeepsWhatIsInIt) {
  NodeTable<std::unique_ptr<int>> table;
  for (NodeIndex i = 1; i < 40'000; ++i) {
    table.reach(i);
    table[i] = std::make_unique<int>(static_cast<int>(i));
  }
  for (NodeIndex i = 1; i < 40'000; ++i) ASSERT_EQ(*table[i], static_cast<int>(i));
  EXPECT_EQ(table.end(), 40'000u);
  EXPECT_EQ(table.memory_bytes(), 3 * 16'384 * sizeof(std::unique_ptr<int>));
}

}  // namespace
}  // namespace pando
