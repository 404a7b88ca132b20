// SPDX-License-Identifier: Apache-2.0
// SlotCache by example: what is found, which slot is given, continuing in a slot, what ends
// knowledge. Pins are in slot_cache_pin_test.cc, copies in slot_cache_copy_test.cc, the bound on
// nodes and bad input in slot_cache_bounds_test.cc.
#include <gtest/gtest.h>

#include "support/slot_fixture.h"

namespace pando::testing {
namespace {

// ---- Finding.

TEST(SlotCacheFind, TheLongestPrefixToTheToken) {
  TestSlots slots;
  const std::size_t slot = slots.fill(tokens(10));
  const SlotMatch match = slots.find(tokens(7) + tokens(5, 100));
  EXPECT_EQ(match.length, 7u);
  EXPECT_EQ(match.slot, slot);
  EXPECT_EQ(match.version, 1u);
  EXPECT_EQ(slots.length(tokens(10)), 10u);
  EXPECT_EQ(slots.length(tokens(20)), 10u);
  EXPECT_EQ(slots.length(tokens(1)), 1u);
  EXPECT_EQ(slots.length(tokens(5, 100)), 0u);
}

TEST(SlotCacheFind, OfTwoSequencesTheOneThatAgreesLonger) {
  TestSlots slots;
  slots.fill(tokens(4) + tokens(4, 100));
  const std::size_t second = slots.fill(tokens(4) + tokens(4, 200));
  const SlotMatch match = slots.find(tokens(4) + tokens(3, 200));
  EXPECT_EQ(match.length, 7u);
  EXPECT_EQ(match.slot, second);
}

TEST(SlotCacheFind, NamespacesNeverShare) {
  TestSlots slots;
  slots.fill(tokens(8), "lora-a");
  EXPECT_EQ(slots.length(tokens(8)), 0u);
  EXPECT_EQ(slots.length(tokens(8), "lora-b"), 0u);
  EXPECT_EQ(slots.length(tokens(8), "lora-a"), 8u);
}

TEST(SlotCacheFind, PrefersASlotThatIsFree) {
  TestSlots slots;
  const std::size_t first = slots.fill(tokens(8) + tokens(2, 100));
  const std::size_t second = slots.fill(tokens(8) + tokens(2, 200));
  slots.fill(tokens(8));
  EXPECT_FALSE(slots.find(tokens(8)).free);
  slots.free(first);
  EXPECT_EQ(slots.find(tokens(8)).slot, first);
  EXPECT_TRUE(slots.find(tokens(8)).free);
  ASSERT_TRUE(slots.occupy(slots.find(tokens(8) + tokens(2, 100))));
  slots.allocator->free(second);  // told to the allocator alone
  EXPECT_EQ(slots.find(tokens(8)).slot, second);
}

TEST(SlotCacheFind, PrefersAFreeSlotThatEndsThereOverALongerOne) {
  TestSlots slots;
  slots.leave(tokens(8) + tokens(2, 100));
  const std::size_t exact = slots.leave(tokens(8));
  EXPECT_EQ(slots.find(tokens(8) + tokens(2, 300)).slot, exact);
}

TEST(SlotCacheFind, ProbeChangesNothing) {
  TestSlots slots(2);
  const std::size_t older = slots.leave(tokens(4));
  slots.leave(tokens(4, 100));
  EXPECT_EQ(slots.length(tokens(4)), 4u);
  EXPECT_EQ(slots.take(), older);
}

// ---- Giving slots.

TEST(SlotCacheTake, GivesBlankSlotsFirstThenTheLeastRecentlyUsed) {
  TestSlots slots(3);
  EXPECT_EQ(slots.leave(tokens(4, 100)), 0u);
  EXPECT_EQ(slots.leave(tokens(4, 200)), 1u);
  EXPECT_EQ(slots.take(), 2u);
  EXPECT_EQ(slots.find(tokens(4, 100)).slot, 0u);
  EXPECT_EQ(slots.take(), 1u);
  EXPECT_EQ(slots.length(tokens(4, 200)), 0u);
  EXPECT_EQ(slots.length(tokens(4, 100)), 4u);
  EXPECT_EQ(slots.take(), 0u);
  EXPECT_EQ(slots->take(), std::nullopt);
  EXPECT_EQ(slots.allocator->version(1), 2u);
}

TEST(SlotCacheTake, ASlotThatWasGivenBackWithoutAWordIsBlank) {
  TestSlots slots(2);
  const std::size_t silent = slots.take();
  slots.leave(tokens(4));
  slots.free(silent);
  EXPECT_EQ(slots.take(), silent);
}

TEST(SlotCacheTake, GivingASlotBackCountsAsAUse) {
  TestSlots slots(2);
  const std::size_t first = slots.fill(tokens(4, 100));
  const std::size_t second = slots.fill(tokens(4, 200));
  slots.free(second);
  slots.free(first);
  EXPECT_EQ(slots.take(), second);
}

// ---- Continuing in a slot.

TEST(SlotCacheOccupy, KeepsTheVersionAndTakesTheSlot) {
  TestSlots slots;
  const std::size_t slot = slots.leave(tokens(8));
  const SlotMatch match = slots.find(tokens(12));
  ASSERT_TRUE(match.free);
  ASSERT_TRUE(slots.occupy(match));
  EXPECT_FALSE(slots.allocator->is_free(slot));
  EXPECT_EQ(slots.allocator->version(slot), 1u);
  EXPECT_EQ(slots.length(tokens(12)), 8u);
}

// The rest of the old sequence is being overwritten: finding it would give bytes that are gone.
TEST(SlotCacheOccupy, ForgetsWhatWillBeOverwritten) {
  TestSlots slots;
  const std::size_t slot = slots.leave(tokens(8) + tokens(8, 100));
  ASSERT_TRUE(slots.occupy(slots.find(tokens(8) + tokens(2, 200))));
  EXPECT_EQ(slots.length(tokens(8) + tokens(8, 100)), 8u);
  slots->insert({tokens(8) + tokens(2, 200)}, slot).value();
  slots.free(slot);
  EXPECT_EQ(slots.length(tokens(8) + tokens(8, 100)), 8u);
  EXPECT_EQ(slots.length(tokens(8) + tokens(2, 200)), 10u);
}

TEST(SlotCacheOccupy, WhatOtherSlotsHoldBeyondItStays) {
  TestSlots slots;
  slots.fill(tokens(8) + tokens(8, 100));
  slots.leave(tokens(8) + tokens(8, 200));
  const SlotMatch match = slots.find(tokens(9));
  ASSERT_TRUE(match.free);
  ASSERT_TRUE(slots.occupy(match));
  EXPECT_EQ(slots.length(tokens(8) + tokens(8, 100)), 16u);
  EXPECT_EQ(slots.length(tokens(8) + tokens(8, 200)), 8u);
}

TEST(SlotCacheOccupy, AMatchIsGoodOnlyOnce) {
  TestSlots slots;
  const std::size_t slot = slots.leave(tokens(8));
  const SlotMatch first = slots.find(tokens(8));
  const SlotMatch second = slots.find(tokens(8));
  ASSERT_TRUE(slots.occupy(first));
  EXPECT_FALSE(slots.occupy(second));
  slots.free(slot);
  EXPECT_TRUE(fails(slots->occupy(second), ErrorCode::stale_handle, "slot 0 is at version 1"));
}

// The allocator's version does not tell: whoever continued kept it.
TEST(SlotCacheOccupy, AMatchFromBeforeOthersContinuedIsStale) {
  TestSlots slots;
  const std::size_t slot = slots.leave(tokens(16));
  const SlotMatch old = slots.find(tokens(16));
  ASSERT_TRUE(slots.occupy(slots.find(tokens(4) + tokens(1, 99))));
  slots->insert({tokens(4) + tokens(20, 100)}, slot).value();
  slots.free(slot);
  EXPECT_EQ(slots.allocator->version(slot), old.version);
  EXPECT_TRUE(fails(slots->occupy(old), ErrorCode::stale_handle, "edition"));
  EXPECT_TRUE(slots.allocator->is_free(slot));
}

TEST(SlotCacheOccupy, AMatchOfATakenSlotIsRefused) {
  TestSlots slots;
  slots.fill(tokens(8));
  const SlotMatch match = slots.find(tokens(8));
  EXPECT_FALSE(match.free);
  EXPECT_TRUE(fails(slots->occupy(match), ErrorCode::in_use, "slot 0 is taken"));
}

// ---- What ends knowledge.

TEST(SlotCache, ASlotTakenFromTheAllocatorItselfIsForgottenAtOnce) {
  TestSlots slots(2);
  const std::size_t first = slots.leave(tokens(8) + tokens(4, 100));
  const std::size_t second = slots.leave(tokens(8));
  ASSERT_EQ(slots.allocator->alloc(), first);
  slots.prove();
  const SlotMatch next_best = slots.find(tokens(8) + tokens(4, 100));
  EXPECT_EQ(next_best.slot, second);
  EXPECT_EQ(next_best.length, 8u);
  ASSERT_EQ(slots.allocator->alloc(), second);
  slots.prove();
  EXPECT_EQ(slots.length(tokens(8)), 0u);
  EXPECT_EQ(slots->stats().num_nodes, 0u);
}

TEST(SlotCache, ASlotOccupiedBehindItsBackIsForgottenToo) {
  TestSlots slots;
  const std::size_t slot = slots.leave(tokens(8));
  slots.allocator->occupy(slot);
  EXPECT_EQ(slots.length(tokens(8)), 0u);
  slots.prove();
}

TEST(SlotCache, InsertSaysExactlyWhatASlotHolds) {
  TestSlots slots;
  const std::size_t slot = slots.fill(tokens(8));
  slots->insert({tokens(12)}, slot).value();
  EXPECT_EQ(slots.length(tokens(12)), 12u);
  EXPECT_EQ(slots->stats().num_nodes, 2u);  // grown in place, with the root of its namespace
  slots->insert({tokens(4)}, slot).value();
  EXPECT_EQ(slots.length(tokens(12)), 4u);
  slots->insert({tokens(6, 500), "other"}, slot).value();
  EXPECT_EQ(slots.length(tokens(12)), 0u);
  EXPECT_EQ(slots.length(tokens(6, 500), "other"), 6u);
  EXPECT_EQ(slots->stats().num_sequences, 1u);
  slots.prove();
}

TEST(SlotCache, AMatchSurvivesAnExtensionOfItsSlot) {
  TestSlots slots;
  const std::size_t slot = slots.leave(tokens(8));
  const SlotMatch match = slots.find(tokens(8));
  slots->insert({tokens(12)}, slot).value();
  EXPECT_TRUE(slots.occupy(match));
}

TEST(SlotCache, ClearForgetsAllAndKeepsWhoHasWhat) {
  TestSlots slots;
  slots.leave(tokens(8), "a");
  const std::size_t taken = slots.fill(tokens(8), "b");
  ASSERT_TRUE(slots->clear().ok());
  slots.prove();
  EXPECT_EQ(slots->stats().num_nodes, 0u);
  EXPECT_EQ(slots.length(tokens(8), "a"), 0u);
  EXPECT_FALSE(slots.allocator->is_free(taken));
  EXPECT_EQ(slots.take(), 0u);
}

TEST(SlotCache, SlotsTakenBeforeItWasMadeAreTaken) {
  auto allocator = *SlotAllocator::create(2);
  ASSERT_EQ(allocator->alloc(), 0u);
  auto cache = *SlotCache::create({.slot_tokens = 8}, *allocator);
  EXPECT_EQ(cache->take(), 1u);
  EXPECT_EQ(cache->take(), std::nullopt);
  EXPECT_TRUE(cache->insert({tokens(4)}, 0).ok());
  EXPECT_TRUE(cache->check().ok());
}

}  // namespace
}  // namespace pando::testing
