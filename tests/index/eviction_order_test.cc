// SPDX-License-Identifier: Apache-2.0
// EvictionOrder by example: what comes first, looking ahead, many levels, memory, misuse.
#include "index/eviction_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pando {
namespace {

using Nodes = std::vector<NodeIndex>;

EvictionKey key(std::uint64_t major, std::uint64_t minor = 0) { return {major, minor}; }

/// Appends nodes [1, n], each under its own number.
void append(EvictionOrder& order, NodeIndex n) {
  for (NodeIndex i = 1; i <= n; ++i) order.insert(key(i), i);
}

TEST(EvictionOrder, StartsEmpty) {
  const EvictionOrder order;
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(order.size(), 0u);
  EXPECT_EQ(order.front(), kNoNode);
  EXPECT_EQ(order.peek(0), kNoNode);
  EXPECT_TRUE(order.nodes().empty());
  EXPECT_TRUE(order.check().ok());
}

TEST(EvictionOrder, SortsByMajorThenMinorThenNode) {
  EvictionOrder order;
  order.insert(key(2, 0), 10);
  order.insert(key(1, 9), 20);
  order.insert(key(1, 3), 40);
  order.insert(key(1, 3), 30);
  EXPECT_EQ(order.nodes(), (Nodes{30, 40, 20, 10}));
  EXPECT_EQ(order.front(), 30u);
}

TEST(EvictionOrder, SortsTheWholeRangeOfKeys) {
  EvictionOrder order;
  order.insert(key(~std::uint64_t{0}, ~std::uint64_t{0}), 1);
  order.insert(key(0), 2);
  order.insert(key(std::uint64_t{1} << 63), 3);
  EXPECT_EQ(order.nodes(), (Nodes{2, 3, 1}));
}

TEST(EvictionOrder, EraseTakesOneEntryFromAnywhere) {
  EvictionOrder order;
  append(order, 5);
  order.erase(key(3), 3);
  EXPECT_EQ(order.nodes(), (Nodes{1, 2, 4, 5}));
  order.erase(key(1), 1);
  EXPECT_EQ(order.front(), 2u);
  order.erase(key(5), 5);
  EXPECT_EQ(order.nodes(), (Nodes{2, 4}));
}

TEST(EvictionOrder, EraseTellsEqualKeysApartByNode) {
  EvictionOrder order;
  order.insert(key(7), 1);
  order.insert(key(7), 2);
  order.erase(key(7), 1);
  EXPECT_EQ(order.nodes(), Nodes{2});
}

TEST(EvictionOrder, PeekLooksAhead) {
  EvictionOrder order;
  append(order, 10);
  EXPECT_EQ(order.peek(0), 1u);
  EXPECT_EQ(order.peek(9), 10u);
  EXPECT_EQ(order.peek(10), kNoNode);
}

TEST(EvictionOrder, PeekLooksIntoTheNextBlock) {
  EvictionOrder order;
  append(order, 100);
  for (NodeIndex i = 1; i <= 60; ++i) order.erase(key(i), i);
  EXPECT_EQ(order.peek(0), 61u);
  EXPECT_EQ(order.peek(12), 73u);
}

TEST(EvictionOrder, CanBeEmptiedAndFilledAgain) {
  EvictionOrder order;
  for (int round = 0; round < 3; ++round) {
    append(order, 5000);
    for (NodeIndex i = 1; i <= 5000; ++i) {
      ASSERT_EQ(order.front(), i);
      order.erase(key(i), i);
    }
    ASSERT_TRUE(order.empty());
    ASSERT_TRUE(order.check().ok());
  }
}

TEST(EvictionOrder, HoldsFourLevelsInAnyOrderOfArrival) {
  constexpr NodeIndex kNodes = 100'000;
  Nodes shuffled(kNodes);
  for (NodeIndex i = 0; i < kNodes; ++i) shuffled[i] = i + 1;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(1));
  EvictionOrder order;
  for (const NodeIndex i : shuffled) order.insert(key(i), i);
  ASSERT_TRUE(order.check().ok());
  EXPECT_EQ(order.size(), kNodes);
  EXPECT_EQ(order.front(), 1u);
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(2));
  for (std::size_t i = 0; i + 10 < kNodes; ++i) order.erase(key(shuffled[i]), shuffled[i]);
  ASSERT_TRUE(order.check().ok());
  Nodes left(shuffled.end() - 10, shuffled.end());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(order.nodes(), left);
}

TEST(EvictionOrderMemory, AppendingFillsBlocksToTheBrim) {
  EvictionOrder order;
  append(order, 64'000);
  EXPECT_LE(order.memory_bytes(), 64'000u * 27);
}

TEST(EvictionOrderMemory, ReturnsWithTheEntries) {
  EvictionOrder order;
  const std::size_t empty = order.memory_bytes();
  append(order, 10'000);
  for (NodeIndex i = 10'000; i > 0; --i) order.erase(key(i), i);
  EXPECT_EQ(order.memory_bytes(), empty);
}

// Survivors spread evenly, the rest gone in one pass from one end: no block may stay for one entry.
TEST(EvictionOrderMemory, FollowsTheEntriesWhenThinnedOutFromTheFront) {
  EvictionOrder order;
  append(order, 64'000);
  for (NodeIndex i = 1; i <= 64'000; ++i) {
    if (i % 64 != 0) order.erase(key(i), i);
  }
  ASSERT_EQ(order.size(), 1000u);
  ASSERT_TRUE(order.check().ok());
  EXPECT_LE(order.memory_bytes(), 4096u + 1000 * 200);
}

TEST(EvictionOrderMemory, FollowsTheEntriesWhenThinnedOutFromTheBack) {
  EvictionOrder order;
  append(order, 64'000);
  for (NodeIndex i = 64'000; i > 0; --i) {
    if (i % 64 != 0) order.erase(key(i), i);
  }
  ASSERT_EQ(order.size(), 1000u);
  ASSERT_TRUE(order.check().ok());
  EXPECT_LE(order.memory_bytes(), 4096u + 1000 * 200);
}

TEST(EvictionOrderDeathTest, EraseOfWhatIsNotThereNamesTheNode) {
  EvictionOrder order;
  EXPECT_DEATH(order.erase(key(1), 7), "node 7 is not in the eviction order");
  append(order, 200);
  EXPECT_DEATH(order.erase(key(5), 6), "node 6 is not in the eviction order");
  EXPECT_DEATH(order.erase(key(300), 300), "node 300 is not in the eviction order");
}

}  // namespace
}  // namespace pando
