// SPDX-License-Identifier: Apache-2.0
// BlockCache with one group of full attention, rule by rule.
#include "pando/block_cache.h"

#include <gtest/gtest.h>

#include "support/block_fixture.h"

namespace pando::testing {
namespace {

BlockCacheOptions fours(std::size_t num_blocks = 32) {
  return block_options({full_group(4)}, num_blocks);
}

TEST(BlockCache, ARequestFindsWhatAnotherComputed) {
  TestBlocks cache(fours());
  const BlockRequest first = cache.run(tokens(10));
  EXPECT_EQ(numbers(first.blocks()), (BlockNumbers{1, 2, 3}));
  BlockRequest second = cache.start(tokens(8) + tokens(4, 100));
  const BlockMatch found = cache->match(second);
  EXPECT_EQ(found.length, 8U);
  EXPECT_EQ(numbers(found.blocks[0]), (BlockNumbers{1, 2}));
  ASSERT_TRUE(cache->allocate(second, 4, {.match = &found}).ok());
  EXPECT_EQ(numbers(second.blocks()), (BlockNumbers{1, 2, 4}));
  EXPECT_EQ(second.num_computed(), 8U);
  EXPECT_EQ(cache->pool().num_holders(PageId{1}), 2U);
}

TEST(BlockCache, AHitNeverCoversTheLastToken) {
  TestBlocks cache(fours());
  cache.run(tokens(12));
  EXPECT_EQ(cache.hit(tokens(12)), 8U);
  EXPECT_EQ(cache.hit(tokens(13)), 12U);
  EXPECT_EQ(cache.hit(tokens(1)), 0U);
  EXPECT_EQ(cache.hit({}), 0U);
}

TEST(BlockCache, OnlyFullBlocksAreCached) {
  TestBlocks cache(fours());
  cache.run(tokens(7));
  EXPECT_EQ(cache.hit(tokens(20)), 4U);
  EXPECT_EQ(cache->sizes(), (Sizes{4, 0, 4}));
}

TEST(BlockCache, WhatSetsRequestsApartSetsTheirBlocksApart) {
  TestBlocks cache(fours());
  cache.run(tokens(12), {.lora = "a"});
  EXPECT_EQ(cache.hit(tokens(12)), 0U);
  EXPECT_EQ(cache.hit(tokens(12), {.lora = "b"}), 0U);
  EXPECT_EQ(cache.hit(tokens(12), {.salt = "a"}), 0U);
  EXPECT_EQ(cache.hit(tokens(12), {.lora = "a"}), 8U);
  RequestKeys image;
  image.items = {{"cat", 5, 2}};
  cache.run(tokens(12), image);
  image.items[0].id = "dog";
  EXPECT_EQ(cache.hit(tokens(12), image), 4U);  // before the image they agree
  EXPECT_EQ(cache.hit(tokens(12)), 4U);
  image.items[0] = {"cat", 5, 2};
  EXPECT_EQ(cache.hit(tokens(12), image), 8U);
}

// vLLM's functions take a salt for an adapter's name in the first block.
TEST(BlockCache, ASaltIsNotAnAdapterOfTheSameName) {
  BlockCacheOptions options = fours();
  options.hash.function = HashFunction::sha256_cbor;
  TestBlocks cache(options);
  const BlockRequest adapter = cache.run(tokens(9), {.lora = "x"});
  const BlockRequest salted = cache.start(tokens(9), {.salt = "x"});
  EXPECT_EQ(adapter.hashes()[0].value, salted.hashes()[0].value);
  EXPECT_EQ(cache->match(salted).length, 0U);
}

TEST(BlockCache, ARequestGrowsTokenByToken) {
  TestBlocks cache(fours());
  BlockRequest request = cache.run(tokens(6));
  for (Token t = 7; t <= 13; ++t) {
    ASSERT_TRUE(request.append(std::vector<Token>{t}).ok());
    ASSERT_TRUE(cache->allocate(request, 1).ok());
    ASSERT_TRUE(cache->checkpoint(request, request.tokens().size()).ok());
  }
  EXPECT_EQ(request.hashes().size(), 3U);
  EXPECT_EQ(numbers(request.blocks()), (BlockNumbers{1, 2, 3, 4}));
  EXPECT_EQ(cache.hit(tokens(14)), 12U);
}

TEST(BlockCache, AllocatingIsAllOrNothing) {
  TestBlocks cache(fours(6));
  BlockRequest first = cache.run(tokens(8));
  cache->finish(first);
  BlockRequest other = cache.start(tokens(8, 50));
  ASSERT_TRUE(cache->allocate(other, 8).ok());
  BlockRequest third = cache.start(tokens(20));
  const BlockMatch found = cache->match(third);
  EXPECT_EQ(found.length, 8U);
  const BlockNumbers before = cache.queue();
  // Three free blocks: two of them are the hit's, and three more are wanted.
  EXPECT_TRUE(fails(cache->allocate(third, 12, {.match = &found}), ErrorCode::out_of_capacity,
                    "3 new blocks and 2 free ones that were found; 3 are free"));
  EXPECT_EQ(cache.queue(), before);
  EXPECT_TRUE(third.blocks().empty());
  EXPECT_EQ(third.num_computed(), 0U);
  EXPECT_TRUE(cache->allocate(third, 4, {.match = &found}).ok());
}

TEST(BlockCache, BlocksAreFreedFromTheEnd) {
  TestBlocks cache(fours(8));
  BlockRequest request = cache.run(tokens(14));  // three full blocks and an open one
  cache->finish(request);
  EXPECT_EQ(cache.queue(), (BlockNumbers{4, 5, 6, 7, 3, 2, 1}));
  // So a shorter prefix survives longest.
  cache.run(tokens(20, 100));
  EXPECT_EQ(cache.hit(tokens(14)), 8U);
}

TEST(BlockCache, ADestroyedRequestLetsGo) {
  TestBlocks cache(fours());
  { const BlockRequest request = cache.run(tokens(8)); }
  EXPECT_EQ(cache->num_requests(), 0U);
  EXPECT_DOUBLE_EQ(cache->usage(), 0.0);
  BlockRequest a = cache.run(tokens(8)), b = cache.run(tokens(8, 50));
  a = std::move(b);  // the first lets go
  EXPECT_EQ(cache->num_requests(), 1U);
  EXPECT_EQ(a.tokens()[0], 50);
}

TEST(BlockCache, LookaheadHasRoomAndIsNotCached) {
  TestBlocks cache(fours());
  BlockRequest request = cache.start(tokens(6));
  ASSERT_TRUE(cache->allocate(request, 6, {.lookahead_tokens = 5}).ok());
  EXPECT_EQ(request.blocks().size(), 3U);
  EXPECT_EQ(cache->sizes().total, 4U);
  // Drafts count as new tokens, but are not the request's until it has them.
  ASSERT_TRUE(cache->checkpoint(request, 6).ok());
  ASSERT_TRUE(request.append(std::vector<Token>{7}).ok());
  ASSERT_TRUE(cache->allocate(request, 1 + 3).ok());
  EXPECT_EQ(cache->sizes().total, 4U);
  ASSERT_TRUE(request.append(std::vector<Token>{8, 9}).ok());  // one draft was right
  ASSERT_TRUE(cache->checkpoint(request, 8).ok());
  EXPECT_EQ(cache->sizes().total, 8U);
  EXPECT_EQ(request.blocks().size(), 3U);
}

TEST(BlockCache, RoomEndsWhereTheModelDoes) {
  BlockCacheOptions options = fours();
  options.max_tokens = 9;
  TestBlocks cache(options);
  BlockRequest request = cache.start(tokens(8));
  ASSERT_TRUE(cache->allocate(request, 8, {.lookahead_tokens = 20}).ok());
  EXPECT_EQ(request.blocks().size(), 3U);
  EXPECT_TRUE(fails(cache->allocate(request, 10), ErrorCode::invalid_argument,
                    "10 new tokens behind 0; a request may have 9"));
}

TEST(BlockCache, CachedAtOnceOrWhenComputed) {
  TestBlocks cache(fours());
  BlockRequest now = cache.start(tokens(8));
  ASSERT_TRUE(cache->allocate(now, 8).ok());
  EXPECT_EQ(cache.hit(tokens(9)), 8U);  // of the same batch: layer by layer it is there in time
  BlockRequest later = cache.start(tokens(8, 50));
  ASSERT_TRUE(cache->allocate(later, 8, {.delay_caching = true}).ok());
  EXPECT_EQ(cache.hit(tokens(9, 50)), 0U);
  ASSERT_TRUE(cache->checkpoint(later, 5).ok());
  EXPECT_EQ(cache.hit(tokens(9, 50)), 4U);
  ASSERT_TRUE(cache->checkpoint(later, 8).ok());
  EXPECT_EQ(cache.hit(tokens(9, 50)), 8U);
}

TEST(BlockCache, WhatWasNeverComputedIsForgotten) {
  TestBlocks cache(fours());
  BlockRequest request = cache.start(tokens(16));
  ASSERT_TRUE(cache->allocate(request, 16).ok());
  ASSERT_TRUE(cache->checkpoint(request, 9).ok());  // aborted after the first chunk
  cache->finish(request);
  EXPECT_EQ(cache.hit(tokens(17)), 8U);
}

TEST(BlockCache, APreemptedRequestStartsAgainWhereItsBlocksStillAre) {
  TestBlocks cache(fours(8));
  BlockRequest request = cache.run(tokens(14));
  cache->preempt(request);
  EXPECT_EQ(cache->stats().preemptions, 1U);
  EXPECT_EQ(request.num_computed(), 0U);
  EXPECT_EQ(request.tokens().size(), 14U);
  { const BlockRequest other = cache.run(tokens(20, 100)); }  // takes what is freed first
  EXPECT_EQ(cache.begin(request), 8U);
}

TEST(BlockCache, ForgottenBlocksAreNotFound) {
  TestBlocks cache(fours());
  BlockRequest request = cache.run(tokens(12));
  ASSERT_EQ(cache.hit(tokens(20)), 12U);
  cache->forget(std::vector{kNullBlock, request.blocks()[1], request.blocks()[1]});
  EXPECT_EQ(cache.hit(tokens(20)), 4U);
  EXPECT_EQ(cache->pool().num_holders(request.blocks()[1]), 1U);
  cache->finish(request);
  EXPECT_EQ(cache.hit(tokens(20)), 4U);
  EXPECT_TRUE(cache->check().ok());
}

TEST(BlockCache, CommonPrefixOfAllRunningRequests) {
  TestBlocks cache(fours());
  BlockRequest a = cache.run(tokens(12) + tokens(4, 100));
  EXPECT_EQ(cache->common_prefix_blocks(a), (std::vector<std::size_t>{4}));
  BlockRequest b = cache.run(tokens(12) + tokens(4, 200));
  EXPECT_EQ(cache->common_prefix_blocks(a), (std::vector<std::size_t>{3}));
  BlockRequest c = cache.run(tokens(8) + tokens(4, 300));
  EXPECT_EQ(cache->common_prefix_blocks(b), (std::vector<std::size_t>{2}));
  cache->preempt(c);
  EXPECT_EQ(cache->common_prefix_blocks(b), (std::vector<std::size_t>{3}));
  const BlockRequest waiting = cache.start(tokens(4));  // without blocks it does not count
  EXPECT_EQ(cache->common_prefix_blocks(b), (std::vector<std::size_t>{3}));
}

TEST(BlockCache, TheLastBlockCanBeRecomputed) {
  BlockCacheOptions options = fours();
  options.recompute_last_block = true;
  TestBlocks cache(options);
  cache.run(tokens(16));
  EXPECT_EQ(cache.hit(tokens(17)), 12U);
  EXPECT_EQ(cache.hit(tokens(5)), 0U);
}

TEST(BlockCache, WithoutCachingEveryRequestIsComputed) {
  BlockCacheOptions options = fours();
  options.caching = false;
  TestBlocks cache(options);
  BlockRequest request = cache.run(tokens(16));
  EXPECT_TRUE(request.hashes().empty());
  EXPECT_EQ(cache.hit(tokens(16)), 0U);
  cache->finish(request);
  EXPECT_EQ(cache.queue().size(), 31U);
}

TEST(BlockCache, StaleHitsAreRefused) {
  TestBlocks cache(fours(6));
  { const BlockRequest first = cache.run(tokens(9)); }
  BlockRequest request = cache.start(tokens(9));
  const BlockMatch found = cache->match(request);
  EXPECT_EQ(found.length, 8U);
  const BlockRequest other = cache.run(tokens(16, 100));  // takes all but one block
  EXPECT_TRUE(fails(cache->allocate(request, 1, {.match = &found}), ErrorCode::stale_handle,
                    "block 1 of group 0 has gone since match()"));
  EXPECT_TRUE(request.blocks().empty());
}

TEST(BlockCache, BadInputIsRefusedAndChangesNothing) {
  TestBlocks cache(fours());
  BlockRequest request = cache.run(tokens(8));
  const BlockMatch found = cache->match(request);
  EXPECT_TRUE(fails(cache->allocate(request, 1, {.match = &found}), ErrorCode::invalid_argument,
                    "has blocks already"));
  EXPECT_TRUE(
      fails(cache->checkpoint(request, 7), ErrorCode::invalid_argument, "checkpoint of 7 tokens"));
  EXPECT_TRUE(
      fails(cache->checkpoint(request, 9), ErrorCode::invalid_argument, "the request has 8"));
  ASSERT_TRUE(request.append(std::vector<Token>{9, 10}).ok());
  EXPECT_TRUE(fails(cache->checkpoint(request, 9), ErrorCode::invalid_argument,
                    "group 0 has no block there"));
  EXPECT_TRUE(fails(request.append(std::vector<Token>{1, -2}), ErrorCode::invalid_argument,
                    "token -2 at position 11 is negative"));
  EXPECT_TRUE(fails(request.append(-3), ErrorCode::invalid_argument,
                    "append: token -3 at position 10"));  // no block would be full
  EXPECT_EQ(request.tokens().size(), 10U);
  EXPECT_TRUE(fails(cache->start(std::vector<Token>{1, 2, 3, -4}), ErrorCode::invalid_argument,
                    "token -4 at position 3"));
  EXPECT_TRUE(fails(cache->start(std::vector<Token>{1, -2}), ErrorCode::invalid_argument,
                    "start: token -2 at position 1"));
  RequestKeys keys;
  keys.items = {{"a", 4, 4}, {"b", 2, 1}};
  EXPECT_TRUE(fails(cache->start(tokens(8), keys), ErrorCode::invalid_argument, "item 1"));
  BlockRequest fresh = cache.start(tokens(4));
  BlockMatch foreign = found;
  foreign.length = 8;
  EXPECT_TRUE(fails(cache->allocate(fresh, 1, {.match = &foreign}), ErrorCode::invalid_argument,
                    "a match of 8 tokens for a request of 4"));
}

TEST(BlockCache, BadOptionsAreNamed) {
  const auto fails_with = [](const BlockCacheOptions& options, std::string_view part) {
    return fails(BlockCache::create(options), ErrorCode::invalid_argument, part);
  };
  EXPECT_TRUE(fails_with(block_options({}), "without groups"));
  EXPECT_TRUE(fails_with(block_options({full_group(0)}), "group 0 has blocks of 0 tokens"));
  EXPECT_TRUE(fails_with(block_options({full_group(4), window_group(4, 0)}),
                         "group 1 (sliding window) has a span of 0 tokens; expected some"));
  EXPECT_TRUE(fails_with(block_options({{GroupKind::full, 4, 9, false, {}}}), "expected none"));
  EXPECT_TRUE(fails_with(block_options({{GroupKind::full, 4, 0, true, {}}}), "no state to keep"));
  EXPECT_TRUE(fails_with(block_options({full_group(4)}, 1), "a pool of 1 blocks"));
  BlockCacheOptions options = fours();
  options.events = true;
  options.keep_tokens = false;
  EXPECT_TRUE(fails_with(options, "expected keep_tokens"));
  options = fours();
  options.host.emplace();
  EXPECT_TRUE(fails_with(options, "expected a device pool and a host pool for group 0"));
}

TEST(BlockCache, ResetForgetsEverythingUnlessARequestHasBlocks) {
  TestBlocks cache(fours());
  BlockRequest request = cache.run(tokens(8));
  EXPECT_TRUE(fails(cache->reset(), ErrorCode::in_use, "1 requests have blocks"));
  cache->finish(request);
  EXPECT_TRUE(cache->reset().ok());
  EXPECT_EQ(cache->sizes(), Sizes{});
  EXPECT_EQ(cache.hit(tokens(9)), 0U);
}

TEST(BlockCache, RequestsRunWhileTheyHoldBlocks) {
  TestBlocks cache(fours());
  BlockRequest request = cache.start(tokens(5));
  EXPECT_FALSE(request.is_running());
  ASSERT_TRUE(cache->allocate(request, 5).ok());
  EXPECT_TRUE(request.is_running());
  cache->preempt(request);
  EXPECT_FALSE(request.is_running());
  ASSERT_TRUE(cache->allocate(request, 5).ok());
  cache->finish(request);
  EXPECT_FALSE(request.is_running());
}

TEST(BlockCache, StatsCountHits) {
  TestBlocks cache(fours());
  cache.run(tokens(9));
  cache.run(tokens(9));
  const BlockCacheStats stats = cache->stats();
  EXPECT_EQ(stats.queries, 2U);
  EXPECT_EQ(stats.queried_tokens, 18U);
  EXPECT_EQ(stats.hit_tokens, 8U);
  EXPECT_EQ(stats.cached_blocks, 2U);
  EXPECT_GT(cache->memory_bytes(), 0U);
}

TEST(BlockCacheDeathTest, RequestsMustNotOutliveIt) {
  auto cache = std::move(*BlockCache::create(fours()));
  const BlockRequest request = *cache->start(tokens(4));
  EXPECT_DEATH(cache.reset(), "1 requests outlive their BlockCache");
}

TEST(BlockCacheDeathTest, RequestsOfOthersAreRefused) {
  const TestBlocks one(fours()), other(fours());
  BlockRequest request = one.start(tokens(4));
  EXPECT_DEATH((void)other->allocate(request, 4), "was given a request that is another's");
  const BlockRequest moved = std::move(request);
  EXPECT_DEATH(one->finish(request), "was given a request that was moved from");
  EXPECT_DEATH((void)request.append(5), "append to a BlockRequest that was moved from");
  EXPECT_FALSE(request.is_running());
}

}  // namespace
}  // namespace pando::testing
