// SPDX-License-Identifier: Apache-2.0
// The life of a request: start, checkpoint, finish; with bigram keys, chunked prefill, tiny pools,
// and without reuse (ChunkCache). Room for its tokens is in allocate_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "pando/chunk_cache.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

// ---- start

TEST(PrefixCacheStart, LeavesOneTokenToCompute) {
  TestCache cache;
  cache.put(tokens(4));
  Running running(tokens(4));
  const Match match = *cache->start(running.request);
  EXPECT_EQ(match.length, 3u);
  EXPECT_EQ(running.request.cached_length, 3u);
  running.request.lease.release();
}

TEST(PrefixCacheStart, LeavesAWholePageWhenTheLastTokenEndsIt) {
  TestCache cache({.page_size = 4});
  cache.put(tokens(8));
  Running running(tokens(8));
  EXPECT_EQ(cache->start(running.request)->length, 4u);
  running.request.lease.release();
}

TEST(PrefixCacheStart, ABigramKeyLeavesItsLastTokenAnyway) {
  TestCache cache({.page_size = 4, .bigram = true});
  cache.put(tokens(9));
  Running running(tokens(9));
  EXPECT_EQ(cache->start(running.request)->length, 8u);
  running.request.lease.release();
}

TEST(PrefixCacheStart, WritesTheSlotsAndHoldsThem) {
  TestCache cache({.page_size = 2});
  cache.put(tokens(4));
  const Slots expected = cache.slots_of(tokens(4));
  Running running(tokens(6));
  ASSERT_EQ(cache->start(running.request)->length, 4u);
  EXPECT_EQ(Slots(running.slots.begin(), running.slots.begin() + 4), expected);
  EXPECT_TRUE(running.request.lease);
  EXPECT_EQ(cache->evict(4).tokens, 0u);
  running.request.lease.release();
}

TEST(PrefixCacheStart, OfASingleTokenMatchesNothing) {
  TestCache cache;
  cache.put(tokens(1));
  Running running(tokens(1));
  EXPECT_EQ(cache->start(running.request)->length, 0u);
  EXPECT_FALSE(running.request.lease);
}

TEST(PrefixCacheStart, TwiceIsRefused) {
  TestCache cache;
  cache.put(tokens(4));
  Running running(tokens(4));
  ASSERT_TRUE(cache->start(running.request).ok());
  const Snapshot before(cache);
  EXPECT_TRUE(fails(cache->start(running.request), ErrorCode::in_use, "has started already"));
  EXPECT_EQ(Snapshot(cache), before);
  EXPECT_EQ(running.request.cached_length, 3u);
  running.request.lease.release();
}

TEST(PrefixCacheStart, WithTooFewSlotsIsRefused) {
  TestCache cache;
  Running running(tokens(4));
  running.request.slots = running.request.slots.first(3);
  EXPECT_TRUE(
      fails(cache->start(running.request), ErrorCode::invalid_argument, "3 slots for 4 tokens"));
}

// ---- checkpoint

TEST(PrefixCacheCheckpoint, GivesThePagesToTheTreeAndHoldsThem) {
  TestCache cache({.page_size = 4});
  Running running(tokens(10));
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  ASSERT_TRUE(cache->checkpoint(running.request).ok());
  EXPECT_EQ(running.request.cached_length, 8u);
  EXPECT_EQ(cache->sizes(), (Sizes{.evictable = 0, .protected_tokens = 8, .total = 8}));
  EXPECT_TRUE(cache.closes(4));
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, SwapsDuplicatesForTheTreesSlots) {
  TestCache cache({.page_size = 4});
  Running first(tokens(10));
  Running second(tokens(10));
  ASSERT_TRUE(cache->allocate(first.request, 0).ok());
  ASSERT_TRUE(cache->allocate(second.request, 0).ok());
  const Slots own_tail(second.slots.begin() + 8, second.slots.end());
  ASSERT_TRUE(cache->checkpoint(first.request).ok());
  ASSERT_TRUE(cache->checkpoint(second.request).ok());
  EXPECT_EQ(second.slots, Slots(first.slots.begin(), first.slots.begin() + 8) + own_tail);
  EXPECT_EQ(cache->stats().duplicate_tokens, 8u);
  EXPECT_TRUE(cache.closes(8));
  ASSERT_TRUE(cache->finish(first.request).ok());
  ASSERT_TRUE(cache->finish(second.request).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, MovesTheLeaseToTheNewEnd) {
  TestCache cache({.page_size = 4});
  cache.put(tokens(4));
  Running running(tokens(12));
  ASSERT_EQ(cache->start(running.request)->length, 4u);
  running.computed(8);
  ASSERT_TRUE(cache->allocate(running.request, 4).ok());
  ASSERT_TRUE(cache->checkpoint(running.request, true).ok());
  EXPECT_EQ(cache->sizes().protected_tokens, 8u);
  running.request.lease.release();
  EXPECT_EQ(cache->sizes().protected_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, LetsGoOfThePartlyMatchedPage) {
  TestCache cache({.page_size = 4});
  cache.put(tokens(8));
  Running running({1, 2, 3, 4, 5, 6, 70, 80, 90});
  ASSERT_EQ(cache->start(running.request)->partial_length, 2u);
  ASSERT_EQ(cache->sizes().protected_tokens, 8u);
  ASSERT_TRUE(cache->allocate(running.request, 4).ok());
  ASSERT_TRUE(cache->checkpoint(running.request).ok());
  EXPECT_EQ(cache->sizes(), (Sizes{.evictable = 4, .protected_tokens = 8, .total = 12}));
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, OfLessThanAPageDoesNothing) {
  TestCache cache({.page_size = 4});
  Running running(tokens(3));
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  ASSERT_TRUE(cache->checkpoint(running.request).ok());
  EXPECT_EQ(running.request.cached_length, 0u);
  EXPECT_EQ(cache->sizes().total, 0u);
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, ChunkedDoesNotCountAsAHit) {
  TestCache cache({.page_size = 4});
  Running running(tokens(8));
  for (const std::size_t n : {4u, 8u}) {
    running.computed(n);
    ASSERT_TRUE(cache->allocate(running.request, n - 4).ok());
    ASSERT_TRUE(cache->checkpoint(running.request, true).ok());
  }
  EXPECT_NE(cache->dump().find("[0, 4) tokens 1 2 3 4 pages 1 locks 1 hits 0"), std::string::npos);
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_NE(cache->dump().find("[0, 4) tokens 1 2 3 4 pages 1 locks 0 hits 1"), std::string::npos);
}

TEST(PrefixCacheCheckpoint, WorksThroughAPoolTheRequestFills) {
  TestCache cache({.page_size = 4}, 16);
  cache.put(tokens(8, 500));
  Running running(tokens(16));
  for (std::size_t n = 4; n <= 16; n += 4) {
    running.computed(n);
    ASSERT_TRUE(cache->allocate(running.request, n - 4).ok());
    ASSERT_TRUE(cache->checkpoint(running.request, true).ok());
    EXPECT_TRUE(cache.closes());
  }
  EXPECT_EQ(cache->sizes().protected_tokens, 16u);
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_EQ(cache.probe(tokens(16)), 16u);
}

TEST(PrefixCacheCheckpoint, RaisesThePriorityAsked) {
  TestCache cache;
  Running running(tokens(4));
  running.request.priority = 9;
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  ASSERT_TRUE(cache->checkpoint(running.request).ok());
  EXPECT_NE(cache->dump().find("priority 9"), std::string::npos);
  ASSERT_TRUE(cache->finish(running.request).ok());
}

// ---- finish

TEST(PrefixCacheFinish, InsertsAndLetsGo) {
  TestCache cache({.page_size = 4});
  Running running(tokens(10));
  ASSERT_TRUE(cache->start(running.request).ok());
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_EQ(cache.probe(tokens(10)), 8u);
  EXPECT_EQ(cache->sizes().protected_tokens, 0u);
  EXPECT_TRUE(running.request.slots.empty());
  EXPECT_FALSE(running.request.lease);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, WithoutInsertGivesBackWhatIsTheRequests) {
  TestCache cache({.page_size = 4});
  cache.put(tokens(4));
  Running running(tokens(10));
  ASSERT_EQ(cache->start(running.request)->length, 4u);
  ASSERT_TRUE(cache->allocate(running.request, 4).ok());
  ASSERT_TRUE(cache->finish(running.request, false).ok());
  EXPECT_EQ(cache.probe(tokens(10)), 4u);
  EXPECT_EQ(cache->sizes(), (Sizes{.evictable = 4, .protected_tokens = 0, .total = 4}));
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, WithoutInsertKeepsWhatWasCheckpointed) {
  TestCache cache({.page_size = 4});
  Running running(tokens(10));
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  ASSERT_TRUE(cache->checkpoint(running.request).ok());
  ASSERT_TRUE(cache->finish(running.request, false).ok());
  EXPECT_EQ(cache.probe(tokens(10)), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, FreesSlotsBeyondTheComputedTokens) {
  TestCache cache({.page_size = 4});
  Running running(tokens(12));
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  running.request.key.tokens = running.request.key.tokens.first(5);
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_EQ(cache->sizes().total, 4u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, OfARequestThatComputedNothingJustLetsGo) {
  TestCache cache;
  cache.put(tokens(4));
  Running running(tokens(6));
  ASSERT_EQ(cache->start(running.request)->length, 4u);
  running.computed(4);
  ASSERT_TRUE(cache->finish(running.request, false).ok());
  EXPECT_EQ(cache->sizes().evictable, 4u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, TooFewSlotsAreRefusedAndTheRequestKeepsWhatItHas) {
  TestCache cache;
  Running running(tokens(4));
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  running.request.slots = running.request.slots.first(2);
  EXPECT_TRUE(fails(cache->finish(running.request), ErrorCode::invalid_argument,
                    "finish: 2 slots for 4 tokens"));
  EXPECT_EQ(cache->sizes().total, 0u);
  running.request.slots = running.slots;
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_TRUE(cache.closes());
}

// ---- Bigram keys: k pages of slots come with k * page_size + 1 tokens.

TEST(PrefixCacheBigramRequest, KeepsTheLastSlotUntilTheEnd) {
  TestCache cache({.bigram = true});
  Running running(tokens(5));
  ASSERT_TRUE(cache->allocate(running.request, 0).ok());
  ASSERT_TRUE(cache->checkpoint(running.request).ok());
  EXPECT_EQ(running.request.cached_length, 4u);
  EXPECT_TRUE(cache.closes(1));
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheBigramRequest, ChunkedPrefillLosesNoSlot) {
  for (const std::size_t page : {1u, 4u}) {
    for (const std::size_t chunk : {1u, 3u, 4u, 5u, 8u}) {
      TestCache cache({.page_size = page, .bigram = true}, 64);
      Running running(tokens(21));
      for (std::size_t from = 0; from < 21; from += chunk) {
        const std::size_t to = std::min<std::size_t>(21, from + chunk);
        running.computed(to);
        ASSERT_TRUE(cache->allocate(running.request, from).ok());
        ASSERT_TRUE(cache->checkpoint(running.request, to < 21).ok());
        EXPECT_EQ(running.request.cached_length, (to - 1) / page * page);
        const std::size_t tail = to - running.request.cached_length;
        EXPECT_TRUE(cache.closes((tail + page - 1) / page * page));
      }
      ASSERT_TRUE(cache->finish(running.request).ok());
      EXPECT_EQ(cache.probe(tokens(21)), 20u);
      EXPECT_TRUE(cache.closes());
    }
  }
}

// The match may reach one token further than the first chunk: its last unit looks one ahead.
TEST(PrefixCacheBigramRequest, AMatchLongerThanTheFirstChunkIsKept) {
  TestCache cache({.page_size = 4, .bigram = true}, 64);
  cache.put(tokens(9));
  Running running(tokens(9) + tokens(4, 50));
  ASSERT_EQ(cache->start(running.request)->length, 8u);
  running.computed(8);
  ASSERT_TRUE(cache->checkpoint(running.request, true).ok());
  EXPECT_EQ(running.request.cached_length, 8u);
  EXPECT_EQ(cache->sizes().protected_tokens, 8u);
  running.computed(13);
  ASSERT_TRUE(cache->allocate(running.request, 8).ok());
  ASSERT_TRUE(cache->finish(running.request).ok());
  EXPECT_EQ(cache.probe(tokens(9) + tokens(4, 50)), 12u);
  EXPECT_TRUE(cache.closes());
}

// ---- ChunkCache: the same calls without reuse.

TEST(ChunkCache, ReusesNothingAndLosesNothing) {
  const auto allocator = *PagedAllocator::create({.capacity_tokens = 64, .page_size = 4});
  const auto cache = *ChunkCache::create(*allocator);
  for (int round = 0; round < 2; ++round) {
    Running running(tokens(10));
    const Match match = *cache->start(running.request);
    EXPECT_EQ(match.length, 0u);
    EXPECT_EQ(match.end, MatchEnd::disabled);
    running.computed(6);
    ASSERT_TRUE(cache->allocate(running.request, 0).ok());
    ASSERT_TRUE(cache->checkpoint(running.request, true).ok());
    EXPECT_EQ(running.request.cached_length, 0u);
    running.computed(10);
    ASSERT_TRUE(cache->allocate(running.request, 6).ok());
    EXPECT_EQ(allocator->available(), 52u);
    ASSERT_TRUE(cache->finish(running.request).ok());
    EXPECT_EQ(allocator->available(), 64u);
  }
  EXPECT_EQ(cache->sizes(), Sizes{});
  EXPECT_TRUE(cache->check().ok());
}

TEST(ChunkCache, TakesThePageSizeOfItsAllocator) {
  const auto allocator = *PagedAllocator::create({.capacity_tokens = 64, .page_size = 16});
  EXPECT_EQ((*ChunkCache::create(*allocator))->options().page_size, 16u);
}

}  // namespace
}  // namespace pando::testing
