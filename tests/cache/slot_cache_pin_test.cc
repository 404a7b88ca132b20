// SPDX-License-Identifier: Apache-2.0
// Pins of SlotCache: what they keep, what they let pass, how they are counted, and what happens
// when the engine takes a pinned slot away itself.
#include <gtest/gtest.h>

#include "support/slot_fixture.h"

namespace pando::testing {
namespace {

TEST(SlotCachePin, ItsSlotIsNotGivenAway) {
  TestSlots slots(2);
  const std::size_t pinned = slots.leave(tokens(8));
  const std::size_t other = slots.leave(tokens(8, 100));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  slots.prove();
  EXPECT_EQ(slots.take(), other);
  EXPECT_EQ(slots->take(), std::nullopt);
  ASSERT_TRUE(slots->release({tokens(8)}).ok());
  EXPECT_EQ(slots.take(), pinned);
}

TEST(SlotCachePin, OneSlotIsEnoughToKeepASharedPrefix) {
  TestSlots slots(3);
  for (const Token own : {100, 200, 300}) slots.leave(tokens(8) + tokens(4, own));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  slots.take();
  slots.take();
  EXPECT_EQ(slots->take(), std::nullopt);
  EXPECT_EQ(slots.length(tokens(8)), 8u);
}

TEST(SlotCachePin, IsCounted) {
  TestSlots slots(1);
  slots.leave(tokens(8));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  EXPECT_EQ(slots->stats().num_pinned, 1u);
  ASSERT_TRUE(slots->release({tokens(8)}).ok());
  EXPECT_EQ(slots->take(), std::nullopt);
  ASSERT_TRUE(slots->release({tokens(8)}).ok());
  EXPECT_EQ(slots->take(), 0u);
}

TEST(SlotCachePin, OfWhatNoSlotHoldsIsNotFound) {
  TestSlots slots;
  slots.fill(tokens(8));
  EXPECT_TRUE(fails(slots->pin({tokens(9)}), ErrorCode::not_found, "only the first 8"));
  EXPECT_TRUE(fails(slots->pin({tokens(8), "other"}), ErrorCode::not_found, "only the first 0"));
}

TEST(SlotCachePin, ReleaseOfWhatIsNotPinnedIsNotFound) {
  TestSlots slots;
  slots.fill(tokens(8));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  EXPECT_TRUE(fails(slots->release({tokens(7)}), ErrorCode::not_found, "7 tokens that are not"));
  EXPECT_TRUE(fails(slots->release({tokens(9)}), ErrorCode::not_found, "not pinned"));
  EXPECT_TRUE(fails(slots->release({tokens(8), "x"}), ErrorCode::not_found, "not pinned"));
  ASSERT_TRUE(slots->release({tokens(8)}).ok());
  EXPECT_TRUE(fails(slots->release({tokens(8)}), ErrorCode::not_found, "not pinned"));
}

TEST(SlotCachePin, SurvivesSplitsAndJoinsAroundIt) {
  TestSlots slots(8);
  const std::size_t first = slots.leave(tokens(16));
  ASSERT_TRUE(slots->pin({tokens(11)}).ok());
  const std::size_t second = slots.fill(tokens(4) + tokens(4, 100));
  slots.fill(tokens(11) + tokens(2, 200));
  slots.fill(tokens(14) + tokens(2, 300));
  slots->insert({tokens(2, 900)}, second).value();
  slots.prove();
  ASSERT_TRUE(slots->release({tokens(11)}).ok());
  slots.prove();
  EXPECT_EQ(slots.find(tokens(16)).slot, first);
}

TEST(SlotCachePin, IsNotEvicted) {
  TestSlots slots(8, {.max_nodes = 3});
  slots.leave(tokens(8, 100));
  ASSERT_TRUE(slots->pin({tokens(8, 100)}).ok());
  for (const Token own : {200, 300, 400}) slots.leave(tokens(8, own));
  EXPECT_EQ(slots.length(tokens(8, 100)), 8u);
  EXPECT_EQ(slots.length(tokens(8, 200)), 0u);
}

TEST(SlotCachePin, WhenEverythingIsPinnedTheBoundIsPassed) {
  TestSlots slots(8, {.max_nodes = 3});
  for (const Token own : {100, 200}) {
    slots.leave(tokens(8, own));
    ASSERT_TRUE(slots->pin({tokens(8, own)}).ok());
  }
  EXPECT_EQ(slots->stats().nodes_over, 0u);
  ASSERT_TRUE(slots->pin({tokens(4, 100)}).ok());
  EXPECT_EQ(slots->stats().nodes_over, 1u);
  slots.prove();
  slots.leave(tokens(8, 300));  // the only leaf that may go
  EXPECT_EQ(slots.length(tokens(8, 300)), 0u);
  EXPECT_EQ(slots->stats().nodes_over, 1u);
  ASSERT_TRUE(slots->release({tokens(4, 100)}).ok());
  EXPECT_EQ(slots->stats().nodes_over, 0u);
}

TEST(SlotCachePin, NobodyContinuesInItsSlotBeforeItsEnd) {
  TestSlots slots(2);
  const std::size_t slot = slots.leave(tokens(16));
  ASSERT_TRUE(slots->pin({tokens(12)}).ok());
  const SlotMatch early = slots.find(tokens(8) + tokens(1, 99));
  EXPECT_EQ(early.length, 8u);
  EXPECT_FALSE(early.free);
  EXPECT_TRUE(fails(slots->occupy(early), ErrorCode::in_use, "needs more of slot 0 than 8 tokens"));
  const SlotMatch late = slots.find(tokens(14));
  EXPECT_TRUE(late.free);
  ASSERT_TRUE(slots.occupy(late));
  EXPECT_EQ(slots.length(tokens(16)), 14u);
  slots.free(slot);
  EXPECT_EQ(slots.length(tokens(12)), 12u);
}

TEST(SlotCachePin, PassesToAnotherSlotThatHoldsThePrefix) {
  TestSlots slots(3);
  const std::size_t first = slots.leave(tokens(8) + tokens(2, 100));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  const std::size_t second = slots.leave(tokens(8) + tokens(2, 200));
  ASSERT_EQ(slots.allocator->alloc(), first);  // the engine breaks its own pin
  slots.prove();
  EXPECT_EQ(slots.take(), 2u);
  EXPECT_EQ(slots->take(), std::nullopt);  // `second` is kept now
  EXPECT_EQ(slots.find(tokens(8)).slot, second);
}

TEST(SlotCachePin, WaitsForTheNextSlotIfNoneIsLeft) {
  TestSlots slots(2);
  const std::size_t first = slots.leave(tokens(8));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  ASSERT_EQ(slots.allocator->alloc(), first);
  slots.prove();
  EXPECT_EQ(slots.length(tokens(8)), 0u);
  EXPECT_EQ(slots->pin({tokens(8)}).error().code, ErrorCode::not_found);
  slots.free(first);
  slots->insert({tokens(10)}, first).value();
  slots.prove();
  EXPECT_EQ(slots.take(), 1u);
  EXPECT_EQ(slots->take(), std::nullopt);
  ASSERT_TRUE(slots->release({tokens(8)}).ok());
  EXPECT_EQ(slots.take(), first);
}

TEST(SlotCachePin, WithoutASlotItCanStillBeReleased) {
  TestSlots slots(1);
  slots.leave(tokens(8));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  ASSERT_EQ(slots.allocator->alloc(), 0u);
  EXPECT_EQ(slots->stats().num_nodes, 2u);
  ASSERT_TRUE(slots->release({tokens(8)}).ok());
  EXPECT_EQ(slots->stats().num_nodes, 0u);
  slots.prove();
}

TEST(SlotCachePin, ClearIsRefusedMeanwhile) {
  TestSlots slots;
  slots.leave(tokens(8));
  ASSERT_TRUE(slots->pin({tokens(8)}).ok());
  EXPECT_TRUE(fails(slots->clear(), ErrorCode::in_use, "1 prefixes are pinned"));
  EXPECT_EQ(slots.length(tokens(8)), 8u);
}

}  // namespace
}  // namespace pando::testing
