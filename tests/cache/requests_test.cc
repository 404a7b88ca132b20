// SPDX-License-Identifier: Apache-2.0
// The life of a request: start, checkpoint, finish; with bigram keys, chunked prefill, tiny pools,
// and without reuse (disabled). Room for its tokens is in allocate_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "pando/inspect.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

// ---- start

TEST(PrefixCacheStart, LeavesOneTokenToCompute) {
  TestCache cache;
  cache.put(tokens(4));
  Running running(tokens(4));
  const Match match = *running.start(cache);
  EXPECT_EQ(match.length, 3u);
  EXPECT_EQ(running.request.cached_length(), 3u);
  running.abandon(cache).value();
}

TEST(PrefixCacheStart, LeavesAWholePageWhenTheLastTokenEndsIt) {
  TestCache cache(4);
  cache.put(tokens(8));
  Running running(tokens(8));
  EXPECT_EQ(running.start(cache)->length, 4u);
  running.abandon(cache).value();
}

TEST(PrefixCacheStart, ABigramKeyLeavesItsLastTokenAnyway) {
  TestCache cache(4, {.bigram = true});
  cache.put(tokens(9));
  Running running(tokens(9));
  EXPECT_EQ(running.start(cache)->length, 8u);
  running.abandon(cache).value();
}

TEST(PrefixCacheStart, WritesTheSlotsAndHoldsThem) {
  TestCache cache(2);
  cache.put(tokens(4));
  const Slots expected = cache.slots_of(tokens(4));
  Running running(tokens(6));
  ASSERT_EQ(running.start(cache)->length, 4u);
  EXPECT_EQ(Slots(running.request.slots().begin(), running.request.slots().begin() + 4), expected);
  EXPECT_TRUE(running.request.is_running());
  EXPECT_EQ(cache->evict(4).tokens, 0u);
  running.abandon(cache).value();
}

TEST(PrefixCacheStart, OfASingleTokenMatchesNothing) {
  TestCache cache;
  cache.put(tokens(1));
  Running running(tokens(1));
  EXPECT_EQ(running.start(cache)->length, 0u);
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
}

TEST(PrefixCacheStart, CanLookNothingUpOrLeaveNothing) {
  TestCache cache;
  cache.put(tokens(4));
  EXPECT_EQ((*cache->start(tokens(4), {.recompute = 0})).cached_length(), 4u);
  EXPECT_EQ((*cache->start(tokens(4), {.recompute = 3})).cached_length(), 1u);
  EXPECT_EQ((*cache->start(tokens(4), {.recompute = SIZE_MAX})).cached_length(), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Request, GivesEverythingBackWhenItGoes) {
  TestCache cache(4);
  cache.put(tokens(8));
  {
    Request request = *cache->start(tokens(20));
    cache->allocate(request).value();
    EXPECT_EQ(cache->inspect().sizes().protected_tokens, 8u);
    EXPECT_TRUE(cache.closes(12));
    Request moved = std::move(request);
    EXPECT_TRUE(cache.closes(12));
    moved = *cache->start(tokens(4, 90));  // the one before goes
    EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
  }
  EXPECT_TRUE(cache.closes());
}

// What the tree has is never allocated again, whatever a caller says; and nothing leaks.
TEST(Request, AllocatesBehindWhatItHasAndNowhereElse) {
  TestCache cache(4, {}, 64);
  cache.put(tokens(8));
  Request request = *cache->start(tokens(20));
  ASSERT_EQ(request.cached_length(), 8u);
  for (const std::size_t n : {0u, 4u, 8u}) {
    cache->allocate(request, n).value();
    EXPECT_EQ(request.slots().size(), 8u) << n;
  }
  cache->allocate(request).value();
  cache->allocate(request, 10).value();
  EXPECT_EQ(request.slots().size(), 20u);
  cache->finish(request).value();
  EXPECT_TRUE(cache.closes());
}

TEST(Request, GrowsTokenByToken) {
  TestCache cache(4);
  Request request = *cache->start(tokens(3));
  cache->allocate(request).value();
  for (Token token = 4; token <= 9; ++token) {
    request.append(token).value();
    cache->allocate(request).value();
  }
  EXPECT_EQ(request.slots().size(), 9u);
  cache->finish(request, 8).value();  // the last was sampled, not computed
  EXPECT_EQ(Tokens(request.tokens().begin(), request.tokens().end()), tokens(9));
  EXPECT_EQ(cache.probe(tokens(9)), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(Request, CheckSeesWhatRequestsOwn) {
  TestCache cache(4);
  Request request = *cache->start(tokens(8));
  cache->allocate(request).value();
  EXPECT_TRUE(cache->check().ok());
  const Slots own(request.slots().begin(), request.slots().end());
  cache.allocator->free(own);  // behind its back
  EXPECT_TRUE(fails(cache->check(), ErrorCode::corrupt, "of a request is free in the allocator"));
  Slots all(cache.allocator->available());
  cache.allocator->alloc(all).value();
  EXPECT_TRUE(cache->check().ok());
  cache->abandon(request);
}

// ---- checkpoint

TEST(PrefixCacheCheckpoint, GivesThePagesToTheTreeAndHoldsThem) {
  TestCache cache(4);
  Running running(tokens(10));
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache).ok());
  EXPECT_EQ(running.request.cached_length(), 8u);
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 0, .protected_tokens = 8, .total = 8}));
  EXPECT_TRUE(cache.closes(4));
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, SwapsDuplicatesForTheTreesSlots) {
  TestCache cache(4);
  Running first(tokens(10));
  Running second(tokens(10));
  ASSERT_TRUE(first.allocate(cache).ok());
  ASSERT_TRUE(second.allocate(cache).ok());
  const Slots own_tail(second.request.slots().begin() + 8, second.request.slots().end());
  ASSERT_TRUE(first.checkpoint(cache).ok());
  ASSERT_TRUE(second.checkpoint(cache).ok());
  EXPECT_EQ(second.slots(),
            Slots(first.request.slots().begin(), first.request.slots().begin() + 8) + own_tail);
  EXPECT_EQ(cache->inspect().stats().duplicate_tokens, 8u);
  EXPECT_TRUE(cache.closes(8));
  ASSERT_TRUE(first.finish(cache).ok());
  ASSERT_TRUE(second.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, MovesTheLeaseToTheNewEnd) {
  TestCache cache(4);
  cache.put(tokens(4));
  Running running(tokens(12));
  ASSERT_EQ(running.start(cache)->length, 4u);
  running.computed(8);
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache, true).ok());
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 8u);
  running.abandon(cache).value();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, LetsGoOfThePartlyMatchedPage) {
  TestCache cache(4);
  cache.put(tokens(8));
  Running running({1, 2, 3, 4, 5, 6, 70, 80, 90});
  ASSERT_EQ(running.start(cache)->partial_length, 2u);
  ASSERT_EQ(cache->inspect().sizes().protected_tokens, 8u);
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache).ok());
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 4, .protected_tokens = 8, .total = 12}));
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, OfLessThanAPageDoesNothing) {
  TestCache cache(4);
  Running running(tokens(3));
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache).ok());
  EXPECT_EQ(running.request.cached_length(), 0u);
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheCheckpoint, ChunkedDoesNotCountAsAHit) {
  TestCache cache(4);
  Running running(tokens(8));
  for (const std::size_t n : {4u, 8u}) {
    running.computed(n);
    ASSERT_TRUE(running.allocate(cache).ok());
    ASSERT_TRUE(running.checkpoint(cache, true).ok());
  }
  EXPECT_NE(cache->inspect().dump().find("[0, 4) tokens 1 2 3 4 pages 1 locks 1 hits 0"),
            std::string::npos);
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_NE(cache->inspect().dump().find("[0, 4) tokens 1 2 3 4 pages 1 locks 0 hits 1"),
            std::string::npos);
}

TEST(PrefixCacheCheckpoint, WorksThroughAPoolTheRequestFills) {
  TestCache cache(4, {}, 16);
  cache.put(tokens(8, 500));
  Running running(tokens(16));
  for (std::size_t n = 4; n <= 16; n += 4) {
    running.computed(n);
    ASSERT_TRUE(running.allocate(cache).ok());
    ASSERT_TRUE(running.checkpoint(cache, true).ok());
    EXPECT_TRUE(cache.closes());
  }
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 16u);
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_EQ(cache.probe(tokens(16)), 16u);
}

TEST(PrefixCacheCheckpoint, RaisesThePriorityAsked) {
  TestCache cache;
  Running running(tokens(4));
  running.options.priority = 9;
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache).ok());
  EXPECT_NE(cache->inspect().dump().find("priority 9"), std::string::npos);
  ASSERT_TRUE(running.finish(cache).ok());
}

// ---- finish

TEST(PrefixCacheFinish, InsertsAndLetsGo) {
  TestCache cache(4);
  Running running(tokens(10));
  ASSERT_TRUE(running.start(cache).ok());
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_EQ(cache.probe(tokens(10)), 8u);
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
  EXPECT_TRUE(running.request.slots().empty());
  EXPECT_FALSE(running.request.is_running());
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, WithoutInsertGivesBackWhatIsTheRequests) {
  TestCache cache(4);
  cache.put(tokens(4));
  Running running(tokens(10));
  ASSERT_EQ(running.start(cache)->length, 4u);
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.abandon(cache).ok());
  EXPECT_EQ(cache.probe(tokens(10)), 4u);
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 4, .protected_tokens = 0, .total = 4}));
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, WithoutInsertKeepsWhatWasCheckpointed) {
  TestCache cache(4);
  Running running(tokens(10));
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache).ok());
  ASSERT_TRUE(running.abandon(cache).ok());
  EXPECT_EQ(cache.probe(tokens(10)), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, FreesSlotsBeyondTheComputedTokens) {
  TestCache cache(4);
  Running running(tokens(12));
  ASSERT_TRUE(running.allocate(cache).ok());
  running.computed(5);
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_EQ(cache->inspect().sizes().total, 4u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheFinish, OfARequestThatComputedNothingJustLetsGo) {
  TestCache cache;
  cache.put(tokens(4));
  Running running(tokens(6));
  ASSERT_EQ(running.start(cache)->length, 4u);
  running.computed(4);
  ASSERT_TRUE(running.abandon(cache).ok());
  EXPECT_EQ(cache->inspect().sizes().evictable, 4u);
  EXPECT_TRUE(cache.closes());
}

// ---- Bigram keys: k pages of slots come with k * page_size + 1 tokens.

TEST(PrefixCacheBigramRequest, KeepsTheLastSlotUntilTheEnd) {
  TestCache cache(1, {.bigram = true});
  Running running(tokens(5));
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache).ok());
  EXPECT_EQ(running.request.cached_length(), 4u);
  EXPECT_TRUE(cache.closes(1));
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheBigramRequest, ChunkedPrefillLosesNoSlot) {
  for (const std::size_t page : {1u, 4u}) {
    for (const std::size_t chunk : {1u, 3u, 4u, 5u, 8u}) {
      TestCache cache(page, {.bigram = true}, 64);
      Running running(tokens(21));
      for (std::size_t from = 0; from < 21; from += chunk) {
        const std::size_t to = std::min<std::size_t>(21, from + chunk);
        running.computed(to);
        ASSERT_TRUE(running.allocate(cache).ok());
        ASSERT_TRUE(running.checkpoint(cache, to < 21).ok());
        EXPECT_EQ(running.request.cached_length(), (to - 1) / page * page);
        const std::size_t tail = to - running.request.cached_length();
        EXPECT_TRUE(cache.closes((tail + page - 1) / page * page));
      }
      ASSERT_TRUE(running.finish(cache).ok());
      EXPECT_EQ(cache.probe(tokens(21)), 20u);
      EXPECT_TRUE(cache.closes());
    }
  }
}

// The match may reach one token further than the first chunk: its last unit looks one ahead.
TEST(PrefixCacheBigramRequest, AMatchLongerThanTheFirstChunkIsKept) {
  TestCache cache(4, {.bigram = true}, 64);
  cache.put(tokens(9));
  Running running(tokens(9) + tokens(4, 50));
  ASSERT_EQ(running.start(cache)->length, 8u);
  running.computed(8);
  ASSERT_TRUE(running.checkpoint(cache, true).ok());
  EXPECT_EQ(running.request.cached_length(), 8u);
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 8u);
  running.computed(13);
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_EQ(cache.probe(tokens(9) + tokens(4, 50)), 12u);
  EXPECT_TRUE(cache.closes());
}

// ---- Disabled: the same calls without reuse.

TEST(DisabledCache, ReusesNothingAndLosesNothing) {
  const auto allocator = *PagedAllocator::create({.capacity_tokens = 64, .page_size = 4});
  const auto cache = *PrefixCache::create({.disabled = true}, *allocator);
  for (int round = 0; round < 2; ++round) {
    Running running(tokens(10));
    const Match match = *running.start(cache);
    EXPECT_EQ(match.length, 0u);
    EXPECT_EQ(match.end, MatchEnd::disabled);
    running.computed(6);
    ASSERT_TRUE(running.allocate(cache).ok());
    ASSERT_TRUE(running.checkpoint(cache, true).ok());
    EXPECT_EQ(running.request.cached_length(), 0u);
    running.computed(10);
    ASSERT_TRUE(running.allocate(cache).ok());
    EXPECT_EQ(allocator->available(), 52u);
    ASSERT_TRUE(running.finish(cache).ok());
    EXPECT_EQ(allocator->available(), 64u);
  }
  EXPECT_EQ(cache->inspect().sizes(), Sizes{});
  EXPECT_TRUE(cache->check().ok());
}

}  // namespace
}  // namespace pando::testing
