// SPDX-License-Identifier: Apache-2.0
// LinePool: blocks never overlap, small ones are used again, large ones go back to the heap.
#include "base/line_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace pando {
namespace {

// With the address sanitizer every block comes from the heap.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPooling = false;
#elif defined(__has_feature)
constexpr bool kPooling = !__has_feature(address_sanitizer);
#else
constexpr bool kPooling = true;
#endif

TEST(LinePool, HasNothingBeforeTheFirstBlock) { EXPECT_EQ(LinePool().memory_bytes(), 0u); }

TEST(LinePool, SmallBlocksAreWholeCacheLines) {
  if (!kPooling) GTEST_SKIP() << "no pooling with the address sanitizer";
  LinePool pool;
  for (const std::size_t size : {1u, 64u, 65u, 100u, 4096u})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.alloc(size)) % 64, 0u);
}

TEST(LinePool, AFreedBlockIsUsedAgainForItsSizeClass) {
  if (!kPooling) GTEST_SKIP() << "no pooling with the address sanitizer";
  LinePool pool;
  void* block = pool.alloc(100);
  pool.free(block, 100);
  EXPECT_NE(pool.alloc(200), block);
  EXPECT_EQ(pool.alloc(128), block);
}

TEST(LinePool, LargeBlocksGoBackToTheHeap) {
  LinePool pool;
  const std::size_t before = pool.memory_bytes();
  void* block = pool.alloc(1 << 20);
  EXPECT_EQ(pool.memory_bytes(), before + (1 << 20) + kCacheLine);  // room to align it
  pool.free(block, 1 << 20);
  EXPECT_EQ(pool.memory_bytes(), before);
}

TEST(LinePool, ChurnOfOneSizeDoesNotGrowIt) {
  LinePool pool;
  pool.free(pool.alloc(500), 500);
  const std::size_t before = pool.memory_bytes();
  for (int i = 0; i < 10'000; ++i) pool.free(pool.alloc(500), 500);
  EXPECT_EQ(pool.memory_bytes(), before);
}

TEST(LinePool, LiveBlocksKeepTheirBytes) {
  struct Live {
    unsigned char* block;
    std::size_t size;
    unsigned char fill;
  };
  LinePool pool;
  std::vector<Live> live;
  std::mt19937 random(1);
  const auto take_back = [&](std::size_t i) {
    const Live gone = live[i];
    for (std::size_t j = 0; j < gone.size; ++j) ASSERT_EQ(gone.block[j], gone.fill);
    pool.free(gone.block, gone.size);
    live[i] = live.back();
    live.pop_back();
  };
  for (unsigned i = 0; i < 3000; ++i) {
    if (random() % 3 == 0 && !live.empty()) {
      take_back(random() % live.size());
      continue;
    }
    const std::size_t size = 8 + random() % (random() % 8 == 0 ? 10'000 : 300);
    auto* block = static_cast<unsigned char*>(pool.alloc(size));
    const auto fill = static_cast<unsigned char>(i);
    std::memset(block, fill, size);
    live.push_back({block, size, fill});
  }
  while (!live.empty()) take_back(0);
}

}  // namespace
}  // namespace pando
