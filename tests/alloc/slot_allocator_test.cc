// SPDX-License-Identifier: Apache-2.0
// SlotAllocator by example: lowest slot first, what raises a version, and misuse.
#include "pando/slot_allocator.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

std::unique_ptr<SlotAllocator> make(std::size_t num_slots) {
  return SlotAllocator::create(num_slots).value();
}

TEST(SlotAllocator, HandsOutTheLowestFreeSlot) {
  auto slots = make(3);
  EXPECT_EQ(slots->alloc(), 0u);
  EXPECT_EQ(slots->alloc(), 1u);
  EXPECT_EQ(slots->alloc(), 2u);
  slots->free(1);
  slots->free(0);
  EXPECT_EQ(slots->alloc(), 0u);
  EXPECT_EQ(slots->alloc(), 1u);
}

TEST(SlotAllocator, ReturnsNothingWhenAllAreTaken) {
  auto slots = make(1);
  ASSERT_EQ(slots->alloc(), 0u);
  EXPECT_EQ(slots->alloc(), std::nullopt);
  EXPECT_EQ(slots->free_count(), 0u);
}

TEST(SlotAllocator, AllocRaisesTheVersionAndFreeKeepsIt) {
  auto slots = make(2);
  EXPECT_EQ(slots->version(0), 0u);
  ASSERT_EQ(slots->alloc(), 0u);
  EXPECT_EQ(slots->version(0), 1u);
  slots->free(0);
  EXPECT_EQ(slots->version(0), 1u);
  ASSERT_EQ(slots->alloc(), 0u);
  EXPECT_EQ(slots->version(0), 2u);
  EXPECT_EQ(slots->version(1), 0u);
}

TEST(SlotAllocator, OccupyKeepsTheVersionOfWhatTheSlotHolds) {
  auto slots = make(4);
  ASSERT_EQ(slots->alloc(), 0u);
  ASSERT_EQ(slots->alloc(), 1u);
  slots->free(1);
  slots->occupy(1);
  EXPECT_EQ(slots->version(1), 1u);
  EXPECT_FALSE(slots->is_free(1));
  EXPECT_EQ(slots->alloc(), 2u);
  EXPECT_EQ(slots->free_count(), 1u);
}

TEST(SlotAllocator, FindsTheLastSlotOfAMillion) {
  constexpr std::size_t kSlots = 1'000'000;
  auto slots = make(kSlots);
  for (std::size_t i = 0; i < kSlots; ++i) ASSERT_EQ(slots->alloc(), i);
  slots->free(kSlots - 1);
  EXPECT_EQ(slots->alloc(), kSlots - 1);
  EXPECT_EQ(slots->size(), kSlots);
}

TEST(SlotAllocator, RefusesASizeOfZeroOrBeyondItsIds) {
  EXPECT_EQ(SlotAllocator::create(0).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(SlotAllocator::create((std::size_t{1} << 32) + 1).error().code,
            ErrorCode::invalid_argument);
}

TEST(SlotAllocatorDeathTest, MisuseNamesTheSlot) {
  auto slots = make(8);
  ASSERT_EQ(slots->alloc(), 0u);
  EXPECT_DEATH(slots->free(3), "free of slot 3: it is already free");
  EXPECT_DEATH(slots->occupy(0), "occupy of slot 0: it is taken");
  EXPECT_DEATH(slots->free(8), "slot 8 is outside \\[0, 8\\)");
  EXPECT_DEATH(slots->occupy(9), "slot 9 is outside");
  EXPECT_DEATH((void)slots->is_free(8), "slot 8 is outside");
  EXPECT_DEATH((void)slots->version(8), "slot 8 is outside");
}

}  // namespace
}  // namespace pando
