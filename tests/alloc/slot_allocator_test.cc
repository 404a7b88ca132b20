// SPDX-License-Identifier: Apache-2.0
// SlotAllocator by example: lowest slot first, what raises a version, who is told, and misuse.
#include "pando/allocators.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(SlotAllocator, AllocAtTakesThisSlotAndRaisesItsVersion) {
  auto slots = make(4);
  slots->alloc_at(2);
  EXPECT_FALSE(slots->is_free(2));
  EXPECT_EQ(slots->version(2), 1u);
  EXPECT_EQ(slots->version(0), 0u);
  EXPECT_EQ(slots->free_count(), 3u);
  slots->free(2);
  slots->alloc_at(2);
  EXPECT_EQ(slots->version(2), 2u);
  EXPECT_EQ(slots->alloc(), 0u);
}

// What was told, with the version and the state that the watcher saw.
class Log final : public SlotWatcher {
 public:
  explicit Log(SlotAllocator& slots) : slots_(slots) {}
  void slot_taken(std::size_t slot) override { add("taken", slot); }
  void slot_freed(std::size_t slot) override { add("freed", slot); }
  std::string text;

 private:
  void add(const char* what, std::size_t slot) {
    text += std::string(what) + " " + std::to_string(slot) + "v" +
            std::to_string(slots_.version(slot)) + (slots_.is_free(slot) ? " free;" : ";");
  }
  SlotAllocator& slots_;
};

TEST(SlotAllocator, TellsItsWatcherOfEveryChangeOnceItHasHappened) {
  auto slots = make(3);
  Log log(*slots);
  slots->watch(&log);
  EXPECT_TRUE(slots->is_watched());
  ASSERT_EQ(slots->alloc(), 0u);
  slots->alloc_at(2);
  slots->free(0);
  slots->occupy(0);
  EXPECT_EQ(log.text, "taken 0v1;taken 2v1;freed 0v1 free;taken 0v1;");
  slots->watch(nullptr);
  slots->free(0);
  EXPECT_EQ(log.text.size(), std::string("taken 0v1;taken 2v1;freed 0v1 free;taken 0v1;").size());
  EXPECT_FALSE(slots->is_watched());
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
  EXPECT_DEATH(slots->alloc_at(0), "alloc_at of slot 0: it is taken");
  EXPECT_DEATH(slots->alloc_at(8), "slot 8 is outside");
  EXPECT_DEATH(slots->free(8), "slot 8 is outside \\[0, 8\\)");
  EXPECT_DEATH(slots->occupy(9), "slot 9 is outside");
  EXPECT_DEATH((void)slots->is_free(8), "slot 8 is outside");
  EXPECT_DEATH((void)slots->version(8), "slot 8 is outside");
}

}  // namespace
}  // namespace pando
