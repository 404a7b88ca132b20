// SPDX-License-Identifier: Apache-2.0
// Residency: nodes that leave a tier and come back, and what its proof notices.
#include <utility>

#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class ResidencyTest : public TreeParts {
 protected:
  ResidencyTest() : TreeParts({.window_pages = 2, .host = true}) {}
};

TEST_F(ResidencyTest, ANodeLeavesTheDeviceAndComesBackWithOtherPages) {
  const NodeIndex leaf = insert("abc");
  back_up(leaf, /*with_window=*/true);
  index.residency().detach_device(leaf, released, evicted);
  EXPECT_EQ(released.pages.size(), 3u);
  EXPECT_EQ(released.demoted_pages.size(), 3u);
  EXPECT_EQ(released.demoted_window_pages.size(), 3u);
  EXPECT_TRUE(index.residency().device_pages(index.node(leaf)).empty());
  prove();
  const std::vector<std::uint32_t> pages{91, 92, 93};
  index.residency().attach_device(leaf, pages, /*with_window=*/true);
  index.touch(leaf);
  EXPECT_EQ(index.residency().device_pages(index.node(leaf))[0], PageId{91});
  EXPECT_TRUE(index.residency().has_window(leaf));
  prove();
}

TEST_F(ResidencyTest, PagesThatLeaveATierAreToldOf) {
  std::vector<Tier> told;
  index.residency().on_removed = [&](Tier from, const Node&, std::uint32_t first, std::uint32_t n) {
    EXPECT_EQ(first, 0u);
    EXPECT_EQ(n, 3u);
    told.push_back(from);
  };
  const NodeIndex leaf = insert("abc");
  back_up(leaf, /*with_window=*/true);
  index.residency().detach_device(leaf, released, evicted);
  index.evictor().evict_host({.pages = 3}, released);
  EXPECT_EQ(told, (std::vector<Tier>{Tier::device, Tier::host}));
}

TEST_F(ResidencyTest, AWindowComesBackBehindWhatStaysWithout) {
  const NodeIndex leaf = insert("abcd");
  index.holds().lock(leaf);
  index.residency().detach_component(Tier::device, ComponentKind::window, leaf, released, evicted);
  const std::vector<std::uint32_t> pages{91, 92, 93};
  index.residency().attach_window(leaf, 1, pages);
  EXPECT_TRUE(index.residency().has_window(leaf));
  EXPECT_FALSE(index.residency().has_window(index.node(leaf).parent));
  EXPECT_EQ(index.node(leaf).num_pages, 3u);
  index.touch(leaf);
  prove({.locks = 1});
}

TEST_F(ResidencyTest, TheProofNoticesAPageThatIsThereTwice) {
  const NodeIndex first = insert("ab");
  const NodeIndex second = insert("cd");
  const std::uint32_t own = std::exchange(node(second).pages[0], node(first).pages[0]);
  EXPECT_FALSE(index.residency().check().ok());
  node(second).pages[0] = own;
  prove();
}

TEST_F(ResidencyTest, TheProofNoticesAHoleAboveTheDevicesPart) {
  const NodeIndex parent = insert("ab");
  insert("abcd");
  std::uint32_t* const pages = std::exchange(node(parent).pages, nullptr);
  EXPECT_FALSE(index.residency().check().ok());
  node(parent).pages = pages;
  prove();
}

}  // namespace
}  // namespace pando::testing
