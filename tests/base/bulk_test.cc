// SPDX-License-Identifier: Apache-2.0
// The loops over many slots and tokens: pages to slots and back, where gathering stops, negative
// tokens.
#include "base/bulk.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace pando {
namespace {

using Pages = std::vector<std::uint32_t>;
using Slots = std::vector<SlotId>;

Slots expand(const Pages& pages, std::size_t page_size) {
  Slots slots(pages.size() * page_size);
  expand_pages(pages.data(), pages.size(), page_size, slots.data());
  return slots;
}

/// The pages before the first group that is not a page.
Pages gather(const Slots& slots, std::size_t page_size) {
  Pages pages(slots.size() / page_size);
  pages.resize(gather_pages(slots.data(), pages.size(), page_size, pages.data()));
  return pages;
}

TEST(ExpandPages, WritesTheSlotsOfEachPage) {
  EXPECT_EQ(expand({3, 1}, 2), (Slots{SlotId{6}, SlotId{7}, SlotId{2}, SlotId{3}}));
  EXPECT_EQ(expand({3, 1}, 1), (Slots{SlotId{3}, SlotId{1}}));
}

TEST(ExpandPages, GatherIsTheWayBack) {
  for (const std::size_t page_size : {1u, 2u, 4u, 16u, 64u, 128u}) {
    for (const std::size_t n : {0u, 1u, 3u, 17u, 100u}) {
      Pages pages;
      for (std::uint32_t i = 0; i < n; ++i) pages.push_back(1 + i * 7919 % 1000);
      EXPECT_EQ(gather(expand(pages, page_size), page_size), pages);
    }
  }
}

TEST(ExpandPages, SlotsGoBeyond32Bits) {
  const Pages last{std::numeric_limits<std::uint32_t>::max()};
  const Slots slots = expand(last, 128);
  EXPECT_EQ(index_of(slots[0]), std::int64_t{0xFFFF'FFFF} * 128);
  EXPECT_EQ(gather(slots, 128), last);
}

TEST(GatherPages, StopsAtAPageOutOfOrder) {
  Slots slots = expand({5, 6, 7}, 4);
  std::swap(slots[5], slots[6]);
  EXPECT_EQ(gather(slots, 4), Pages{5});
}

TEST(GatherPages, StopsAtAPageThatStartsInTheMiddle) {
  Slots slots = expand({5, 6}, 4);
  for (SlotId& slot : slots) slot = SlotId{index_of(slot) + 1};
  EXPECT_TRUE(gather(slots, 4).empty());
}

TEST(GatherPages, StopsWhenTheLastSlotOfAPageIsWrong) {
  Slots slots = expand({5, 6, 7}, 4);
  slots[11] = SlotId{99};
  EXPECT_EQ(gather(slots, 4), (Pages{5, 6}));
}

TEST(GatherPages, StopsAtNegativeSlots) {
  EXPECT_EQ(gather({SlotId{4}, SlotId{-1}, SlotId{6}}, 1), Pages{4});
  EXPECT_TRUE(gather({SlotId{-2}, SlotId{-1}}, 2).empty());
}

TEST(GatherPages, StopsAtPagesBeyond32Bits) {
  EXPECT_TRUE(gather({SlotId{std::int64_t{1} << 32}}, 1).empty());
  EXPECT_TRUE(
      gather({SlotId{std::int64_t{1} << 33}, SlotId{(std::int64_t{1} << 33) + 1}}, 2).empty());
}

TEST(HasNegative, LooksAtEveryToken) {
  for (const std::size_t n : {1u, 7u, 64u, 1000u}) {
    std::vector<Token> tokens(n, std::numeric_limits<Token>::max());
    EXPECT_FALSE(has_negative(tokens.data(), n));
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      std::vector<Token> bad = tokens;
      bad[at] = -1;
      EXPECT_TRUE(has_negative(bad.data(), n));
    }
  }
  EXPECT_FALSE(has_negative(nullptr, 0));
}

}  // namespace
}  // namespace pando
