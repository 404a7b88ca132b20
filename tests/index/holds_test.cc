// SPDX-License-Identifier: Apache-2.0
// Holds: counts of locks up a path, windows that are held, and what its proof notices.
#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class HoldsTest : public TreeParts {
 protected:
  HoldsTest() : TreeParts({.window_pages = 2, .host = true}) {}
};

TEST_F(HoldsTest, AParentCountsAHeldChildOnceHoweverManyHoldIt) {
  const NodeIndex parent = insert("ab");
  const NodeIndex child = insert("abcd");
  index.holds().lock(child);
  index.holds().lock(child);
  EXPECT_EQ(index.node(child).locks, 2u);
  EXPECT_EQ(index.node(parent).locks, 1u);
  prove({.locks = 2});
  index.unlock(child, released);
  index.unlock(child, released);
  EXPECT_EQ(index.node(parent).locks, 0u);
  prove();
}

TEST_F(HoldsTest, BothHalvesOfAHeldNodeAreHeldOnce) {
  const NodeIndex end = insert("abcd");
  index.holds().lock(end);
  index.holds().lock(end);
  index.holds().lock_host(end);
  const NodeIndex upper = tree().split(end, 1);
  EXPECT_EQ(index.node(upper).locks, 1u);
  EXPECT_EQ(index.node(upper).host_locks, 1u);
  prove({.locks = 2, .host_locks = 1});
}

TEST_F(HoldsTest, AWindowIsHeldAsFarBackAsAMatchNeedsIt) {
  const NodeIndex end = insert("abcdef");
  index.holds().lock(end);
  EXPECT_EQ(index.holds().lock_window(end), 4u);
  EXPECT_EQ(index.node(end).num_pages, 2u);  // split there
  prove({.locks = 1});
  index.holds().unlock_window(end, 4);
  index.unlock(end, released);
  prove();
}

TEST_F(HoldsTest, TheProofCountsHolds) {
  const NodeIndex end = insert("abcd");
  index.holds().lock(end);
  EXPECT_FALSE(index.check({}).ok());
  EXPECT_FALSE(index.check({.locks = 2}).ok());
  prove({.locks = 1});
}

TEST_F(HoldsTest, TheProofNoticesAHeldWindowOfANodeThatNobodyHolds) {
  const NodeIndex end = insert("ab");
  index.holds().lock_window(end);
  EXPECT_FALSE(index.check({}).ok());
  index.holds().unlock_window(end, 0);
  prove();
}

}  // namespace
}  // namespace pando::testing
