// SPDX-License-Identifier: Apache-2.0
// RequestTable by example: rows, writes and their bounds, memory that is not committed, and misuse.
#include "pando/allocators.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

namespace pando {
namespace {

std::unique_ptr<RequestTable> make(std::size_t max_rows, std::size_t row_len) {
  return RequestTable::create(max_rows, row_len).value();
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total_pages = 0;
  std::size_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * 4096;
}

TEST(RequestTable, HandsOutTheLowestFreeRow) {
  auto table = make(2, 4);
  EXPECT_EQ(table->alloc(), 0u);
  EXPECT_EQ(table->alloc(), 1u);
  EXPECT_EQ(table->alloc(), std::nullopt);
  table->free(0);
  EXPECT_EQ(table->available(), 1u);
  EXPECT_EQ(table->alloc(), 0u);
}

TEST(RequestTable, AllocOfSeveralRowsIsAllOrNothing) {
  auto table = make(3, 4);
  std::array<std::size_t, 2> rows{};
  ASSERT_TRUE(table->alloc(rows).ok());
  EXPECT_EQ(rows, (std::array<std::size_t, 2>{0, 1}));
  const Status refused = table->alloc(rows);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_capacity);
  EXPECT_EQ(refused.error().message, "2 rows needed, 1 of 3 available");
  EXPECT_EQ(table->available(), 1u);
  table->free(rows);
  EXPECT_EQ(table->available(), 3u);
}

TEST(RequestTable, WriteLandsAtItsOffsetAndTheRestReadsAsPadding) {
  auto table = make(2, 5);
  const std::size_t row = *table->alloc();
  ASSERT_TRUE(table->write(row, 1, std::array{SlotId{7}, SlotId{8}}).ok());
  const std::vector<SlotId> expected{SlotId{0}, SlotId{7}, SlotId{8}, SlotId{0}, SlotId{0}};
  const auto read = std::as_const(*table).row(row);
  EXPECT_EQ(std::vector<SlotId>(read.begin(), read.end()), expected);
}

TEST(RequestTable, RowsDoNotOverlap) {
  auto table = make(2, 2);
  const std::size_t first = *table->alloc();
  const std::size_t second = *table->alloc();
  ASSERT_TRUE(table->write(first, 0, std::array{SlotId{1}, SlotId{2}}).ok());
  ASSERT_TRUE(table->write(second, 0, std::array{SlotId{3}, SlotId{4}}).ok());
  EXPECT_EQ(table->row(first)[1], SlotId{2});
  EXPECT_EQ(table->row(second)[0], SlotId{3});
}

TEST(RequestTable, WriteRefusesWhatDoesNotFit) {
  auto table = make(2, 4);
  const std::size_t row = *table->alloc();
  const std::array two{SlotId{1}, SlotId{2}};
  EXPECT_TRUE(table->write(row, 2, two).ok());
  EXPECT_TRUE(table->write(row, 4, {}).ok());
  EXPECT_EQ(table->write(row, 3, two).error().message,
            "write of 2 slots at offset 3 of row 0, which is 4 long");
  EXPECT_FALSE(table->write(row, 5, {}).ok());
  EXPECT_FALSE(table->write(row, std::numeric_limits<std::size_t>::max(), two).ok());
  EXPECT_EQ(table->row(row)[3], SlotId{2});
}

TEST(RequestTable, WriteRefusesRowsThatAreNotAllocated) {
  auto table = make(2, 4);
  EXPECT_EQ(table->write(1, 0, {}).error().message, "write to row 1, which is not allocated");
  EXPECT_EQ(table->write(2, 0, {}).error().message, "write to row 2, expected one in [0, 2)");
}

TEST(RequestTable, WriteMayShiftARowOntoItself) {
  auto table = make(1, 4);
  const std::size_t row = *table->alloc();
  ASSERT_TRUE(table->write(row, 0, std::array{SlotId{1}, SlotId{2}, SlotId{3}}).ok());
  ASSERT_TRUE(table->write(row, 1, table->row(row).first(3)).ok());
  EXPECT_EQ(table->row(row)[1], SlotId{1});
  EXPECT_EQ(table->row(row)[3], SlotId{3});
}

TEST(RequestTable, ReusedRowStillHoldsWhatWasWritten) {
  auto table = make(1, 2);
  ASSERT_TRUE(table->write(*table->alloc(), 0, std::array{SlotId{9}}).ok());
  table->free(0);
  const std::size_t row = *table->alloc();
  EXPECT_EQ(table->row(row)[0], SlotId{9});
}

TEST(RequestTable, ClearFreesEveryRow) {
  auto table = make(3, 2);
  ASSERT_TRUE(table->alloc() && table->alloc());
  table->clear();
  EXPECT_EQ(table->available(), 3u);
  EXPECT_EQ(table->alloc(), 0u);
}

TEST(RequestTable, MemoryIsCommittedOnlyWhereItIsWritten) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer's calloc writes what it returns";
#endif
  constexpr std::size_t kRowLen = 1 << 18;
  const std::size_t before = resident_bytes();
  auto table = make(256, kRowLen);  // 512 MiB of addresses
  for (std::size_t row = 0; row < 10; ++row) {
    ASSERT_EQ(table->alloc(), row);
    ASSERT_TRUE(table->write(row, kRowLen - 1, std::array{SlotId{5}}).ok());
  }
  EXPECT_LT(resident_bytes(), before + (64 << 20));
}

TEST(RequestTable, RefusesSizesThatAreZeroOrOverflow) {
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  for (const auto& [rows, len] : {std::pair<std::size_t, std::size_t>{0, 4},
                                  {4, 0},
                                  {kHuge, kHuge},
                                  {kHuge / 8, 16},
                                  {16, kHuge / 64},
                                  {(std::size_t{1} << 32) + 1, 1}}) {
    const auto refused = RequestTable::create(rows, len);
    ASSERT_FALSE(refused.ok()) << rows << " x " << len;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  }
}

TEST(RequestTableDeathTest, MisuseNamesTheRow) {
  auto table = make(4, 2);
  const std::size_t row = *table->alloc();
  EXPECT_DEATH((void)table->row(1), "row 1 is not allocated");
  EXPECT_DEATH((void)table->row(4), "row 4 is outside \\[0, 4\\)");
  EXPECT_DEATH(table->free(2), "row 2 is not allocated");
  EXPECT_DEATH(table->free(std::array{row, row}), "row 0 is not allocated");
}

}  // namespace
}  // namespace pando
