// SPDX-License-Identifier: Apache-2.0
// WindowAllocator by example: what a call takes from which side, what it refuses and why, which
// slots belong together, and misuse. Free groups and states are in
// window_allocator_state_test.cc, random mixtures in window_allocator_model_test.cc.
#include "pando/allocators.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pando/result.h"
#include "support/allocator_fixture.h"

namespace pando::testing {
namespace {

// ---- Options.

TEST(WindowAllocatorOptions, RefuseAWindowPoolLargerThanTheFullPool) {
  const auto refused = WindowAllocator::create({64, 65, 1, ReuseOrder::fifo});
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().message, "window pool of 65 tokens is larger than the full pool of 64");
  EXPECT_TRUE(WindowAllocator::create({64, 64, 1, ReuseOrder::fifo}).ok());
}

TEST(WindowAllocatorOptions, AreRefusedWithTheSideAndTheReason) {
  const auto why = [](std::size_t full, std::size_t window, std::size_t page_size) {
    const Status status =
        WindowAllocator::Options{full, window, page_size, ReuseOrder::fifo}.validate();
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    return error_of(status);
  };
  EXPECT_EQ(why(64, 64, 0), "full pool: page_size is 0, expected a power of two");
  EXPECT_EQ(why(64, 64, 12), "full pool: page_size is 12, expected a power of two");
  EXPECT_EQ(why(15, 0, 16),
            "full pool: capacity_tokens is 15, expected at least one page of 16 tokens");
  EXPECT_EQ(why(64, 15, 16),
            "window pool: capacity_tokens is 15, expected at least one page of 16 tokens");
}

TEST(WindowAllocatorOptions, RoundEachSideDownToWholePages) {
  const auto allocator = make_window(100, 50, 16);
  EXPECT_EQ(allocator->page_size(), 16u);
  EXPECT_EQ(allocator->full().capacity(), 96u);
  EXPECT_EQ(allocator->window().capacity(), 48u);
  EXPECT_EQ(free_pages(*allocator), Counts(6, 3));
}

// ---- Taking.

TEST(WindowAllocator, EveryNewPageGetsAWindowPage) {
  for (const std::size_t page_size : {1u, 4u, 64u}) {
    const auto allocator = make_window(200 * page_size, 150 * page_size, page_size);
    const Slots held = alloc(*allocator, 130 * page_size);
    EXPECT_EQ(free_pages(*allocator), Counts(70, 20));
    EXPECT_EQ(translate(*allocator, held), held);  // both sides start with page 1
    EXPECT_SOUND(*allocator);
  }
}

TEST(WindowAllocator, TakesFromBothSidesOrFromNeither) {
  const auto allocator = make_window(32, 16, 4);
  Slots out(20);
  const Status no_window = allocator->alloc(out);
  EXPECT_EQ(no_window.error().code, ErrorCode::out_of_capacity);
  EXPECT_EQ(error_of(no_window),
            "window pool: 20 tokens needed (5 pages of 4), 16 tokens available");
  EXPECT_EQ(error_of(allocator->alloc_extend(Lengths{0}, Lengths{17}, Slots(1),
                                             std::span(out).first(17))),
            "window pool: 20 tokens needed (5 pages of 4), 16 tokens available");
  EXPECT_EQ(out, Slots(20));
  EXPECT_EQ(free_pages(*allocator), Counts(8, 4));
  EXPECT_TRUE(allocator->alloc({}).ok());

  for (int i = 0; i < 2; ++i) allocator->free_window(alloc(*allocator, 16));
  const Status no_full = allocator->alloc_decode(Lengths{1}, Slots(1), std::span(out).first(1));
  EXPECT_EQ(no_full.error().code, ErrorCode::out_of_capacity);
  EXPECT_EQ(error_of(no_full), "full pool: 4 tokens needed (1 pages of 4), 0 tokens available");
  EXPECT_EQ(free_pages(*allocator), Counts(0, 4));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, ExtendKeepsTheOpenPageAndPairsTheNewOnes) {
  const auto allocator = make_window(64, 32, 4);
  allocator->free_window(alloc(*allocator, 4));  // window page 1 now comes last
  Slots first(5);
  ASSERT_TRUE(allocator->alloc_extend(Lengths{0}, Lengths{5}, Slots(1), first).ok());
  EXPECT_EQ(first, range(8, 13));
  Slots more(4 + 4);  // three in the open page 3, one in page 4, four in page 5
  ASSERT_TRUE(
      allocator->alloc_extend(Lengths{5, 8}, Lengths{9, 12}, Slots{first[4], SlotId{-1}}, more)
          .ok());
  EXPECT_EQ(more, (Slots{SlotId{13}, SlotId{14}, SlotId{15}, SlotId{16}, SlotId{20}, SlotId{21},
                         SlotId{22}, SlotId{23}}));
  EXPECT_EQ(free_pages(*allocator), Counts(11, 4));
  EXPECT_EQ(translate(*allocator, more), more);
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, ExtendWithinTheOpenPageTakesNothing) {
  const auto allocator = make_window(32, 16, 8);
  const Slots held = alloc(*allocator, 8);
  Slots out(2);
  ASSERT_TRUE(allocator->alloc_extend(Lengths{3}, Lengths{5}, Slots{held[2]}, out).ok());
  EXPECT_EQ(out, (Slots{held[3], held[4]}));
  EXPECT_EQ(free_pages(*allocator), Counts(3, 1));
}

TEST(WindowAllocator, DecodePairsThePagesThatItOpens) {
  const auto allocator = make_window(32, 32, 4);
  Slots slots{alloc(*allocator, 4)[1], SlotId{0}, SlotId{-9}};  // in place
  ASSERT_TRUE(allocator->alloc_decode(Lengths{3, 1, 5}, slots, slots).ok());
  EXPECT_EQ(slots, (Slots{SlotId{6}, SlotId{8}, SlotId{12}}));
  EXPECT_EQ(free_pages(*allocator), Counts(5, 5));
  EXPECT_EQ(translate(*allocator, slots), slots);
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, MalformedInputIsRefusedAsTheFullSideDoesEvenWithoutRoom) {
  const auto allocator = make_window(16, 4, 4);
  const Slots held = alloc(*allocator, 4);  // no window page is left
  const auto refuses = [&](const Status& status, const std::string& why) {
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(error_of(status).substr(0, why.size()), why);
    EXPECT_EQ(free_pages(*allocator), Counts(3, 0));
    EXPECT_SOUND(*allocator);
  };
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  Slots out(6);
  refuses(allocator->alloc(out), "alloc of 6 tokens, expected a multiple of the page size 4");
  const auto extend = [&](Lengths prefix, Lengths seq, Slots last) {
    return allocator->alloc_extend(prefix, seq, last, out);
  };
  refuses(extend({0}, {6, 6}, Slots(2)), "extend: 1 prefix lengths, 2 sequence lengths");
  refuses(extend({0, 5}, {6, 4}, Slots(2)), "request 1: sequence length 4 is below");
  refuses(extend({0, 0}, {kHuge, 7}, Slots(2)), "request 0: grows by");
  refuses(extend({0}, {5}, Slots(1)), "extend: out has 6 slots, expected 5");
  refuses(extend({0, 1}, {5, 2}, Slots{held[0], SlotId{8}}), "request 1: last slot 8 lies in page");
  refuses(extend({0, 2}, {5, 3}, Slots{held[0], held[0]}), "request 1: last slot 4 is at offset 0");
  refuses(extend({0, 2}, {5, 3}, Slots{held[0], SlotId{-3}}), "request 1: last slot -3 is out of");
  const auto decode = [&](Lengths seq, Slots last) {
    return allocator->alloc_decode(seq, last, std::span(out).first(2));
  };
  refuses(decode({1}, Slots(2)), "decode: 1 sequence lengths, 2 last slots");
  refuses(decode({1, 0}, Slots(2)), "request 1: sequence length 0");
  refuses(decode({1, 2}, Slots{held[0], SlotId{8}}), "request 1: last slot 8 lies in page 2");
  EXPECT_EQ(out, Slots(6));
}

TEST(WindowAllocator, ContinuingAnOpenPageWhoseWindowIsGoneIsRefused) {
  const auto allocator = make_window(32, 16, 4);
  const Slots kept = alloc(*allocator, 4);
  const Slots gone = alloc(*allocator, 4);
  allocator->free_window(gone);
  const std::string why =
      "request 1: last slot 9 lies in page 2, which is open, but has no window page any more";
  Slots out(4);
  const Status extended =
      allocator->alloc_extend(Lengths{2, 2}, Lengths{4, 4}, Slots{kept[1], gone[1]}, out);
  EXPECT_EQ(extended.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(extended), why);
  const Status decoded =
      allocator->alloc_decode(Lengths{5, 3}, Slots{kept[3], gone[1]}, std::span(out).first(2));
  EXPECT_EQ(decoded.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(decoded), why);
  EXPECT_EQ(out, Slots(4));
  EXPECT_EQ(free_pages(*allocator), Counts(6, 3));
}

TEST(WindowAllocator, ARequestWhoseWindowIsGoneMayGrowByNothingOrFromAFullPage) {
  const auto allocator = make_window(32, 16, 4);
  const Slots gone = alloc(*allocator, 4);
  allocator->free_window(gone);
  EXPECT_TRUE(allocator->alloc_extend(Lengths{2}, Lengths{2}, Slots{gone[1]}, {}).ok());
  Slots out(1);
  EXPECT_TRUE(allocator->alloc_extend(Lengths{4}, Lengths{5}, Slots{gone[3]}, out).ok());
  EXPECT_TRUE(allocator->has_window(PageId{2}));
  EXPECT_FALSE(allocator->has_window(PageId{1}));
}

// ---- Freeing.

TEST(WindowAllocator, FreeReturnsThePageWithItsWindowPageIfItStillHasOne) {
  const auto allocator = make_window(32, 24, 4);
  const Slots held = alloc(*allocator, 16);
  allocator->free_window(std::span(held).first(8));
  EXPECT_EQ(free_pages(*allocator), Counts(4, 4));
  allocator->free(std::span(held).subspan(4, 8));  // one page without, one with
  EXPECT_EQ(free_pages(*allocator), Counts(6, 5));
  allocator->free_pages(std::array{PageId{1}, PageId{4}, PageId{1}});
  EXPECT_EQ(free_pages(*allocator), Counts(8, 6));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, FreeTakesSlotsInAnyOrderAndSomeOfAPage) {
  const auto allocator = make_window(1024, 1024, 64);
  for (std::size_t at = 0; at < 64; ++at) {
    ASSERT_TRUE(allocator->clear().ok());
    Slots slots = alloc(*allocator, 256);
    slots.resize(65);
    slots[at] = SlotId{200};  // of page 3
    allocator->free(slots);
    EXPECT_EQ(free_pages(*allocator), Counts(15, 15)) << at;
    EXPECT_SOUND(*allocator);
  }
}

TEST(WindowAllocator, FreeWindowReturnsTheWindowSideAlone) {
  const auto allocator = make_window(32, 16, 4);
  const Slots held = alloc(*allocator, 16);
  allocator->free_window(Slots{held[5], held[0]});
  allocator->free_window_pages(std::array{PageId{4}});
  EXPECT_EQ(free_pages(*allocator), Counts(4, 3));
  EXPECT_FALSE(allocator->has_window(PageId{1}));
  EXPECT_FALSE(allocator->has_window(PageId{2}));
  EXPECT_TRUE(allocator->has_window(PageId{3}));
  EXPECT_FALSE(allocator->has_window(PageId{4}));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, FreeingTheWindowTwiceNeverFreesAnothersSlot) {
  const auto allocator = make_window(8, 1, 1);
  const Slots mine = alloc(*allocator, 1);
  allocator->free_window(mine);
  const Slots others = alloc(*allocator, 1);  // gets the window slot that was mine
  ASSERT_EQ(translate(*allocator, others), Slots{SlotId{1}});
  allocator->free_window(mine);
  allocator->free_window_pages(std::array{PageId{1}, PageId{1}});
  allocator->free(mine);
  EXPECT_TRUE(allocator->has_window(PageId{2}));
  EXPECT_EQ(free_pages(*allocator), Counts(7, 0));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, AFreedPageStartsAnewWithoutItsOldWindow) {
  const auto allocator = make_window(8, 8, 4, ReuseOrder::sorted);
  const Slots held = alloc(*allocator, 8);
  allocator->free_window(std::span(held).first(4));
  allocator->free(held);
  EXPECT_EQ(alloc(*allocator, 8), held);
  EXPECT_EQ(translate(*allocator, held), held);
}

// ---- Pairs.

TEST(WindowAllocator, TranslateGivesThePaddingSlotWhereTheWindowIsGone) {
  for (const std::int64_t size : {1, 4}) {
    const auto page_size = static_cast<std::size_t>(size);
    const auto allocator = make_window(4 * page_size, 3 * page_size, page_size);
    const Slots held = alloc(*allocator, 3 * page_size);
    allocator->free_window_pages(std::array{PageId{2}});
    Slots expected = held;
    for (std::size_t i = page_size; i < 2 * page_size; ++i) expected[i] = SlotId{0};
    EXPECT_EQ(translate(*allocator, held), expected);
    EXPECT_EQ(translate(*allocator, range(4 * size, 5 * size)), Slots(page_size));  // never taken
    EXPECT_EQ(translate(*allocator, range(0, size)), Slots(page_size));             // padding
  }
}

TEST(WindowAllocator, TranslateFollowsThePairsInAnyOrderAndInPlace) {
  const auto allocator = make_window(32, 8, 4);
  allocator->free_window(alloc(*allocator, 4));
  (void)alloc(*allocator, 8);  // pages 2 and 3, with window pages 2 and 1
  Slots slots{SlotId{15}, SlotId{8}, SlotId{4}, SlotId{12}, SlotId{15}};
  allocator->translate(slots, slots);
  EXPECT_EQ(slots, (Slots{SlotId{7}, SlotId{8}, SlotId{0}, SlotId{4}, SlotId{7}}));
  allocator->translate({}, {});
}

TEST(WindowAllocator, MoveWindowGivesOnePagesWindowToAnother) {
  const auto allocator = make_window(32, 16, 4);
  const Slots held = alloc(*allocator, 8);
  allocator->free_window(std::span(held).first(4));
  allocator->move_window(PageId{2}, PageId{1});
  EXPECT_TRUE(allocator->has_window(PageId{1}));
  EXPECT_FALSE(allocator->has_window(PageId{2}));
  EXPECT_EQ(translate(*allocator, range(4, 8)), range(8, 12));
  EXPECT_EQ(free_pages(*allocator), Counts(6, 3));
  allocator->free(std::span(held).subspan(4));
  EXPECT_EQ(free_pages(*allocator), Counts(7, 3));
  EXPECT_SOUND(*allocator);
}

TEST(WindowAllocator, MemoryIsBothSidesAndFourBytesPerFullPage) {
  constexpr std::size_t kPages = 1 << 16;
  const auto fixed_of = [](const WindowAllocator& allocator) {
    return allocator.memory_bytes() - allocator.full().memory_bytes() -
           allocator.window().memory_bytes() - 4 * allocator.full().num_pages();
  };
  const auto large = make_window(kPages, kPages / 2, 1);
  const std::size_t fixed = fixed_of(*make_window(1, 1, 1));
  EXPECT_EQ(fixed_of(*large), fixed);
  large->free(alloc(*large, kPages / 2));
  EXPECT_EQ(fixed_of(*large), fixed);  // working memory was returned
}

// ---- Misuse.

TEST(WindowAllocatorDeathTest, FreeOfWhatIsNotHandedOutNamesIt) {
  const auto allocator = make_window(16, 8, 4);
  const Slots held = alloc(*allocator, 8);
  EXPECT_DEATH(allocator->free(Slots{SlotId{13}}), "free of slot 13: its page 3 is already free");
  EXPECT_DEATH(allocator->free(Slots{SlotId{2}}), "free of slot 2: outside \\[4, 20\\)");
  EXPECT_DEATH(allocator->free(Slots{SlotId{-4}}), "free of slot -4: outside");
  EXPECT_DEATH(allocator->free_pages(std::array{PageId{4}}), "free of page 4: it is already free");
  EXPECT_DEATH(allocator->free_pages(std::array{PageId{5}}), "free of page 5: outside \\[1, 4\\]");
  EXPECT_DEATH(allocator->free_window(Slots{SlotId{13}}),
               "free_window of slot 13: its page 3 is already free");
  EXPECT_DEATH(allocator->free_window(Slots{SlotId{20}}), "free_window of slot 20: outside");
  EXPECT_DEATH(allocator->free_window_pages(std::array{PageId{3}}),
               "free_window of page 3: it is already free");
  EXPECT_DEATH(allocator->free_window_pages(std::array{PageId{0}}), "free_window of page 0: out");
  allocator->free(held);
  EXPECT_DEATH(allocator->free(held), "free of slot 4: its page 1 is already free");
}

TEST(WindowAllocator, RefusedFreesChangeNothing) {
  const auto allocator = make_window(16, 8, 4);
  const Slots held = alloc(*allocator, 4);
  const CheckHandler before = set_check_handler(
      [](std::string_view message) { throw std::logic_error(std::string(message)); });
  EXPECT_THROW(allocator->free(Slots{held[0], SlotId{8}}), std::logic_error);
  EXPECT_THROW(allocator->free_window(Slots{held[0], SlotId{8}}), std::logic_error);
  EXPECT_THROW(allocator->free_pages(std::array{PageId{1}, PageId{2}}), std::logic_error);
  EXPECT_THROW(allocator->free_window_pages(std::array{PageId{1}, PageId{2}}), std::logic_error);
  set_check_handler(before);
  EXPECT_TRUE(allocator->has_window(PageId{1}));
  EXPECT_EQ(free_pages(*allocator), Counts(3, 1));
  EXPECT_SOUND(*allocator);
  allocator->free(held);
  EXPECT_EQ(free_pages(*allocator), Counts(4, 2));
}

TEST(WindowAllocatorDeathTest, MisuseOfThePairsNamesTheSlotOrPage) {
  const auto allocator = make_window(16, 8, 4);
  const Slots held = alloc(*allocator, 8);
  Slots out(1);
  EXPECT_DEATH(allocator->translate(held, out), "translate of 8 slots into 1");
  EXPECT_DEATH(allocator->translate(Slots{SlotId{20}}, out), "translate of slot 20: outside");
  EXPECT_DEATH(allocator->translate(Slots{SlotId{-1}}, out), "translate of slot -1: outside");
  EXPECT_DEATH((void)allocator->has_window(PageId{3}), "has_window of page 3: it is not handed");
  EXPECT_DEATH((void)allocator->has_window(PageId{9}), "has_window of page 9: it is not handed");
  EXPECT_DEATH(allocator->move_window(PageId{1}, PageId{2}), "to page 2: it has a window page");
  EXPECT_DEATH(allocator->move_window(PageId{1}, PageId{1}), "to page 1: it has a window page");
  EXPECT_DEATH(allocator->move_window(PageId{1}, PageId{3}), "to page 3: it is not handed out");
  EXPECT_DEATH(allocator->move_window(PageId{1}, PageId{9}), "to page 9: it is not handed out");
  EXPECT_DEATH(allocator->move_window(PageId{9}, PageId{1}), "from page 9: it has no window page");
  allocator->free_window(held);
  EXPECT_DEATH(allocator->move_window(PageId{1}, PageId{2}), "from page 1: it has no window page");
}

}  // namespace
}  // namespace pando::testing
