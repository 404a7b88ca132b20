// SPDX-License-Identifier: Apache-2.0
// Uses: how uses of paths show in nodes, and what its proof notices.
#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class UsesTest : public TreeParts {};

TEST_F(UsesTest, AUseReachesTheRootSoAParentIsNeverOlder) {
  const NodeIndex parent = insert("ab");
  const NodeIndex first = insert("abc");
  const NodeIndex second = insert("abd");
  index.touch(first);
  EXPECT_EQ(index.node(parent).last_access, index.node(first).last_access);
  EXPECT_GT(index.node(first).last_access, index.node(second).last_access);
  prove();
  node(parent).last_access = 0;
  EXPECT_FALSE(index.uses().check().ok());
}

TEST_F(UsesTest, AnInsertCountsAHitUnlessItIsOneOfSeveralChunks) {
  const NodeIndex leaf = insert("abc");
  EXPECT_EQ(index.node(leaf).hits, 1u);
  index.touch_insert(leaf, {.priority = 3, .chunked = true});
  EXPECT_EQ(index.node(leaf).hits, 1u);
  EXPECT_EQ(index.node(leaf).priority, 3);
}

TEST_F(UsesTest, BothHalvesOfASplitWereUsedAsTheWholeWas) {
  const NodeIndex end = insert("abcd");
  const NodeIndex upper = tree().split(end, 2);
  EXPECT_EQ(index.node(upper).hits, index.node(end).hits);
  EXPECT_EQ(index.uses().key(upper), index.uses().key(end));
}

}  // namespace
}  // namespace pando::testing
