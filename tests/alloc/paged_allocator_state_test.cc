// SPDX-License-Identifier: Apache-2.0
// Free groups and remembered states of PagedAllocator, by example. Random mixtures of both are in
// paged_allocator_model_test.cc.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "support/allocator_fixture.h"

namespace pando::testing {
namespace {

// What the allocator would hand out from now on; leaves it as it is.
Slots order_of(PagedAllocator& allocator) {
  AllocatorState state = allocator.backup_state();
  Slots order = alloc(allocator, allocator.available());
  allocator.restore_state(std::move(state));
  return order;
}

TEST(FreeGroup, PagesComeBackOnlyAtItsEnd) {
  const auto allocator = make(16, 4);
  const Slots held = alloc(*allocator, 12);
  allocator->begin_free_group();
  allocator->free(std::span(held).first(8));
  EXPECT_EQ(allocator->available(), 4u);
  EXPECT_FALSE(allocator->is_free(PageId{1}));
  EXPECT_EQ(alloc(*allocator, 4)[0], SlotId{16});
  allocator->end_free_group();
  EXPECT_EQ(allocator->available(), 8u);
  EXPECT_TRUE(allocator->check().ok());
}

TEST(FreeGroup, OnePageMayComeInPieces) {
  const auto allocator = make(16, 4);
  const Slots held = alloc(*allocator, 16);
  allocator->begin_free_group();
  allocator->free(std::span(held).subspan(0, 6));  // page 1 and half of page 2
  allocator->free(std::span(held).subspan(8, 4));  // page 3
  allocator->free(std::span(held).subspan(6, 2));  // the other half
  EXPECT_TRUE(allocator->check().ok());
  allocator->end_free_group();
  EXPECT_EQ(allocator->available_pages(), 3u);
  EXPECT_TRUE(allocator->check().ok());
}

TEST(FreeGroup, MayBeEmpty) {
  const auto allocator = make(16, 4);
  allocator->begin_free_group();
  allocator->end_free_group();
  allocator->begin_free_group();
  allocator->end_free_group();
  EXPECT_EQ(allocator->available(), 16u);
}

TEST(FreeGroup, ClearIsRefusedInside) {
  const auto allocator = make(16, 4);
  allocator->begin_free_group();
  EXPECT_EQ(allocator->clear().error().code, ErrorCode::in_use);
  allocator->end_free_group();
  EXPECT_TRUE(allocator->clear().ok());
}

TEST(FreeGroupDeathTest, MisuseStops) {
  const auto allocator = make(16, 4);
  const Slots held = alloc(*allocator, 4);
  EXPECT_DEATH(allocator->end_free_group(), "end_free_group without begin_free_group");
  allocator->begin_free_group();
  EXPECT_DEATH(allocator->begin_free_group(), "begin_free_group inside a free group");
  EXPECT_DEATH((void)allocator->backup_state(), "backup_state inside a free group");
  EXPECT_DEATH(allocator->free(Slots{SlotId{8}}), "free of slot 8: its page 2 is already free");
  allocator->free(held);
  allocator->end_free_group();
  EXPECT_DEATH(allocator->free(held), "free of slot 4: its page 1 is already free");
}

TEST(AllocatorState, RestoreBringsBackTheExactOrder) {
  for (const ReuseOrder order : {ReuseOrder::fifo, ReuseOrder::sorted}) {
    const auto allocator = make(32, 4, order);
    const Slots held = alloc(*allocator, 20);
    allocator->free(std::span(held).subspan(8, 4));
    const Slots expected = order_of(*allocator);

    AllocatorState state = allocator->backup_state();
    (void)alloc(*allocator, 8);
    allocator->free(std::span(held).subspan(12, 8));
    (void)alloc(*allocator, 12);
    allocator->free(std::span(held).subspan(0, 4));
    allocator->restore_state(std::move(state));

    EXPECT_EQ(order_of(*allocator), expected);
    EXPECT_TRUE(allocator->check().ok());
  }
}

TEST(AllocatorState, RestoringAnOlderOneGivesUpYoungerOnes) {
  const auto allocator = make(32, 4);
  AllocatorState older = allocator->backup_state();
  (void)alloc(*allocator, 4);
  {
    const AllocatorState younger = allocator->backup_state();
    (void)alloc(*allocator, 4);
    allocator->restore_state(std::move(older));
    EXPECT_EQ(allocator->available(), 32u);
    (void)alloc(*allocator, 4);
  }  // the younger one ends here and changes nothing
  EXPECT_EQ(allocator->available(), 28u);
  EXPECT_TRUE(allocator->check().ok());
}

TEST(AllocatorState, RestoringAYoungerOneKeepsTheOlder) {
  const auto allocator = make(32, 4);
  AllocatorState older = allocator->backup_state();
  (void)alloc(*allocator, 4);
  AllocatorState younger = allocator->backup_state();
  (void)alloc(*allocator, 4);
  allocator->restore_state(std::move(younger));
  EXPECT_EQ(allocator->available(), 28u);
  allocator->restore_state(std::move(older));
  EXPECT_EQ(allocator->available(), 32u);
}

TEST(AllocatorState, DroppingOneKeepsTheChangesAndTheOthers) {
  const auto allocator = make(32, 4);
  std::optional<AllocatorState> oldest = allocator->backup_state();
  (void)alloc(*allocator, 4);
  AllocatorState middle = allocator->backup_state();
  (void)alloc(*allocator, 4);
  std::optional<AllocatorState> youngest = allocator->backup_state();
  (void)alloc(*allocator, 4);
  oldest.reset();
  youngest.reset();
  EXPECT_EQ(allocator->available(), 20u);
  allocator->restore_state(std::move(middle));
  EXPECT_EQ(allocator->available(), 28u);
}

TEST(AllocatorState, RestoreCoversAFreeGroup) {
  const auto allocator = make(32, 4);
  const Slots held = alloc(*allocator, 8);
  AllocatorState state = allocator->backup_state();
  allocator->begin_free_group();
  allocator->free(held);
  allocator->end_free_group();
  allocator->restore_state(std::move(state));
  EXPECT_EQ(allocator->available(), 24u);
  allocator->free(held);
  EXPECT_TRUE(allocator->check().ok());
}

TEST(AllocatorState, MovesLikeAValue) {
  const auto allocator = make(32, 4);
  AllocatorState first = allocator->backup_state();
  (void)alloc(*allocator, 4);
  AllocatorState second = allocator->backup_state();
  second = std::move(first);  // gives up what `second` was
  AllocatorState third = std::move(second);
  allocator->restore_state(std::move(third));
  EXPECT_EQ(allocator->available(), 32u);
  EXPECT_TRUE(allocator->clear().ok());
}

TEST(AllocatorState, ClearIsRefusedWhileOneIsHeld) {
  const auto allocator = make(32, 4);
  (void)alloc(*allocator, 8);
  {
    const AllocatorState state = allocator->backup_state();
    EXPECT_EQ(allocator->clear().error().code, ErrorCode::in_use);
  }
  EXPECT_TRUE(allocator->clear().ok());
  EXPECT_EQ(allocator->available(), 32u);
}

TEST(AllocatorState, OverlappingOnesDoNotGrowTheJournalForEver) {
  const auto allocator = make(64, 1);
  std::optional<AllocatorState> state = allocator->backup_state();
  for (int i = 0; i < 100'000; ++i) {
    allocator->free(alloc(*allocator, 8));
    AllocatorState next = allocator->backup_state();
    state = std::move(next);
  }
  EXPECT_LT(allocator->memory_bytes(), 8192u);
  EXPECT_TRUE(allocator->check().ok());
}

TEST(AllocatorStateDeathTest, MisuseStops) {
  const auto allocator = make(32, 4);
  const auto other = make(32, 4);
  AllocatorState older = allocator->backup_state();
  AllocatorState younger = allocator->backup_state();
  EXPECT_DEATH(other->restore_state(std::move(older)), "a state of another allocator");
  allocator->begin_free_group();
  EXPECT_DEATH(allocator->restore_state(std::move(older)), "restore_state inside a free group");
  allocator->end_free_group();
  allocator->restore_state(std::move(older));
  EXPECT_DEATH(allocator->restore_state(std::move(younger)), "a state given up when an older one");
  EXPECT_DEATH(allocator->restore_state(std::move(older)), "a state that was moved from");
}

TEST(AllocatorStateDeathTest, MustNotOutliveItsAllocator) {
  EXPECT_DEATH(
      {
        auto allocator = make(32, 4);
        const AllocatorState state = allocator->backup_state();
        allocator.reset();
      },
      "1 states outlive their allocator");
}

}  // namespace
}  // namespace pando::testing
