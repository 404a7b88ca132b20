// SPDX-License-Identifier: Apache-2.0
// PrefixCache::evict and reset: how much goes, from where, in which order, and that the memory of
// what has gone comes back.
#include <gtest/gtest.h>

#include <algorithm>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

TEST(PrefixCacheEvict, RoundsUpToWholePages) {
  TestCache cache(4);
  cache.put(tokens(16));
  const EvictResult result = cache->evict(5);
  EXPECT_EQ(result.tokens, 8u);
  EXPECT_EQ(cache->inspect().sizes().total, 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheEvict, TrimsTheTailOfTheLastVictim) {
  TestCache cache(4);
  const Slots slots = cache.take(16);
  (void)cache->paths().insert({tokens(16)}, slots).value();
  const EvictResult result = cache->evict(4);
  EXPECT_EQ(result.tokens, 4u);
  EXPECT_EQ(result.nodes, 0u);
  EXPECT_EQ(cache.slots_of(tokens(16)), Slots(slots.begin(), slots.begin() + 12));
  EXPECT_TRUE(cache.allocator->is_free(PageId{4}));
}

TEST(PrefixCacheEvict, DropsTheLastVictimWholeWhenAskedTo) {
  TestCache cache(4, {.evict_whole_nodes = true});
  cache.put(tokens(16));
  const EvictResult result = cache->evict(1);
  EXPECT_EQ(result.tokens, 16u);
  EXPECT_EQ(result.nodes, 1u);
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
}

TEST(PrefixCacheEvict, NothingForNothing) {
  TestCache cache;
  cache.put(tokens(4));
  EXPECT_EQ(cache->evict(0).tokens, 0u);
  EXPECT_EQ(cache->inspect().sizes().total, 4u);
}

TEST(PrefixCacheEvict, ReturnsLessWhenTheTreeIsEmptied) {
  TestCache cache;
  cache.put(tokens(4));
  cache.put(tokens(3, 50));
  const EvictResult result = cache->evict(100);
  EXPECT_EQ(result.tokens, 7u);
  EXPECT_EQ(result.nodes, 2u);
  EXPECT_EQ(cache->evict(1).tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheEvict, ReturnsLessWhenTheRestIsLocked) {
  TestCache cache;
  cache.put(tokens(4));
  cache.put(tokens(3, 50));
  const Lease lease = cache.hold(tokens(4));
  EXPECT_EQ(cache->evict(100).tokens, 3u);
  EXPECT_EQ(cache.probe(tokens(4)), 4u);
}

TEST(PrefixCacheEvict, TakesTheLeastRecentlyUsedFirst) {
  TestCache cache;
  cache.put(tokens(2, 10));
  cache.put(tokens(2, 20));
  cache.put(tokens(2, 30));
  cache.match(tokens(2, 10));
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(2, 20)), 0u);
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(2, 30)), 0u);
  EXPECT_EQ(cache.probe(tokens(2, 10)), 2u);
}

TEST(PrefixCacheEvict, TakesLeavesBeforeTheirParents) {
  TestCache cache;
  cache.put(tokens(2));
  cache.put(tokens(4));
  EXPECT_EQ(cache->evict(2).nodes, 1u);
  EXPECT_EQ(cache.probe(tokens(4)), 2u);
  EXPECT_EQ(cache->evict(2).nodes, 1u);
  EXPECT_EQ(cache.probe(tokens(4)), 0u);
}

TEST(PrefixCacheEvict, AMatchOfAPrefixKeepsThatPrefixLonger) {
  TestCache cache;
  cache.put(tokens(6));
  cache.put(tokens(4, 50));
  cache.match(tokens(3));
  cache->evict(7);  // the unused half of the first key, then the second
  EXPECT_EQ(cache.probe(tokens(6)), 3u);
  EXPECT_EQ(cache.probe(tokens(4, 50)), 0u);
}

TEST(PrefixCacheEvict, WhatWasTrimmedCanBeInsertedAgain) {
  TestCache cache(2);
  cache.put(tokens(8));
  cache->evict(4);
  EXPECT_EQ(cache.put(tokens(8)).existing, 4u);
  EXPECT_EQ(cache.match(tokens(8)).length, 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheEvict, IsCounted) {
  TestCache cache;
  cache.put(tokens(4));
  cache.put(tokens(4, 50));
  cache->evict(6);
  EXPECT_EQ(cache->inspect().stats().evicted_tokens, 6u);
  EXPECT_EQ(cache->inspect().stats().evicted_nodes, 1u);
}

TEST(PrefixCacheEvict, ADeepChainGoesFromItsEnd) {
  constexpr std::size_t kDepth = 2000;
  TestCache cache(1, {}, 4096);
  Slots slots;
  for (std::size_t n = 1; n <= kDepth; ++n) {  // one node per token
    slots.push_back(cache.take(1)[0]);
    (void)cache->paths().insert({tokens(n)}, slots, {.owned_by_tree = n - 1}).value();
  }
  ASSERT_EQ(cache->inspect().num_nodes(), kDepth + 1);
  EXPECT_EQ(cache.slots_of(tokens(kDepth)), slots);
  EXPECT_TRUE(cache.closes());
  {
    const Lease lease = cache.hold(tokens(kDepth));
    EXPECT_EQ(cache->inspect().sizes().protected_tokens, kDepth);
    EXPECT_EQ(cache->evict(1).tokens, 0u);
  }
  EXPECT_EQ(cache->evict(kDepth / 2).nodes, kDepth / 2);
  EXPECT_EQ(cache.probe(tokens(kDepth)), kDepth / 2);
  EXPECT_TRUE(cache.closes());
  cache->evict(kDepth);
  EXPECT_EQ(cache->inspect().num_nodes(), 0u);
  EXPECT_TRUE(cache.closes());
}

// ---- Memory of the bookkeeping.

/// What an empty cache holds once every table has its first chunk.
std::size_t warm_bytes(TestCache& cache) {
  cache.put(tokens(2));
  cache.put(tokens(2, 50));
  cache->evict(4);
  return cache->inspect().memory_bytes();
}

TEST(PrefixCacheMemory, TrimmingALongEdgeGivesItsMemoryBack) {
  constexpr std::size_t kTokens = 100'000;
  TestCache cache(1, {}, kTokens);
  const std::size_t empty = warm_bytes(cache);
  cache.put(tokens(kTokens));
  const std::size_t full = cache->inspect().memory_bytes() - empty;
  ASSERT_GE(full, kTokens * (sizeof(Token) + sizeof(PageId)));
  cache->evict(kTokens * 9 / 10);
  EXPECT_LE(cache->inspect().memory_bytes() - empty, full / 4);
  EXPECT_EQ(cache.probe(tokens(kTokens)), kTokens / 10);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheMemory, EvictingTheEndOfASplitEdgeGivesItsMemoryBack) {
  constexpr std::size_t kTokens = 100'000;
  TestCache cache(1, {.events = true}, kTokens);
  const std::size_t empty = warm_bytes(cache);
  cache.put(tokens(kTokens));
  const std::size_t full = cache->inspect().memory_bytes() - empty;
  cache.match(tokens(kTokens / 10));
  cache.match(tokens(kTokens / 20));
  EXPECT_EQ(cache->evict(kTokens * 9 / 10).nodes, 1u);
  EXPECT_LE(cache->inspect().memory_bytes() - empty, full / 4);
  EXPECT_EQ(cache.probe(tokens(kTokens)), kTokens / 10);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheMemory, EvictingEverythingGivesAllSegmentsBack) {
  constexpr std::size_t kTokens = 4096;
  TestCache cache(1, {}, 8 * kTokens);
  const std::size_t empty = warm_bytes(cache);
  for (Token i = 0; i < 8; ++i) cache.put(tokens(kTokens, 100'000 * i));
  EXPECT_GE(cache->inspect().memory_bytes() - empty,
            8 * kTokens * (sizeof(Token) + sizeof(PageId)));
  cache->evict(8 * kTokens);
  EXPECT_EQ(cache->inspect().memory_bytes(), empty);
}

TEST(PrefixCacheMemory, ChurnDoesNotGrowIt) {
  TestCache cache(4, {}, 256);
  std::size_t after_warmup = 0;
  for (Token i = 0; i < 2000; ++i) {
    cache->evict(64 - std::min<std::size_t>(64, cache.allocator->available()));
    cache.put(tokens(64, 100 * i));
    if (i == 100) after_warmup = cache->inspect().memory_bytes();
  }
  EXPECT_EQ(cache->inspect().memory_bytes(), after_warmup);
}

// ---- Reset.

TEST(PrefixCacheReset, EmptiesTheTreeAndGivesItsSlotsBack) {
  TestCache cache(4);
  cache.put(tokens(8));
  cache.put(tokens(8), "ns");
  ASSERT_TRUE(cache->reset().ok());
  EXPECT_EQ(cache->inspect().sizes(), Sizes{});
  EXPECT_EQ(cache->inspect().num_nodes(), 0u);
  EXPECT_EQ(cache->inspect().stats().inserted_tokens, 0u);
  EXPECT_EQ(cache.allocator->available(), cache.allocator->capacity());
  EXPECT_EQ(cache.match(tokens(8)).length, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheReset, IsRefusedWhileLeasesAreHeld) {
  TestCache cache;
  cache.put(tokens(4));
  Lease lease = cache.hold(tokens(4));
  const Snapshot before(cache);
  EXPECT_TRUE(fails(cache->reset(), ErrorCode::in_use, "1 leases are still held"));
  EXPECT_EQ(Snapshot(cache), before);
  lease.release();
  EXPECT_TRUE(cache->reset().ok());
}

TEST(PrefixCacheReset, MakesHandlesStale) {
  TestCache cache;
  cache.put(tokens(4));
  const Match match = cache.match(tokens(4));
  ASSERT_TRUE(cache->reset().ok());
  cache.put(tokens(4));
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "evicted"));
}

TEST(PrefixCache, DestructionGivesAllSlotsBack) {
  TestCache cache;
  cache.put(tokens(4));
  cache.cache.reset();
  EXPECT_EQ(cache.allocator->available(), cache.allocator->capacity());
}

}  // namespace
}  // namespace pando::testing
