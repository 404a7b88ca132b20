// SPDX-License-Identifier: Apache-2.0
// Free groups and remembered states of WindowAllocator, by example: both sides and their pairs go
// together. Random mixtures of both are in window_allocator_model_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/allocator_fixture.h"

namespace pando::testing {
namespace {

// ---- Free groups.

TEST(WindowAllocator, AFreeGroupGivesBackBothSidesAtItsEnd) {
  const auto allocator = make_window(32, 16, 4);
  const Slots held = alloc(*allocator, 16);
  allocator->begin_free_group();
  allocator->free(std::span(held).first(6));          // page 1 and half of page 2
  allocator->free(std::span(held).subspan(6, 2));     // the other half
  allocator->free_window(std::span(held).first(12));  // page 3; the others have none
  EXPECT_EQ(free_pages(*allocator), Counts(4, 0));
  EXPECT_EQ(translate(*allocator, std::vector(held.begin(), held.begin() + 12)), Slots(12));
  EXPECT_SOUND(*allocator);
  allocator->end_free_group();
  EXPECT_EQ(free_pages(*allocator), Counts(6, 3));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, AFreeGroupMayMoveTheWindowOfAPageThatItFreesAfter) {
  const auto allocator = make_window(32, 16, 4);
  const Slots held = alloc(*allocator, 8);
  allocator->free_window_pages(std::array{PageId{1}});
  allocator->begin_free_group();
  allocator->move_window(PageId{2}, PageId{1});
  allocator->free_pages(std::array{PageId{2}});
  allocator->end_free_group();
  EXPECT_TRUE(allocator->has_window(PageId{1}));
  EXPECT_EQ(free_pages(*allocator), Counts(7, 3));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, APageOfAFreeGroupGivesBackAWindowPageThatItGotSince) {
  const auto allocator = make_window(32, 16, 4);
  (void)alloc(*allocator, 8);
  allocator->begin_free_group();
  allocator->free_pages(std::array{PageId{1}});
  allocator->move_window(PageId{2}, PageId{1});
  EXPECT_SOUND(*allocator);
  allocator->end_free_group();
  EXPECT_EQ(free_pages(*allocator), Counts(7, 4));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, APageOfAFreeGroupCannotBeContinued) {
  const auto allocator = make_window(32, 16, 4);
  const Slots held = alloc(*allocator, 4);
  allocator->begin_free_group();
  allocator->free(held);
  Slots out(1);
  EXPECT_EQ(allocator->alloc_decode(Lengths{2}, Slots{held[0]}, out).error().code,
            ErrorCode::invalid_argument);
  EXPECT_TRUE(allocator->alloc_decode(Lengths{1}, Slots(1), out).ok());
  EXPECT_EQ(out[0], SlotId{8});
  allocator->end_free_group();
  EXPECT_SOUND(*allocator);
}

// ---- States.

TEST(WindowAllocator, RestoreBringsThePairsBack) {
  for (const ReuseOrder order : {ReuseOrder::fifo, ReuseOrder::sorted}) {
    const auto allocator = make_window(40, 24, 4, order);
    const Slots held = alloc(*allocator, 16);
    allocator->free_window(std::span(held).first(4));
    const Slots before = translate(*allocator, held);

    WindowAllocatorState state = allocator->backup_state();
    allocator->move_window(PageId{2}, PageId{1});
    allocator->free(std::span(held).subspan(4, 8));
    (void)alloc(*allocator, 12);
    allocator->begin_free_group();
    allocator->free(std::span(held).subspan(12, 4));
    allocator->free_window(std::span(held).first(4));
    allocator->end_free_group();
    allocator->restore_state(std::move(state));

    EXPECT_EQ(translate(*allocator, held), before);
    EXPECT_EQ(free_pages(*allocator), Counts(6, 3));
    EXPECT_SOUND(*allocator);
    allocator->free(held);
    EXPECT_EQ(free_pages(*allocator), Counts(10, 6));
  }
}

TEST(WindowAllocator, RestoringAnOlderStateGivesUpTheYounger) {
  const auto allocator = make_window(32, 16, 4);
  WindowAllocatorState older = allocator->backup_state();
  (void)alloc(*allocator, 4);
  {
    const WindowAllocatorState younger = allocator->backup_state();
    (void)alloc(*allocator, 4);
    allocator->restore_state(std::move(older));
    EXPECT_EQ(free_pages(*allocator), Counts(8, 4));
    (void)alloc(*allocator, 4);
  }  // the younger one ends here and changes nothing
  EXPECT_EQ(free_pages(*allocator), Counts(7, 3));
  EXPECT_TRUE(allocator->has_window(PageId{1}));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, RestoringAYoungerStateKeepsTheOlder) {
  const auto allocator = make_window(32, 16, 4);
  const Slots held = alloc(*allocator, 8);
  WindowAllocatorState older = allocator->backup_state();
  allocator->free_window(std::span(held).first(4));
  WindowAllocatorState younger = allocator->backup_state();
  allocator->move_window(PageId{2}, PageId{1});
  allocator->restore_state(std::move(younger));
  EXPECT_FALSE(allocator->has_window(PageId{1}));
  EXPECT_TRUE(allocator->has_window(PageId{2}));
  allocator->restore_state(std::move(older));
  EXPECT_EQ(translate(*allocator, held), held);
}

TEST(WindowAllocator, AStateMovesLikeAValueAndKeepsTheChangesWhenDropped) {
  const auto allocator = make_window(32, 16, 4);
  WindowAllocatorState first = allocator->backup_state();
  (void)alloc(*allocator, 4);
  WindowAllocatorState second = allocator->backup_state();
  (void)alloc(*allocator, 4);
  second = std::move(first);  // drops what `second` was
  EXPECT_EQ(free_pages(*allocator), Counts(6, 2));
  WindowAllocatorState third = std::move(second);
  allocator->restore_state(std::move(third));
  EXPECT_EQ(free_pages(*allocator), Counts(8, 4));
  EXPECT_TRUE(allocator->clear().ok());
}

TEST(WindowAllocator, OverlappingStatesDoNotGrowTheJournalsForEver) {
  const auto allocator = make_window(64, 32, 1);
  std::optional<WindowAllocatorState> state = allocator->backup_state();
  for (int i = 0; i < 20'000; ++i) {
    allocator->free(alloc(*allocator, 8));
    WindowAllocatorState next = allocator->backup_state();
    state = std::move(next);
  }
  EXPECT_LT(allocator->memory_bytes(), 16384u);
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, NothingIsJournalledOnceTheLastStateIsDropped) {
  const auto allocator = make_window(1 << 16, 1 << 15, 1);
  const std::size_t before = allocator->memory_bytes();
  {
    const WindowAllocatorState state = allocator->backup_state();
    allocator->free(alloc(*allocator, 1 << 15));
    EXPECT_GT(allocator->memory_bytes(), before + 5 * (1 << 18));  // 6 changes a page, 8 bytes each
  }
  EXPECT_LT(allocator->memory_bytes(), before + 256);
  allocator->free(alloc(*allocator, 1 << 15));
  EXPECT_LT(allocator->memory_bytes(), before + 256);
}

TEST(WindowAllocator, ClearFreesBothSidesAndEndsAllPairs) {
  const auto allocator = make_window(32, 16, 4);
  allocator->free_window(alloc(*allocator, 4));
  (void)alloc(*allocator, 8);
  ASSERT_TRUE(allocator->clear().ok());
  EXPECT_EQ(free_pages(*allocator), Counts(8, 4));
  EXPECT_EQ(translate(*allocator, range(4, 36)), Slots(32));
  EXPECT_EQ(translate(*allocator, alloc(*allocator, 16)), range(4, 20));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, ClearIsRefusedWhileAStateIsHeldOrAGroupIsOpen) {
  const auto allocator = make_window(32, 16, 4);
  const Slots held = alloc(*allocator, 8);
  const auto expect_unchanged = [&] {
    EXPECT_EQ(translate(*allocator, held), held);
    EXPECT_EQ(free_pages(*allocator), Counts(6, 2));
    EXPECT_SOUND(*allocator);
  };
  {
    const WindowAllocatorState state = allocator->backup_state();
    EXPECT_EQ(allocator->clear().error().code, ErrorCode::in_use);
    expect_unchanged();
  }
  allocator->begin_free_group();
  EXPECT_EQ(allocator->clear().error().code, ErrorCode::in_use);
  expect_unchanged();
  allocator->end_free_group();
  EXPECT_TRUE(allocator->clear().ok());
}

// ---- Misuse.

TEST(WindowAllocatorDeathTest, MisuseOfGroupsAndStatesStops) {
  const auto allocator = make_window(16, 8, 4);
  const auto other = make_window(16, 8, 4);
  WindowAllocatorState older = allocator->backup_state();
  WindowAllocatorState younger = allocator->backup_state();
  EXPECT_DEATH(other->restore_state(std::move(older)), "a state of another allocator");
  EXPECT_DEATH(allocator->end_free_group(), "end_free_group without begin_free_group");
  allocator->begin_free_group();
  EXPECT_DEATH(allocator->begin_free_group(), "begin_free_group inside a free group");
  EXPECT_DEATH((void)allocator->backup_state(), "backup_state inside a free group");
  EXPECT_DEATH(allocator->restore_state(std::move(older)), "restore_state inside a free group");
  allocator->end_free_group();
  allocator->restore_state(std::move(older));
  EXPECT_DEATH(allocator->restore_state(std::move(younger)), "a state given up when an older one");
  EXPECT_DEATH(allocator->restore_state(std::move(older)), "a state that was moved from");
}

TEST(WindowAllocatorDeathTest, AStateMustNotOutliveItsAllocator) {
  EXPECT_DEATH(
      {
        auto allocator = make_window(16, 8, 4);
        const WindowAllocatorState state = allocator->backup_state();
        allocator.reset();
      },
      "1 states outlive their allocator");
}

}  // namespace
}  // namespace pando::testing
