// SPDX-License-Identifier: Apache-2.0
// EmbeddingCache by example: what counts as a use, what leaves and when, who keeps what, bad input,
// names of several items, and many threads at once.
#include "pando/embedding_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace pando {
namespace {

Embedding bytes_of(std::size_t size, int fill) {
  return copy_embedding(std::vector<std::byte>(size, static_cast<std::byte>(fill)));
}

std::unique_ptr<EmbeddingCache> make(std::size_t capacity_bytes) {
  return EmbeddingCache::create(capacity_bytes).value();
}

TEST(EmbeddingCache, ReturnsWhatWasPut) {
  auto cache = make(100);
  ASSERT_TRUE(cache->put("cat", bytes_of(10, 7)).ok());
  const std::optional<Embedding> found = cache->get("cat");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes().size(), 10u);
  EXPECT_EQ(found->bytes()[9], std::byte{7});
  EXPECT_TRUE(cache->has("cat"));
  EXPECT_FALSE(cache->get("dog"));
  EXPECT_FALSE(cache->has("dog"));
}

TEST(EmbeddingCache, HashesMayBeBytes) {
  auto cache = make(100);
  const std::string_view a("\0a", 2), b("\0b", 2);
  ASSERT_TRUE(cache->put(a, bytes_of(1, 1)).ok());
  EXPECT_TRUE(cache->has(a));
  EXPECT_FALSE(cache->has(b));
  EXPECT_FALSE(cache->has(std::string_view("\0", 1)));
}

TEST(EmbeddingCache, TheLeastRecentlyUsedLeavesFirst) {
  auto cache = make(30);
  for (const char* hash : {"a", "b", "c"}) ASSERT_TRUE(cache->put(hash, bytes_of(10, 0)).ok());
  ASSERT_TRUE(cache->get("a"));
  ASSERT_TRUE(cache->put("d", bytes_of(10, 0)).ok());
  EXPECT_TRUE(cache->has("a"));
  EXPECT_FALSE(cache->has("b"));
  EXPECT_EQ(cache->stats().evictions, 1u);
}

TEST(EmbeddingCache, AskingWhetherItIsThereIsNoUse) {
  auto cache = make(20);
  ASSERT_TRUE(cache->put("a", bytes_of(10, 0)).ok());
  ASSERT_TRUE(cache->put("b", bytes_of(10, 0)).ok());
  EXPECT_TRUE(cache->has("a"));
  ASSERT_TRUE(cache->put("c", bytes_of(10, 0)).ok());
  EXPECT_FALSE(cache->has("a"));
  EXPECT_EQ(cache->stats().hits, 0u);
}

TEST(EmbeddingCache, EvictsAsManyAsTheNewOneNeeds) {
  auto cache = make(40);
  for (const char* hash : {"a", "b", "c", "d"}) ASSERT_TRUE(cache->put(hash, bytes_of(10, 0)).ok());
  ASSERT_TRUE(cache->put("large", bytes_of(25, 0)).ok());
  EXPECT_EQ(cache->size(), 2u);
  EXPECT_TRUE(cache->has("d"));
  EXPECT_EQ(cache->stats().used_bytes, 35u);
  EXPECT_EQ(cache->stats().evictions, 3u);
}

TEST(EmbeddingCache, AnItemOfTheWholeCapacityFits) {
  auto cache = make(10);
  ASSERT_TRUE(cache->put("a", bytes_of(10, 0)).ok());
  EXPECT_EQ(cache->put("b", bytes_of(11, 0)).error().code, ErrorCode::out_of_capacity);
  EXPECT_TRUE(cache->has("a"));
}

TEST(EmbeddingCache, AnItemThatCannotFitEvictsNothing) {
  auto cache = make(20);
  ASSERT_TRUE(cache->put("a", bytes_of(10, 1)).ok());
  const Status refused = cache->put("a", bytes_of(21, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "put of an embedding: 21 bytes, more than the cache's 20");
  EXPECT_EQ(cache->get("a")->bytes()[0], std::byte{1});
  EXPECT_EQ(cache->stats().refused, 1u);
  EXPECT_EQ(cache->stats().evictions, 0u);
}

TEST(EmbeddingCache, PuttingAgainReplacesAndRefreshes) {
  auto cache = make(30);
  ASSERT_TRUE(cache->put("a", bytes_of(10, 1)).ok());
  ASSERT_TRUE(cache->put("b", bytes_of(10, 1)).ok());
  ASSERT_TRUE(cache->put("a", bytes_of(20, 2)).ok());
  EXPECT_EQ(cache->stats().used_bytes, 30u);
  EXPECT_EQ(cache->stats().evictions, 0u);
  EXPECT_EQ(cache->get("a")->size_bytes, 20u);
  ASSERT_TRUE(cache->put("c", bytes_of(10, 1)).ok());
  EXPECT_TRUE(cache->has("a"));
  EXPECT_FALSE(cache->has("b"));
}

TEST(EmbeddingCache, AReaderKeepsWhatItGotAfterItsEviction) {
  auto cache = make(10);
  ASSERT_TRUE(cache->put("a", bytes_of(10, 5)).ok());
  const Embedding held = *cache->get("a");
  ASSERT_TRUE(cache->put("b", bytes_of(10, 6)).ok());
  EXPECT_FALSE(cache->has("a"));
  EXPECT_EQ(held.bytes()[0], std::byte{5});
}

TEST(EmbeddingCache, TakesOverMemoryOfTheEngineWithoutACopy) {
  struct Tensor {
    std::vector<float> values{1.0F, 2.0F};
  };
  auto tensor = std::make_shared<Tensor>();
  const std::weak_ptr<Tensor> watched = tensor;
  const void* address = tensor->values.data();
  auto cache = make(100);
  ASSERT_TRUE(cache->put("a", {std::shared_ptr<const void>(tensor, address), 8}).ok());
  tensor.reset();
  EXPECT_EQ(cache->get("a")->data.get(), address);
  EXPECT_FALSE(watched.expired());
  cache->clear();
  EXPECT_TRUE(watched.expired());
}

TEST(EmbeddingCache, ClearDropsAllAndKeepsCounting) {
  auto cache = make(100);
  ASSERT_TRUE(cache->put("a", bytes_of(10, 0)).ok());
  ASSERT_TRUE(cache->get("a"));
  cache->clear();
  EXPECT_EQ(cache->size(), 0u);
  EXPECT_FALSE(cache->get("a"));
  const EmbeddingStats stats = cache->stats();
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.evictions, 0u);
  EXPECT_TRUE(cache->check().ok());
}

TEST(EmbeddingCache, BadInputIsRefusedAndChangesNothing) {
  EXPECT_EQ(EmbeddingCache::create(0).error().code, ErrorCode::invalid_argument);
  auto cache = make(100);
  EXPECT_EQ(cache->put("", bytes_of(1, 0)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(cache->put("a", {}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(cache->put("a", {nullptr, 5}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(cache->put("a", {bytes_of(1, 0).data, 0}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(cache->size(), 0u);
  EXPECT_EQ(cache->stats().refused, 0u);
  EXPECT_FALSE(cache->get(""));
}

// What an evicted value's owner does when it goes may be anything, also a call of the cache.
TEST(EmbeddingCache, ValuesAreLetGoOfOutsideTheMutex) {
  auto cache = make(10);
  std::size_t seen = 99;
  const auto owner =
      std::shared_ptr<const void>("x", [&](const void*) { seen = cache->stats().used_bytes; });
  ASSERT_TRUE(cache->put("a", {owner, 10}).ok());
  const_cast<std::shared_ptr<const void>&>(owner).reset();
  ASSERT_TRUE(cache->put("b", bytes_of(4, 0)).ok());
  EXPECT_EQ(seen, 4u);
}

// ---- Several items under one name.

std::string combined(std::vector<std::string_view> hashes) { return *combined_hash(hashes); }

TEST(CombinedHash, OneItemGivesItself) { EXPECT_EQ(combined({"abc"}), "abc"); }

TEST(CombinedHash, SeveralGiveTheHashOfTheirLengthsAndTexts) {
  // printf '\2\0\0\0\0\0\0\0ab\1\0\0\0\0\0\0\0c' | sha256sum
  EXPECT_EQ(combined({"ab", "c"}),
            "43ee655579de01ca739b3f95c1c2d3f46d353b2c0df818064ea594506cdb2617");
}

TEST(CombinedHash, OrderAndBoundariesMatter) {
  EXPECT_NE(combined({"ab", "c"}), combined({"a", "bc"}));
  EXPECT_NE(combined({"ab", "c"}), combined({"c", "ab"}));
  EXPECT_NE(combined({"ab", "c"}), combined({"ab", "c", "c"}));
}

TEST(CombinedHash, NothingAndEmptyHashesAreRefused) {
  EXPECT_EQ(combined_hash({}).error().code, ErrorCode::invalid_argument);
  const std::vector<std::string_view> one_empty{"a", ""};
  EXPECT_EQ(combined_hash(one_empty).error().message, "combined_hash: the hash of item 1 is empty");
}

// ---- Threads.

TEST(EmbeddingCacheThreads, ReadersAndWritersNeverSeeAnothersValue) {
  constexpr int kThreads = 4, kRounds = 2000, kHashes = 16;
  auto cache = make(10 * 8);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const int n = (i * 7 + t * 3) % kHashes;
        const std::string hash = std::to_string(n);
        if (i % 3 == 0) {
          if (!cache->put(hash, bytes_of(8 + static_cast<std::size_t>(n % 3), n)).ok()) ++wrong;
        } else if (const auto found = cache->get(hash)) {
          for (const std::byte byte : found->bytes()) wrong += byte != static_cast<std::byte>(n);
        }
        if (i % 500 == 0 && t == 0) cache->clear();
        if (cache->has(hash) && cache->stats().used_bytes > cache->capacity_bytes()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(cache->check().ok());
}

}  // namespace
}  // namespace pando
