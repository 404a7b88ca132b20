// SPDX-License-Identifier: Apache-2.0
// Tree and Edges alone, without the parts that hang something on nodes.
#include "index/tree.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class TreeTest : public ::testing::Test {
 protected:
  NodeIndex insert(std::string_view text, std::string_view ns = {}) {
    const std::vector<Token> tokens = letters(text);
    const Tree::Cursor cursor = tree.descend({tokens, ns}, nullptr);
    const NodeIndex at = cursor.node == kNoNode ? tree.add_root(ns) : tree.split_at(cursor);
    if (cursor.pages == tokens.size()) return at;
    const std::vector<std::uint32_t> pages(tokens.size() - cursor.pages, 7);
    return tree.add_leaf(at, tokens.data() + cursor.pages, static_cast<std::uint32_t>(pages.size()),
                         pages.data());
  }
  std::size_t length(std::string_view text, std::string_view ns = {}) const {
    const std::vector<Token> tokens = letters(text);
    return tree.descend({tokens, ns}, nullptr).pages;
  }
  void prove() const {
    const Status status = tree.check();
    ASSERT_TRUE(status.ok()) << status.error().message;
  }

  Tree tree{{.hash_seed = 1}};
};

TEST_F(TreeTest, ASplitKeepsTheLowerHalfAndTellsOfBoth) {
  std::vector<std::pair<NodeIndex, NodeIndex>> told;
  tree.on_split = [&](NodeIndex upper, NodeIndex lower) { told.emplace_back(upper, lower); };
  const NodeIndex end = insert("abcdef");
  const NodeId id = tree.nodes().id(end);
  const NodeIndex upper = insert("abc");
  EXPECT_EQ(told, (std::vector<std::pair<NodeIndex, NodeIndex>>{{upper, end}}));
  EXPECT_EQ(tree.nodes().resolve(id), end);
  EXPECT_EQ(tree.nodes()[end].parent, upper);
  EXPECT_EQ(tree.nodes()[upper].segment, tree.nodes()[end].segment);
  prove();
}

TEST_F(TreeTest, ARootGoesWithItsLastChild) {
  const NodeIndex leaf = insert("abc", "tenant");
  EXPECT_EQ(tree.namespaces(), std::vector<std::string_view>{"tenant"});
  EXPECT_EQ(tree.remove_leaf(leaf), kNoNode);
  EXPECT_EQ(tree.find_root("tenant"), kNoNode);
  EXPECT_EQ(tree.nodes().num_live(), 0u);
  prove();
}

TEST_F(TreeTest, ATrimmedLeafHasAnotherEndSoItsHandleIsStale) {
  const NodeIndex leaf = insert("abcdef");
  const NodeId id = tree.nodes().id(leaf);
  tree.trim(leaf, 2);
  EXPECT_EQ(tree.nodes().resolve(id), kNoNode);
  EXPECT_EQ(length("abcdef"), 2u);
  prove();
}

TEST_F(TreeTest, ASegmentShrinksOnceMoreThanHalfIsDead) {
  const NodeIndex lower = insert("abcdefgh");
  insert("ab");
  const std::size_t before = tree.edges().memory_bytes();
  tree.remove_leaf(lower);
  prove();
  EXPECT_LE(tree.edges().memory_bytes(), before);
  EXPECT_EQ(length("abcdefgh"), 2u);
}

TEST_F(TreeTest, NoWalkFindsWhatWasCut) {
  const NodeIndex top = insert("abcd");
  insert("abcdef");
  insert("xy");
  tree.cut(top);
  EXPECT_EQ(length("abcdef"), 0u);
  EXPECT_EQ(length("xy"), 2u);
  EXPECT_EQ(tree.below(top).size(), 1u);
  prove();
}

TEST_F(TreeTest, ThePageThatAgreesLongestIsInTheNodeOrInAChild) {
  Tree wide{{.edges = {.shape = {.page_size = 4}}, .hash_seed = 1}};
  const std::vector<std::uint32_t> pages{1, 2};
  const NodeIndex root = wide.add_root({});
  const NodeIndex leaf = wide.add_leaf(root, letters("abcdefgh").data(), 2, pages.data());
  const std::vector<Token> in_node = letters("abcdefxx"), in_child = letters("abxxxxxx");
  const Tree::NearestPage inside = wide.nearest_page({in_node}, wide.descend({in_node}, nullptr));
  EXPECT_EQ(inside.node, leaf);
  EXPECT_EQ(inside.page_in_node, 1u);
  EXPECT_EQ(inside.length, 2u);
  const Tree::NearestPage below = wide.nearest_page({in_child}, wide.descend({in_child}, nullptr));
  EXPECT_EQ(below.node, leaf);
  EXPECT_EQ(below.page_in_node, 0u);
  EXPECT_EQ(below.length, 2u);
}

TEST_F(TreeTest, NodesInOrderArePathByPathByTokens) {
  insert("b");
  insert("ab");
  insert("aa");
  std::vector<std::uint32_t> ends;
  tree.for_each_in_order([&](NodeIndex i) { ends.push_back(tree.nodes()[i].end_pages); });
  EXPECT_EQ(ends, (std::vector<std::uint32_t>{0, 1, 2, 2, 1}));  // root, a, aa, ab, b
}

TEST_F(TreeTest, HashesThatComeLateAreThoseOfTheChain) {
  insert("abcd");
  insert("abxy");
  tree.keep_hashes();
  prove();  // Edges compares every one
  insert("abxyz");
  prove();
}

TEST_F(TreeTest, TheProofNoticesAWrongCount) {
  const NodeIndex leaf = insert("abc");
  tree.nodes()[leaf].num_children = 1;
  EXPECT_FALSE(tree.check().ok());
  tree.nodes()[leaf].num_children = 0;
  ++tree.nodes()[leaf].end_pages;
  EXPECT_FALSE(tree.check().ok());
  --tree.nodes()[leaf].end_pages;
  ++tree.nodes()[leaf].segment->live_pages;
  EXPECT_FALSE(tree.edges().check().ok());
  --tree.nodes()[leaf].segment->live_pages;
  prove();
}

}  // namespace
}  // namespace pando::testing
