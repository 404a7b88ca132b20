// SPDX-License-Identifier: Apache-2.0
// Shelves: who is a candidate, whose room is taken, and what its proof notices.
#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class ShelvesTest : public TreeParts {
 protected:
  const Shelf& device() const { return *index.shelves().shelf(Tier::device, ComponentKind::full); }
};

TEST_F(ShelvesTest, CandidatesAreTheLeavesThatNobodyHolds) {
  insert("ab");
  const NodeIndex first = insert("abc");
  insert("abd");
  EXPECT_EQ(device().num_candidates(), 2u);
  index.holds().lock(first);
  EXPECT_EQ(device().num_candidates(), 1u);
  EXPECT_EQ(device().sum().total, 4u);
  EXPECT_EQ(device().sum().evictable, 1u);
  prove({.locks = 1});
}

TEST_F(ShelvesTest, ANodeTakesTheRoomOfItsNamespacesOwner) {
  index.retention().owner_of = [](std::string_view ns) { return OwnerId(ns == "tenant" ? 3 : 0); };
  insert("abc", "tenant");
  insert("ab");
  EXPECT_EQ(device().of(3).total, 3u);
  index.retention().set_owner("tenant", 1);
  EXPECT_EQ(device().of(3).total, 0u);
  EXPECT_EQ(device().of(1).total, 3u);
  prove();
}

TEST_F(ShelvesTest, TheProofNoticesAnOldKeyAndAWrongTally) {
  const NodeIndex leaf = insert("abc");
  ++node(leaf).last_access;
  EXPECT_FALSE(index.shelves().check().ok());
  --node(leaf).last_access;
  node(leaf).owner = 1;
  EXPECT_FALSE(index.shelves().check().ok());
  node(leaf).owner = 0;
  node(leaf).in_order = false;
  EXPECT_FALSE(index.shelves().check().ok());
  node(leaf).in_order = true;
  prove();
}

}  // namespace
}  // namespace pando::testing
