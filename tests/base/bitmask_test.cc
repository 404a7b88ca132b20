// SPDX-License-Identifier: Apache-2.0
// HierarchicalBitmask by example, at the edges of its words and levels. Random sequences against
// std::set are in bitmask_model_test.cc.
#include "base/bitmask.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace pando {
namespace {

TEST(Bitmask, StartsEmpty) {
  const HierarchicalBitmask mask(1000);
  EXPECT_EQ(mask.count(), 0u);
  EXPECT_EQ(mask.size(), 1000u);
  EXPECT_EQ(mask.find_first(), std::nullopt);
  EXPECT_EQ(mask.find_first_from(0), std::nullopt);
}

TEST(Bitmask, SizeZeroHasNoMembers) {
  HierarchicalBitmask mask(0);
  mask.fill();
  EXPECT_EQ(mask.count(), 0u);
  EXPECT_EQ(mask.find_first(), std::nullopt);
  EXPECT_TRUE(mask.check().ok());
}

TEST(Bitmask, SetAndClearSayWhetherTheyChangedAnything) {
  HierarchicalBitmask mask(100);
  EXPECT_TRUE(mask.set(70));
  EXPECT_FALSE(mask.set(70));
  EXPECT_TRUE(mask.test(70));
  EXPECT_EQ(mask.count(), 1u);
  EXPECT_TRUE(mask.clear(70));
  EXPECT_FALSE(mask.clear(70));
  EXPECT_FALSE(mask.test(70));
  EXPECT_EQ(mask.count(), 0u);
}

TEST(Bitmask, FindsALoneMemberAtEveryLevelBoundary) {
  constexpr std::size_t kSize = 64 * 64 * 64 + 1;
  for (const std::size_t i : {0u, 1u, 63u, 64u, 4095u, 4096u, 262143u, 262144u}) {
    HierarchicalBitmask mask(kSize);
    mask.set(i);
    EXPECT_EQ(mask.find_first(), i);
    EXPECT_EQ(mask.find_first_from(i), i);
    EXPECT_EQ(mask.find_first_from(0), i);
    EXPECT_EQ(mask.find_first_from(i + 1), std::nullopt);
    EXPECT_TRUE(mask.check().ok());
    mask.clear(i);
    EXPECT_EQ(mask.find_first(), std::nullopt);
    EXPECT_TRUE(mask.check().ok());
  }
}

TEST(Bitmask, FindFirstFromSkipsEmptyWordsOnAllLevels) {
  HierarchicalBitmask mask(1 << 20);
  mask.set(5);
  mask.set((1 << 20) - 1);
  EXPECT_EQ(mask.find_first_from(6), (1u << 20) - 1);
  EXPECT_EQ(mask.find_first_from(1 << 20), std::nullopt);
  EXPECT_EQ(mask.find_first_from(std::numeric_limits<std::size_t>::max()), std::nullopt);
}

TEST(Bitmask, FillStopsAtTheSize) {
  for (const std::size_t size : {1u, 63u, 64u, 65u, 4096u, 4097u, 300000u}) {
    HierarchicalBitmask mask(size);
    mask.fill();
    EXPECT_EQ(mask.count(), size);
    EXPECT_TRUE(mask.test(size - 1));
    const Status status = mask.check();
    EXPECT_TRUE(status.ok()) << size;
    mask.reset();
    EXPECT_EQ(mask.find_first(), std::nullopt);
  }
}

TEST(Bitmask, TakeFirstRemovesTheLowestInOrder) {
  HierarchicalBitmask mask(10000);
  for (const std::size_t i : {9999u, 3u, 64u, 5000u, 65u}) mask.set(i);
  std::array<std::uint32_t, 4> lowest{};
  EXPECT_EQ(mask.take_first(std::span<std::uint32_t>(lowest)), 4u);
  EXPECT_EQ(lowest, (std::array<std::uint32_t, 4>{3, 64, 65, 5000}));
  EXPECT_EQ(mask.count(), 1u);
  EXPECT_EQ(mask.take_first(std::span<std::uint32_t>(lowest)), 1u);
  EXPECT_EQ(lowest[0], 9999u);
  EXPECT_TRUE(mask.check().ok());
}

TEST(Bitmask, CostsLittleMoreThanOneBitPerMember) {
  const HierarchicalBitmask mask(1 << 20);
  EXPECT_EQ(mask.memory_bytes(), 8u * (16384 + 256 + 4 + 1));
}

TEST(BitmaskDeathTest, RefusesWhatIsOutOfRange) {
  HierarchicalBitmask mask(100);
  EXPECT_DEATH(mask.set(100), "bit 100 is outside \\[0, 100\\)");
  EXPECT_DEATH(mask.clear(1000), "bit 1000 is outside");
  EXPECT_DEATH((void)mask.test(100), "bit 100 is outside");
}

}  // namespace
}  // namespace pando
