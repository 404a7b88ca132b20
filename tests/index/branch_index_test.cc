// SPDX-License-Identifier: Apache-2.0
// BranchIndex: children in token order, the longest agreement with a page that is not there,
// replacing and erasing; by example and at random against brute force.
#include "index/branch_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "index/compare.h"

namespace pando {
namespace {

using Page = std::vector<Token>;

/// One parent whose children are known by their first page.
class Family {
 public:
  explicit Family(std::size_t width)
      : width_(width), branches_(nodes_, width), parent_(nodes_.alloc()) {}

  NodeIndex add(const Page& page) {
    const NodeIndex child = make_node(page);
    branches_.insert(child);
    children_[page] = child;
    return child;
  }
  void erase(const Page& page) {
    const NodeIndex child = children_.at(page);
    branches_.erase(child);
    nodes_.free(child);
    children_.erase(page);
  }
  NodeIndex replace(const Page& page) {
    const NodeIndex old = children_.at(page);
    const NodeIndex replacement = make_node(page);
    branches_.replace(old, replacement);
    nodes_.free(old);
    return children_[page] = replacement;
  }

  std::vector<NodeIndex> in_order() const {
    std::vector<NodeIndex> out;
    branches_.for_each_child(parent_, [&](NodeIndex child) { out.push_back(child); });
    return out;
  }
  std::vector<NodeIndex> expected_order() const {
    std::vector<NodeIndex> out;
    for (const auto& [page, child] : children_) out.push_back(child);
    return out;
  }
  BranchIndex::Longest longest(const Page& key) const {
    return branches_.longest(parent_, key.data(), key.size());
  }
  std::size_t agreement(const Page& page, const Page& key) const {
    return common_prefix(page.data(), key.data(), std::min(width_, key.size()));
  }
  std::size_t expected_longest(const Page& key) const {
    std::size_t best = 0;
    for (const auto& [page, child] : children_) best = std::max(best, agreement(page, key));
    return best;
  }

  const std::map<Page, NodeIndex>& children() const { return children_; }
  std::size_t num_branches() const { return branches_.num_branches(); }
  NodeSlab& nodes() { return nodes_; }

 private:
  NodeIndex make_node(const Page& page) {
    const NodeIndex child = nodes_.alloc();
    nodes_[child].parent = parent_;
    nodes_[child].tokens = pages_.emplace_back(page).data();
    return child;
  }

  std::size_t width_;
  NodeSlab nodes_;
  BranchIndex branches_;
  NodeIndex parent_;
  std::deque<Page> pages_;  // the storage behind the nodes' tokens
  std::map<Page, NodeIndex> children_;
};

TEST(BranchIndex, OfNoChildrenFindsNothing) {
  const Family family(4);
  EXPECT_EQ(family.longest({1, 2, 3, 4}).child, kNoNode);
  EXPECT_TRUE(family.in_order().empty());
}

TEST(BranchIndex, OfOneChildFindsThatOne) {
  Family family(4);
  const NodeIndex only = family.add({1, 2, 3, 4});
  EXPECT_EQ(family.longest({1, 2, 9, 9}).child, only);
  EXPECT_EQ(family.longest({1, 2, 9, 9}).length, 2u);
  EXPECT_EQ(family.longest({9, 9, 9, 9}).length, 0u);
  EXPECT_EQ(family.num_branches(), 0u);
}

TEST(BranchIndex, FindsTheChildThatAgreesLongest) {
  Family family(4);
  family.add({1, 9, 9, 9});
  family.add({1, 2, 9, 9});
  const NodeIndex longest = family.add({1, 2, 3, 9});
  family.add({2, 2, 3, 4});
  EXPECT_EQ(family.longest({1, 2, 3, 4}).child, longest);
  EXPECT_EQ(family.longest({1, 2, 3, 4}).length, 3u);
}

TEST(BranchIndex, AcceptsAKeyShorterThanAPage) {
  Family family(4);
  family.add({1, 2, 3, 4});
  family.add({1, 2, 3, 5});
  family.add({1, 7, 3, 5});
  EXPECT_EQ(family.longest({1, 2}).length, 2u);
  EXPECT_EQ(family.longest({1, 7}).length, 2u);
  EXPECT_EQ(family.longest({}).length, 0u);
}

TEST(BranchIndex, ListsChildrenInTokenOrderWhateverTheOrderOfArrival) {
  Family family(2);
  for (const Token t : {5, 1, 2'000'000'000, 3, 0, 2, 4}) family.add({t, 7});
  family.add({3, 6});
  EXPECT_EQ(family.in_order(), family.expected_order());
}

TEST(BranchIndex, HasOneBranchLessThanChildren) {
  Family family(1);
  for (Token t = 0; t < 100; ++t) family.add({t});
  EXPECT_EQ(family.num_branches(), 99u);
  for (Token t = 0; t < 99; ++t) family.erase({t});
  EXPECT_EQ(family.num_branches(), 0u);
  family.erase({99});
  EXPECT_TRUE(family.in_order().empty());
}

TEST(BranchIndex, ReplacedChildrenKeepTheirPlace) {
  Family family(2);
  for (Token t = 0; t < 9; ++t) family.add({t, t});
  for (const Token t : {0, 8, 4}) {
    const NodeIndex replacement = family.replace({t, t});
    EXPECT_EQ(family.longest({t, t}).child, replacement);
  }
  EXPECT_EQ(family.in_order(), family.expected_order());
}

TEST(BranchIndex, AnOnlyChildCanBeReplacedAndErased) {
  Family family(2);
  family.add({1, 2});
  const NodeIndex replacement = family.replace({1, 2});
  EXPECT_EQ(family.in_order(), std::vector<NodeIndex>{replacement});
  family.erase({1, 2});
  EXPECT_TRUE(family.in_order().empty());
}

TEST(BranchIndexDeathTest, SiblingsWithOneFirstPageAreRefused) {
  Family family(2);
  family.add({1, 2});
  EXPECT_DEATH(family.add({1, 2}), "same first page as its sibling");
}

RC_GTEST_PROP(BranchIndexModel, AgreesWithBruteForce, ()) {
  const auto width = *rc::gen::element<std::size_t>(1, 2, 4, 5, 16);
  const auto num_values = *rc::gen::element<Token>(2, 3, 1000, 2'147'483'647);
  const auto token = rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Token>(0, num_values));
  const auto page = rc::gen::container<Page>(width, token);
  const auto pages = *rc::gen::container<std::vector<Page>>(page);
  const auto keys = *rc::gen::container<std::vector<Page>>(page);
  Family family(width);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (!family.children().contains(pages[i])) {
      family.add(pages[i]);
    } else if (i % 2 == 0) {
      family.erase(pages[i]);
    } else {
      family.replace(pages[i]);
    }
    if (i % 5 == 4 && !family.children().empty()) {
      const Page victim = family.children().begin()->first;
      family.erase(victim);
    }
    RC_ASSERT(family.in_order() == family.expected_order());
  }
  for (std::size_t i = 0; i < keys.size() && !family.children().empty(); ++i) {
    Page key = keys[i];
    if (i < pages.size()) std::copy_n(pages[i].begin(), width / 2, key.begin());
    key.resize(1 + i % width);
    const BranchIndex::Longest found = family.longest(key);
    RC_ASSERT(found.length == family.expected_longest(key));
    const Token* tokens = family.nodes()[found.child].tokens;
    RC_ASSERT(family.agreement(Page(tokens, tokens + width), key) == found.length);
  }
}

}  // namespace
}  // namespace pando
