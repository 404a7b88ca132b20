// SPDX-License-Identifier: Apache-2.0
// Arenas by example: what every arena of host memory keeps to, what each adds, and misuse. Where
// the machine decides (reserved huge pages, binding to a node) both outcomes are looked at.
#include "pando/pools.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/cache_fixture.h"

namespace pando {
namespace {

using testing::fails;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTooMuch = std::size_t{1} << 60;

bool is_aligned(const void* memory, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(memory) % alignment == 0;
}

/// Every byte takes a value and keeps it.
void write_all(void* memory, std::size_t size_bytes) {
  auto* bytes = static_cast<unsigned char*>(memory);
  std::memset(bytes, 0x5a, size_bytes);
  for (std::size_t i = 0; i < size_bytes; i += 509) ASSERT_EQ(bytes[i], 0x5a) << "at byte " << i;
  ASSERT_EQ(bytes[size_bytes - 1], 0x5a);
}

void expect_aligned_writable_blocks(Arena& arena) {
  for (const std::size_t alignment :
       {std::size_t{1}, std::size_t{64}, std::size_t{4096}, 2 * kMiB, 8 * kMiB}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{100}, std::size_t{4096},
                                   2 * kMiB - 1, 2 * kMiB, 5 * kMiB + 3}) {
      SCOPED_TRACE(::testing::Message() << size << " bytes aligned to " << alignment);
      const Result<void*> first = arena.allocate(size, alignment);
      const Result<void*> second = arena.allocate(size, alignment);
      ASSERT_TRUE(first.ok()) << first.error().message;
      ASSERT_TRUE(second.ok()) << second.error().message;
      EXPECT_TRUE(is_aligned(*first, alignment));
      EXPECT_TRUE(is_aligned(*second, alignment));
      write_all(*first, size);
      write_all(*second, size);
      arena.free(*first, size);
      write_all(*second, size);
      arena.free(*second, size);
    }
  }
}

void expect_refusals(Arena& arena) {
  EXPECT_TRUE(fails(arena.allocate(0, 64), ErrorCode::invalid_argument, "asked for 0 bytes"));
  EXPECT_TRUE(fails(arena.allocate(64, 0), ErrorCode::invalid_argument, "aligned to 0"));
  EXPECT_TRUE(fails(arena.allocate(64, 48), ErrorCode::invalid_argument, "a power of two"));
  EXPECT_TRUE(fails(arena.allocate(kTooMuch, 64), ErrorCode::out_of_capacity,
                    "asked for 1152921504606846976 bytes (1.0 EiB)"));
  EXPECT_TRUE(fails(arena.allocate(SIZE_MAX, 64), ErrorCode::out_of_capacity,
                    "asked for 18446744073709551615 bytes (16.0 EiB), available are"));
  EXPECT_TRUE(fails(arena.allocate(kTooMuch, 64), ErrorCode::out_of_capacity,
                    "arena \"" + std::string(arena.name()) + "\""));
}

class HostArena : public ::testing::TestWithParam<std::unique_ptr<Arena> (*)()> {
 protected:
  const std::unique_ptr<Arena> arena_ = GetParam()();
};

TEST_P(HostArena, BlocksAreAlignedAndWritableEndToEnd) { expect_aligned_writable_blocks(*arena_); }

TEST_P(HostArena, RefusesWhatCannotBeAndSaysTheSizes) { expect_refusals(*arena_); }

TEST_P(HostArena, SaysWhatItIsAndHasMemory) {
  EXPECT_EQ(arena_->kind(), MemoryKind::host);
  EXPECT_GT(arena_->available_bytes(), 0u);
  EXPECT_LT(arena_->available_bytes(), kTooMuch);
}

INSTANTIATE_TEST_SUITE_P(
    All, HostArena,
    ::testing::Values([] { return make_malloc_arena(); },
                      [] { return make_huge_page_arena(HugePages::transparent); }),
    [](const auto& test) { return test.index == 0 ? "Malloc" : "TransparentHugePages"; });

TEST(ReservedHugePageArena, GivesMemoryOrSaysHowManyPagesAreFreeAndNeeded) {
  const auto arena = make_huge_page_arena(HugePages::reserved);
  const Result<void*> block = arena->allocate(2 * kMiB, 64);
  if (block.ok()) {
    EXPECT_TRUE(is_aligned(*block, 2 * kMiB));
    write_all(*block, 2 * kMiB);
    arena->free(*block, 2 * kMiB);
  } else {
    EXPECT_TRUE(fails(block, ErrorCode::out_of_capacity, "needed are 1 huge pages of "));
    EXPECT_TRUE(fails(block, ErrorCode::out_of_capacity, "free are "));
  }
  const Result<void*> too_much = arena->allocate(kTooMuch, 64);
  EXPECT_TRUE(fails(too_much, ErrorCode::out_of_capacity, " huge pages of "));
  expect_refusals(*arena);
}

TEST(NumaArena, MemoryOfNodeZeroIsAlignedAndWritable) {
  auto made = make_numa_arena(0);
  if (!made.ok()) GTEST_SKIP() << made.error().message;
  Arena& arena = **made;
  EXPECT_EQ(arena.name(), "NUMA node 0");
  EXPECT_LE(arena.available_bytes(), kTooMuch);
  expect_refusals(arena);
  const Result<void*> probe = arena.allocate(1, 1);
  if (!probe.ok() && probe.error().code == ErrorCode::unavailable)
    GTEST_SKIP() << probe.error().message;
  ASSERT_TRUE(probe.ok()) << probe.error().message;
  int policy = MPOL_DEFAULT;
  ASSERT_EQ(syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, *probe, MPOL_F_ADDR), 0);
  EXPECT_EQ(policy, MPOL_BIND);
  arena.free(*probe, 1);
  expect_aligned_writable_blocks(arena);
}

TEST(NumaArena, RefusesANodeThatDoesNotExist) {
  EXPECT_TRUE(fails(make_numa_arena(60000), ErrorCode::invalid_argument,
                    "node 60000 is not on this machine, its nodes are "));
}

class UserArena : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = 4096;
  alignas(kSize) std::byte memory_[kSize];
  const std::unique_ptr<Arena> arena_ = make_user_arena(memory_);
};

TEST_F(UserArena, CarvesBlocksOneAfterTheOther) {
  EXPECT_EQ(*arena_->allocate(100, 1), memory_);
  EXPECT_EQ(*arena_->allocate(100, 64), memory_ + 128);
  EXPECT_EQ(arena_->available_bytes(), kSize - 228);
  EXPECT_EQ(*arena_->allocate(kSize - 228, 1), memory_ + 228);
  EXPECT_EQ(arena_->available_bytes(), 0u);
}

TEST_F(UserArena, AlignsAddressesAndNotOffsets) {
  const auto arena = make_user_arena(std::span(memory_).subspan(8));
  EXPECT_EQ(*arena->allocate(64, 64), memory_ + 64);
}

TEST_F(UserArena, SaysWhatIsLeftWhenARequestDoesNotFit) {
  (void)arena_->allocate(1024, 64).value();
  EXPECT_TRUE(fails(arena_->allocate(3073, 64), ErrorCode::out_of_capacity,
                    "over 4096 bytes (4.0 KiB): asked for 3073 bytes (3.0 KiB) aligned to 64, left "
                    "at its end are 3072 bytes (3.0 KiB)"));
  EXPECT_TRUE(fails(arena_->allocate(1, 8192), ErrorCode::out_of_capacity, "aligned to 8192"));
  EXPECT_TRUE(fails(arena_->allocate(kTooMuch, 1), ErrorCode::out_of_capacity, "(1.0 EiB)"));
  EXPECT_EQ(arena_->available_bytes(), 3072u);
  EXPECT_TRUE(arena_->allocate(3072, 64).ok());
  EXPECT_TRUE(fails(make_user_arena({})->allocate(1, 1), ErrorCode::out_of_capacity, "0 bytes"));
}

TEST_F(UserArena, UsesTheLastBlockAgain) {
  void* first = *arena_->allocate(1024, 64);
  void* last = *arena_->allocate(1024, 64);
  arena_->free(last, 1024);
  EXPECT_EQ(*arena_->allocate(3072, 64), last);
  arena_->free(first, 1024);
  EXPECT_EQ(arena_->available_bytes(), 0u);
}

TEST_F(UserArena, StartsOverWhenEverythingIsFreed) {
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(*arena_->allocate(1024, 64));
  for (void* block : blocks) arena_->free(block, 1024);
  EXPECT_EQ(arena_->available_bytes(), kSize);
  EXPECT_EQ(*arena_->allocate(kSize, 64), memory_);
}

TEST_F(UserArena, SaysWhatTheMemoryIs) {
  EXPECT_EQ(arena_->kind(), MemoryKind::host);
  EXPECT_EQ(make_user_arena(memory_, MemoryKind::pinned)->kind(), MemoryKind::pinned);
  EXPECT_EQ(make_user_arena(memory_, MemoryKind::cuda)->kind(), MemoryKind::cuda);
}

TEST(ArenaDeathTest, MisuseNamesTheBlock) {
  std::byte memory[256];
  std::byte foreign[64];
  const auto arena = make_user_arena(memory);
  void* block = *arena->allocate(64, 1);
  EXPECT_DEATH(arena->free(nullptr, 64), "\"user memory\": free of a null pointer");
  EXPECT_DEATH(arena->free(memory + 1, 63), "which is no block of it");
  EXPECT_DEATH(arena->free(foreign, 64), "over 256 bytes at 0x.*: free of 64 bytes at 0x");
  EXPECT_DEATH(arena->free(block, 65), "free of 65 bytes at 0x.*, which is no block of it");
  arena->free(block, 64);
  EXPECT_DEATH(arena->free(block, 64), "which is no block of it");
  EXPECT_DEATH(make_malloc_arena()->free(nullptr, 64), "\"malloc\": free of a null pointer");
  EXPECT_DEATH(make_huge_page_arena()->free(nullptr, 64), "huge pages\": free of a null pointer");
  EXPECT_DEATH(make_huge_page_arena()->free(memory + 1, 64), "which is no block of it");
}

}  // namespace
}  // namespace pando
