// SPDX-License-Identifier: Apache-2.0
// StateAllocator by example: lowest slot first, slots that know their pool, and misuse.
#include "pando/allocators.h"

#include <gtest/gtest.h>

#include <string>

namespace pando {
namespace {

std::unique_ptr<StateAllocator> make(std::size_t num_slots) {
  return StateAllocator::create(num_slots).value();
}

std::string name_of(StateSlot slot) {
  return "state slot " + std::to_string(slot.index) + " of pool " + std::to_string(slot.pool);
}

TEST(StateAllocator, HandsOutTheLowestFreeSlot) {
  const auto states = make(3);
  const StateSlot first = states->alloc().value();
  EXPECT_EQ(first.index, 0u);
  EXPECT_EQ(states->alloc().value().index, 1u);
  EXPECT_EQ(states->alloc().value().index, 2u);
  states->free(StateSlot{1, first.pool});
  states->free(first);
  EXPECT_EQ(states->alloc(), first);
  EXPECT_EQ(states->alloc().value().index, 1u);
}

TEST(StateAllocator, ReturnsNothingWhenAllAreTaken) {
  const auto states = make(1);
  ASSERT_TRUE(states->alloc().has_value());
  EXPECT_EQ(states->alloc(), std::nullopt);
}

TEST(StateAllocator, CountsWhatIsAvailable) {
  const auto states = make(4);
  EXPECT_EQ(states->capacity(), 4u);
  EXPECT_EQ(states->available(), 4u);
  const StateSlot slot = states->alloc().value();
  EXPECT_EQ(states->capacity(), 4u);
  EXPECT_EQ(states->available(), 3u);
  states->free(slot);
  EXPECT_EQ(states->available(), 4u);
}

TEST(StateAllocator, SlotsOfDifferentPoolsDiffer) {
  const auto one = make(2);
  const auto other = make(2);
  const StateSlot slot = one->alloc().value();
  const StateSlot same_index = other->alloc().value();
  EXPECT_TRUE(slot);
  EXPECT_EQ(slot.index, same_index.index);
  EXPECT_NE(slot, same_index);
  EXPECT_TRUE(one->is_taken(slot));
  EXPECT_FALSE(one->is_taken(same_index));
}

TEST(StateAllocator, ASlotOfAPoolThatHasGoneIsNotTaken) {
  auto gone = make(2);
  const StateSlot slot = gone->alloc().value();
  gone.reset();
  const auto next = make(2);
  (void)next->alloc();
  EXPECT_FALSE(next->is_taken(slot));
}

TEST(StateAllocator, OnlyAHandedOutSlotIsTaken) {
  const auto states = make(2);
  const StateSlot slot = states->alloc().value();
  EXPECT_TRUE(states->is_taken(slot));
  EXPECT_FALSE(states->is_taken(StateSlot{1, slot.pool}));
  EXPECT_FALSE(states->is_taken(StateSlot{2, slot.pool}));
  EXPECT_FALSE(states->is_taken(StateSlot{}));
  states->free(slot);
  EXPECT_FALSE(states->is_taken(slot));
}

TEST(StateAllocator, RefusesAPoolWithoutSlots) {
  const auto refused = StateAllocator::create(0);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("num_slots is 0"), std::string::npos);
}

TEST(StateAllocatorDeathTest, MisuseNamesTheSlotAndThePool) {
  const auto states = make(2);
  const auto others = make(2);
  const StateSlot slot = states->alloc().value();
  const StateSlot foreign = others->alloc().value();
  EXPECT_DEATH(states->free(foreign),
               "free of " + name_of(foreign) + ": this is pool " + std::to_string(slot.pool));
  const StateSlot untaken{1, slot.pool};
  EXPECT_DEATH(states->free(untaken), "free of " + name_of(untaken) + ": it is not handed out");
  const StateSlot beyond{2, slot.pool};
  EXPECT_DEATH(states->free(beyond), "free of " + name_of(beyond) + ": it is not handed out");
  EXPECT_DEATH(states->free(StateSlot{}), "free of state slot 0 of pool 0: this is pool");
  states->free(slot);
  EXPECT_DEATH(states->free(slot), "free of " + name_of(slot) + ": it is not handed out");
}

}  // namespace
}  // namespace pando
