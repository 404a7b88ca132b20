// SPDX-License-Identifier: Apache-2.0
// PagedAllocator by example: options, which slots a call returns, what it refuses and why, and
// misuse. Free groups and states are in paged_allocator_state_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "pando/allocators.h"
#include "pando/result.h"
#include "support/allocator_fixture.h"

namespace pando::testing {
namespace {

TEST(PagedAllocatorOptions, AreRefusedWithTheReason) {
  const auto why = [](std::size_t capacity, std::size_t page_size) {
    const auto status = PagedAllocator::Options{capacity, page_size, ReuseOrder::fifo}.validate();
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    return error_of(status);
  };
  EXPECT_EQ(why(100, 0), "page_size is 0, expected a power of two");
  EXPECT_EQ(why(100, 48), "page_size is 48, expected a power of two");
  EXPECT_EQ(why(63, 64), "capacity_tokens is 63, expected at least one page of 64 tokens");
  EXPECT_EQ(why(std::size_t{1} << 33, 2),
            "capacity_tokens 8589934592 makes 4294967296 pages of 2, expected at most 4294967294 "
            "pages");
  EXPECT_NE(why(std::size_t{1} << 63, std::size_t{1} << 62).find("what a slot id can name"),
            std::string::npos);
  EXPECT_FALSE(PagedAllocator::create({100, 3, ReuseOrder::fifo}).ok());
}

TEST(PagedAllocatorOptions, AcceptTheLargestNumberOfPages) {
  EXPECT_TRUE(PagedAllocator::Options({4294967294u, 1, ReuseOrder::sorted}).validate().ok());
}

TEST(PagedAllocator, CapacityIsWholePagesWithoutThePaddingPage) {
  const auto allocator = make(100, 16);
  EXPECT_EQ(allocator->num_pages(), 6u);
  EXPECT_EQ(allocator->capacity(), 96u);
  EXPECT_EQ(allocator->available(), 96u);
  EXPECT_EQ(allocator->available_pages(), 6u);
  EXPECT_FALSE(allocator->is_free(PageId{0}));
  EXPECT_TRUE(allocator->is_free(PageId{6}));
}

TEST(PagedAllocator, NeverHandsOutThePaddingPage) {
  for (const ReuseOrder order : {ReuseOrder::fifo, ReuseOrder::sorted}) {
    const auto allocator = make(8, 4, order);
    EXPECT_EQ(alloc(*allocator, 8), range(4, 12));
    EXPECT_EQ(allocator->available(), 0u);
    EXPECT_TRUE(allocator->check().ok());
  }
}

TEST(PagedAllocator, FifoReusesTheLongestFreePageFirst) {
  const auto allocator = make(12, 4);
  (void)alloc(*allocator, 12);
  allocator->free(range(12, 16));
  allocator->free(range(4, 8));
  EXPECT_EQ(alloc(*allocator, 4), range(12, 16));
  EXPECT_EQ(alloc(*allocator, 4), range(4, 8));
}

TEST(PagedAllocator, SortedReusesTheLowestPageFirst) {
  const auto allocator = make(12, 4, ReuseOrder::sorted);
  (void)alloc(*allocator, 12);
  allocator->free(range(12, 16));
  allocator->free(range(4, 8));
  EXPECT_EQ(alloc(*allocator, 4), range(4, 8));
  EXPECT_EQ(alloc(*allocator, 4), range(12, 16));
}

TEST(PagedAllocator, AllocRefusesPartsOfPagesAndWhatDoesNotFit) {
  const auto allocator = make(8, 4);
  Slots out(6);
  EXPECT_EQ(error_of(allocator->alloc(out)),
            "alloc of 6 tokens, expected a multiple of the page size 4");
  out.resize(12);
  const Status full = allocator->alloc(out);
  EXPECT_EQ(full.error().code, ErrorCode::out_of_capacity);
  EXPECT_EQ(error_of(full), "12 tokens needed (3 pages of 4), 8 tokens available");
  EXPECT_EQ(allocator->available(), 8u);
  EXPECT_EQ(out, Slots(12));
  EXPECT_TRUE(allocator->alloc({}).ok());
}

TEST(PagedAllocator, ExtendFillsTheOpenPageThenWholePagesThenOpensOne) {
  const auto allocator = make(32, 4);
  Slots first(6);
  ASSERT_TRUE(allocator->alloc_extend(Lengths{0}, Lengths{6}, Slots{SlotId{0}}, first).ok());
  EXPECT_EQ(first, range(4, 10));
  (void)alloc(*allocator, 4);  // page 3 goes to someone else
  Slots more(8);
  ASSERT_TRUE(allocator->alloc_extend(Lengths{6}, Lengths{14}, Slots{first.back()}, more).ok());
  Slots expected = range(10, 12);
  for (const SlotId slot : range(16, 22)) expected.push_back(slot);
  EXPECT_EQ(more, expected);
}

TEST(PagedAllocator, ExtendWritesRequestByRequest) {
  const auto allocator = make(32, 4);
  const Slots held = alloc(*allocator, 4);
  Slots out(2 + 0 + 5);
  const Lengths prefix{2, 3, 8};
  const Lengths seq{4, 3, 13};
  const Slots last{held[1], held[2], SlotId{-1}};  // the third ends with its page: ignored
  EXPECT_EQ(allocator->pages_for_extend(prefix, seq), 2u);
  ASSERT_TRUE(allocator->alloc_extend(prefix, seq, last, out).ok());
  Slots expected = range(6, 8);
  for (const SlotId slot : range(8, 13)) expected.push_back(slot);
  EXPECT_EQ(out, expected);
}

TEST(PagedAllocator, ExtendRefusesBadRequestsAndChangesNothing) {
  const auto allocator = make(32, 4);
  const Slots held = alloc(*allocator, 8);
  const auto why = [&](Lengths prefix, Lengths seq, Slots last, std::size_t out_size) {
    Slots out(out_size);
    const Status status = allocator->alloc_extend(prefix, seq, last, out);
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(out, Slots(out_size));
    EXPECT_EQ(allocator->available(), 24u);
    return error_of(status);
  };
  const SlotId ok = held[0];
  EXPECT_EQ(why({1}, {1, 2}, {ok, ok}, 1),
            "extend: 1 prefix lengths, 2 sequence lengths and 2 last slots; expected as many of "
            "each");
  EXPECT_EQ(why({1, 5}, {2, 4}, {ok, ok}, 1),
            "request 1: sequence length 4 is below its prefix length 5");
  EXPECT_EQ(why({1, 0}, {2, 9}, {ok, ok}, 8),
            "request 1: grows by 9 tokens, but out has 8 slots in all and 7 left");
  EXPECT_EQ(why({1, 0}, {2, 9}, {ok, ok}, 11),
            "extend: out has 11 slots, expected 10 (the sum of the growths)");
  EXPECT_EQ(why({0, 2}, {4, 4}, {ok, ok}, 6),
            "request 1: last slot 4 is at offset 0 of its page; after 2 tokens, 1 was expected");
  EXPECT_EQ(why({1}, {2}, {SlotId{12}}, 1),
            "request 0: last slot 12 lies in page 3, which is free");
  EXPECT_EQ(why({1}, {2}, {SlotId{36}}, 1),
            "request 0: last slot 36 is out of range, expected one in [4, 36)");
  EXPECT_EQ(why({1}, {2}, {SlotId{0}}, 1),
            "request 0: last slot 0 is out of range, expected one in [4, 36)");
  EXPECT_EQ(why({2}, {3}, {SlotId{-3}}, 1),
            "request 0: last slot -3 is out of range, expected one in [4, 36)");
}

TEST(PagedAllocator, ExtendRefusesLengthsWhoseSumOverflows) {
  const auto allocator = make(32, 4);
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  Slots out(1);
  EXPECT_FALSE(allocator->alloc_extend(Lengths{0, 0}, Lengths{kHuge, 2}, Slots(2), out).ok());
}

TEST(PagedAllocator, ExtendIsAllOrNothingWhenFull) {
  const auto allocator = make(16, 4);
  Slots out(17);
  const Status full = allocator->alloc_extend(Lengths{0, 0}, Lengths{12, 5}, Slots(2), out);
  EXPECT_EQ(full.error().code, ErrorCode::out_of_capacity);
  EXPECT_EQ(error_of(full), "20 tokens needed (5 pages of 4), 16 tokens available");
  EXPECT_EQ(allocator->available(), 16u);
  EXPECT_EQ(out, Slots(17));
}

TEST(PagedAllocator, DecodeContinuesOpenPagesAndOpensNewOnes) {
  const auto allocator = make(32, 4);
  const Slots held = alloc(*allocator, 12);
  const Lengths seq{3, 5, 1};  // the second and the third need a page
  Slots out(3);
  EXPECT_EQ(allocator->pages_for_decode(seq), 2u);
  ASSERT_TRUE(allocator->alloc_decode(seq, Slots{held[1], held[7], SlotId{0}}, out).ok());
  EXPECT_EQ(out, (Slots{held[2], SlotId{16}, SlotId{20}}));
}

TEST(PagedAllocator, DecodeMayWriteOverTheLastSlots) {
  const auto allocator = make(32, 4);
  Slots slots{alloc(*allocator, 4)[0], SlotId{0}};
  ASSERT_TRUE(allocator->alloc_decode(Lengths{2, 1}, slots, slots).ok());
  EXPECT_EQ(slots, (Slots{SlotId{5}, SlotId{8}}));
}

TEST(PagedAllocator, DecodeRefusesBadRequestsAndChangesNothing) {
  const auto allocator = make(8, 4);
  const Slots held = alloc(*allocator, 4);
  const auto why = [&](Lengths seq, Slots last, std::size_t out_size) {
    Slots out(out_size);
    const Status status = allocator->alloc_decode(seq, last, out);
    EXPECT_EQ(out, Slots(out_size));
    EXPECT_EQ(allocator->available(), 4u);
    return error_of(status);
  };
  EXPECT_EQ(why({2, 2}, {held[0]}, 2),
            "decode: 2 sequence lengths, 1 last slots and 2 slots in out; expected as many of "
            "each");
  EXPECT_EQ(why({2, 0}, {held[0], held[0]}, 2),
            "request 1: sequence length 0, expected it to count the new token");
  EXPECT_EQ(why({1, 3}, {held[0], held[0]}, 2),
            "request 1: last slot 4 is at offset 0 of its page; after 2 tokens, 1 was expected");
  EXPECT_EQ(why({1, 1}, {held[0], held[0]}, 2),
            "8 tokens needed (2 pages of 4), 4 tokens available");
}

TEST(PagedAllocator, IgnoresTheLastSlotOfARequestThatFillsItsPages) {
  const auto allocator = make(64, 4);
  for (const std::int64_t any :
       {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 40,
        std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    Slots out(1);
    EXPECT_TRUE(allocator->alloc_decode(Lengths{5}, Slots{SlotId{any}}, out).ok());
    EXPECT_TRUE(allocator->alloc_extend(Lengths{4}, Lengths{5}, Slots{SlotId{any}}, out).ok());
    EXPECT_FALSE(allocator->alloc_decode(Lengths{4}, Slots{SlotId{any}}, out).ok());
  }
}

TEST(PagedAllocator, FreeTakesSlotsOfAPageInAnyOrder) {
  const auto allocator = make(16, 4);
  (void)alloc(*allocator, 16);
  allocator->free(Slots{SlotId{9}, SlotId{4}, SlotId{8}, SlotId{5}, SlotId{11}, SlotId{9}});
  EXPECT_EQ(allocator->available_pages(), 2u);
  EXPECT_TRUE(allocator->is_free(PageId{1}));
  EXPECT_TRUE(allocator->is_free(PageId{2}));
  EXPECT_EQ(alloc(*allocator, 8), [] {
    Slots expected = range(8, 12);
    for (const SlotId slot : range(4, 8)) expected.push_back(slot);
    return expected;
  }());
}

TEST(PagedAllocator, FreeSeesAForeignSlotInsideARun) {
  const auto allocator = make(256, 64);
  (void)alloc(*allocator, 256);
  for (std::size_t at = 0; at < 64; ++at) {
    ASSERT_TRUE(allocator->clear().ok());
    Slots slots = alloc(*allocator, 256);
    slots.resize(64);
    slots[at] = SlotId{200};
    allocator->free(slots);
    EXPECT_EQ(allocator->available_pages(), 2u) << at;
  }
}

TEST(PagedAllocator, FreePagesTakesPages) {
  const auto allocator = make(16, 4, ReuseOrder::sorted);
  (void)alloc(*allocator, 16);
  allocator->free_pages(std::array{PageId{4}, PageId{2}, PageId{4}});
  EXPECT_EQ(allocator->available_pages(), 2u);
  EXPECT_EQ(alloc(*allocator, 4), range(8, 12));
}

TEST(PagedAllocator, TokenAllocatorHandsOutSingleSlots) {
  const auto allocator = make_token_allocator(5, ReuseOrder::sorted).value();
  EXPECT_EQ(allocator->page_size(), 1u);
  EXPECT_EQ(alloc(*allocator, 4), range(1, 5));
  allocator->free(Slots{SlotId{3}, SlotId{1}});
  EXPECT_EQ(alloc(*allocator, 2), (Slots{SlotId{1}, SlotId{3}}));
  Slots out(1);
  ASSERT_TRUE(allocator->alloc_decode(Lengths{9}, Slots{SlotId{-5}}, out).ok());
  EXPECT_EQ(out[0], SlotId{5});
  allocator->free(out);
  EXPECT_EQ(error_of(allocator->alloc_decode(Lengths{0}, Slots{SlotId{1}}, out)),
            "request 0: sequence length 0, expected it to count the new token");
}

TEST(PagedAllocator, TokenAllocatorCrossesTheEndOfItsRing) {
  const auto allocator = make_token_allocator(1000).value();
  allocator->free(alloc(*allocator, 700));
  Slots expected = range(701, 1001);
  for (const SlotId slot : range(1, 701)) expected.push_back(slot);
  EXPECT_EQ(alloc(*allocator, 1000), expected);
  EXPECT_TRUE(allocator->check().ok());
}

TEST(PagedAllocator, MemoryIsFourBytesAndABitPerPageFifoAndABitSorted) {
  constexpr std::size_t kPages = 1 << 20;
  const std::size_t mask = 8 * (16385 + 257 + 5 + 1);  // 2^20 + 1 bits and the levels above
  const std::size_t fixed = make(1, 1, ReuseOrder::sorted)->memory_bytes() - 8;
  EXPECT_EQ(make(kPages, 1, ReuseOrder::sorted)->memory_bytes(), fixed + mask);
  EXPECT_EQ(make(kPages, 1, ReuseOrder::fifo)->memory_bytes(), fixed + mask + 4 * kPages);
}

TEST(PagedAllocator, WorkingMemoryIsReturnedAfterLargeFrees) {
  const auto allocator = make(1 << 20, 1);
  const std::size_t before = allocator->memory_bytes();
  allocator->free(alloc(*allocator, 1 << 20));
  EXPECT_EQ(allocator->memory_bytes(), before);
}

TEST(PagedAllocatorDeathTest, FreeOfWhatIsNotHandedOutNamesTheSlot) {
  const auto allocator = make(16, 4);
  const Slots held = alloc(*allocator, 8);
  EXPECT_DEATH(allocator->free(Slots{SlotId{13}}), "free of slot 13: its page 3 is already free");
  EXPECT_DEATH(allocator->free(Slots{SlotId{2}}), "free of slot 2: outside \\[4, 20\\)");
  EXPECT_DEATH(allocator->free(Slots{SlotId{20}}), "free of slot 20: outside");
  EXPECT_DEATH(allocator->free(Slots{SlotId{-4}}), "free of slot -4: outside");
  EXPECT_DEATH(allocator->free_pages(std::array{PageId{4}}), "free of page 4: it is already free");
  EXPECT_DEATH(allocator->free_pages(std::array{PageId{0}}), "free of page 0: outside");
  EXPECT_DEATH((void)allocator->is_free(PageId{5}), "page 5 is outside");
  allocator->free(held);
  EXPECT_DEATH(allocator->free(held), "free of slot 4: its page 1 is already free");
}

TEST(PagedAllocatorDeathTest, PageCountsRefuseLengthsThatMakeNoSense) {
  const auto allocator = make(16, 4);
  EXPECT_DEATH((void)allocator->pages_for_extend(Lengths{1}, Lengths{}), "1 prefix lengths");
  EXPECT_DEATH((void)allocator->pages_for_extend(Lengths{0, 5}, Lengths{1, 4}),
               "request 1: sequence length 4");
  EXPECT_DEATH((void)allocator->pages_for_decode(Lengths{0}), "sequence length of 0");
}

TEST(PagedAllocator, RefusedFreeChangesNothing) {
  const auto allocator = make(16, 4);
  const Slots held = alloc(*allocator, 4);
  const CheckHandler before = set_check_handler(
      [](std::string_view message) { throw std::logic_error(std::string(message)); });
  EXPECT_THROW(allocator->free(Slots{held[0], SlotId{8}}), std::logic_error);
  EXPECT_THROW(allocator->free_pages(std::array{PageId{1}, PageId{2}}), std::logic_error);
  set_check_handler(before);
  EXPECT_FALSE(allocator->is_free(PageId{1}));
  EXPECT_TRUE(allocator->check().ok());
  allocator->free(held);
  EXPECT_EQ(allocator->available(), 16u);
}

}  // namespace
}  // namespace pando::testing
