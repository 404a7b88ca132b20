// SPDX-License-Identifier: Apache-2.0
// Evictor: the ways out of the tree, and what goes along.
#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class EvictorTest : public TreeParts {
 protected:
  EvictorTest() : TreeParts({.window_pages = 1, .host = true}) {}
};

TEST_F(EvictorTest, ATombstoneGoesWithItsLastChild) {
  const NodeIndex parent = insert("ab");
  const NodeIndex child = insert("abcd");
  index.residency().detach_component(Tier::device, ComponentKind::window, parent, released,
                                     evicted);
  prove();
  index.evictor().drop_subtree(child, released, evicted);
  EXPECT_EQ(index.num_nodes(), 0u);
  EXPECT_EQ(released.pages.size(), 4u);
  prove();
}

TEST_F(EvictorTest, AHeldTombstoneGoesWhenItIsLetGo) {
  const NodeIndex leaf = insert("ab");
  index.holds().lock(leaf);
  index.residency().detach_component(Tier::device, ComponentKind::window, leaf, released, evicted);
  prove({.locks = 1});
  index.unlock(leaf, released);
  EXPECT_EQ(index.num_nodes(), 0u);
  prove();
}

TEST_F(EvictorTest, WithoutAHostCopyANodeTakesAlongWhatIsBelowItOnTheHost) {
  const NodeIndex parent = insert("ab");
  const NodeIndex child = insert("abcd");
  back_up(child, /*with_window=*/true);
  index.residency().detach_device(child, released, evicted);
  EXPECT_TRUE(index.node(parent).is_candidate());
  prove();
  index.evictor().evict({.pages = 1}, /*whole_nodes=*/false, released);
  EXPECT_EQ(index.num_nodes(), 0u);
  EXPECT_EQ(released.host_pages.size(), 2u);
  prove();
}

TEST_F(EvictorTest, ANodeThatCanBeSavedStaysOnTheHost) {
  index.evictor().save_to_host = [&](NodeIndex leaf) {
    back_up(leaf, /*with_window=*/true);
    return true;
  };
  const NodeIndex leaf = insert("abcd");
  const Evicted gone = index.evictor().evict({.pages = 3}, /*whole_nodes=*/false, released);
  EXPECT_EQ(gone.pages, 3u);
  EXPECT_EQ(gone.demoted_pages, 3u);
  EXPECT_FALSE(index.node(leaf).on_device());
  EXPECT_EQ(length("abcd"), 4u);
  prove();
}

TEST_F(EvictorTest, WhatIsHeldStaysAfterItWasCutOffUntilItIsLetGo) {
  const NodeIndex top = insert("abcd");
  insert("abcdef");
  index.holds().lock(top);
  index.evictor().cut_off(top, released);
  EXPECT_EQ(length("abcd"), 0u);
  EXPECT_EQ(released.pages.size(), 2u);  // of the child, which nobody held
  prove({.locks = 1});
  index.unlock(top, released);
  EXPECT_EQ(released.pages.size(), 6u);
  EXPECT_EQ(index.num_nodes(), 0u);
  prove();
}

}  // namespace
}  // namespace pando::testing
