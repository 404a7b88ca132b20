// SPDX-License-Identifier: Apache-2.0
// TreeRetention: grants, pins and sessions on shared paths, and what its proof notices.
#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class TreeRetentionTest : public TreeParts {};

TEST_F(TreeRetentionTest, AGrantSplitsAtItsEndsAndEndsInTime) {
  const NodeIndex end = insert("abcdef");
  index.retention().grant(end, {2, 4}, 5, 100);
  std::vector<Level> levels(6);
  index.tree().for_each_on_path(index.tree().end_of(end),
                                [&](NodeIndex i, std::size_t first, std::uint32_t n) {
                                  for (std::size_t p = first; p < first + n; ++p)
                                    levels[p] = index.node(i).level;
                                });
  EXPECT_EQ(levels, (std::vector<Level>{0, 0, 5, 5, 0, 0}));
  prove();
  index.retention().expire_grants(100);
  EXPECT_EQ(index.node(index.node(end).parent).level, 0);
  EXPECT_FALSE(index.retention().has_timed_grants());
  prove();
}

TEST_F(TreeRetentionTest, PinnedPagesOfSharedPathsCountOnce) {
  insert("ab");
  const NodeIndex first = insert("abc"), second = insert("abd");
  for (const NodeIndex end : {first, second}) {
    index.holds().lock(end);
    index.retention().count_pin(end, /*on_device=*/false);
  }
  EXPECT_EQ(index.retention().pinned_pages(/*on_device=*/false), 4u);
  prove({.locks = 2, .pins = 2});
  index.retention().uncount_pin(first, /*on_device=*/false);
  EXPECT_EQ(index.retention().pinned_pages(/*on_device=*/false), 3u);
  EXPECT_EQ(index.retention().pages_to_pin(first, /*on_device=*/false), 1u);
  prove({.locks = 2, .pins = 1});
}

TEST_F(TreeRetentionTest, TheEndOfASessionMovesUpWhenItsNodeGoes) {
  index.retention().set_session_level(2);
  const NodeIndex parent = insert("ab");
  const NodeIndex leaf = insert("abc");
  const EndIndex end = index.retention().add_end(leaf);
  EXPECT_EQ(index.node(parent).level, 2);
  prove();
  index.evictor().remove(leaf, released);
  EXPECT_EQ(index.retention().node_of(end), parent);
  prove();
  index.retention().remove_end(end);
  EXPECT_EQ(index.node(parent).level, 0);
  prove();
}

TEST_F(TreeRetentionTest, TheProofNoticesAnOldLevelAndAPinThatHoldsNothing) {
  const NodeIndex end = insert("ab");
  index.retention().keep_sessions();
  node(end).level = 1;
  EXPECT_FALSE(index.retention().check({}).ok());
  node(end).level = 0;
  index.retention().count_pin(end, /*on_device=*/true);
  EXPECT_FALSE(index.retention().check({.device_pins = 1}).ok());
}

}  // namespace
}  // namespace pando::testing
