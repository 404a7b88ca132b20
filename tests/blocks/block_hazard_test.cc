// SPDX-License-Identifier: Apache-2.0
// The hazard policy of BlockCache, rule by rule. Blocks of 64 tokens are units of the learner.
#include <gtest/gtest.h>

#include "blocks/hazard_blocks.h"
#include "support/block_fixture.h"
#include "support/step_copier.h"
#include "support/tiered_blocks.h"

namespace pando::testing {
namespace {

constexpr std::size_t kBlock = 64;

BlockCacheOptions hazard_options(std::size_t num_blocks,
                                 std::vector<BlockGroup> groups = {full_group(kBlock)}) {
  BlockCacheOptions options = block_options(std::move(groups), num_blocks);
  options.policy = "hazard";
  return options;
}

/// So many blocks of tokens; others with another number.
Tokens prompt(std::size_t num_blocks, Token number, std::size_t block = kBlock) {
  return tokens(num_blocks * block, number * 100'000);
}

/// Takes n blocks, which push out as many, and lets them go again without content.
void push_out(const TestBlocks& blocks, std::size_t n) {
  BlockRequest filler = blocks.start({});
  blocks->allocate(filler, n * kBlock, {.delay_caching = true}).value();
}

std::size_t cached_blocks(const TestBlocks& blocks, const Tokens& key) {
  Tokens longer = key;
  longer.push_back(1);
  return blocks.hit(longer) / kBlock;
}

TEST(BlockHazard, PoliciesAreRefusedByName) {
  BlockCacheOptions options = hazard_options(8);
  EXPECT_TRUE(options.validate().ok());
  options.policy = "lfu";
  EXPECT_TRUE(fails(BlockCache::create(options), ErrorCode::invalid_argument,
                    "policy \"lfu\"; expected \"lru\" or \"hazard\""));
  EXPECT_EQ(BlockCacheOptions{}.policy, "lru");
  for (const std::size_t num_blocks : {std::size_t{1}, SIZE_MAX})
    EXPECT_TRUE(fails(BlockCache::create(hazard_options(num_blocks)), ErrorCode::invalid_argument,
                      "expected the null block"));
}

TEST(BlockHazard, WithoutCachingItIsLru) {
  BlockCacheOptions options = hazard_options(8);
  options.caching = false;
  const TestBlocks blocks(options);
  { const BlockRequest request = blocks.run(prompt(3, 1)); }
  EXPECT_EQ(blocks.queue(), (BlockNumbers{3, 2, 1, 4, 5, 6, 7}));
}

TEST(BlockHazard, BlocksWithoutContentGoFirst) {
  const TestBlocks blocks(hazard_options(8));
  { const BlockRequest request = blocks.run(prompt(3, 1)); }
  EXPECT_EQ(blocks.queue(), (BlockNumbers{4, 5, 6, 7, 3, 2, 1}));
  push_out(blocks, 4);
  EXPECT_EQ(cached_blocks(blocks, prompt(3, 1)), 3U);
}

TEST(BlockHazard, StartsAsLru) {
  const TestBlocks blocks(hazard_options(9));
  for (Token i = 0; i < 8; ++i) const BlockRequest request = blocks.run(prompt(1, i));
  { const BlockRequest again = blocks.run(prompt(1, 0)); }
  for (Token gone = 1; gone < 4; ++gone) {
    const BlockRequest request = blocks.run(prompt(1, 10 + gone));
    EXPECT_EQ(cached_blocks(blocks, prompt(1, gone)), 0U);
    EXPECT_EQ(cached_blocks(blocks, prompt(1, gone + 1)), 1U);
    EXPECT_EQ(cached_blocks(blocks, prompt(1, 0)), 1U);
  }
}

TEST(BlockHazard, APromptGoesFromItsEndBlockByBlock) {
  const TestBlocks blocks(hazard_options(6));
  { const BlockRequest request = blocks.run(prompt(5, 1)); }
  for (std::size_t left = 5; left-- > 0;) {
    std::vector<BlockRequest> held;
    for (std::size_t i = left; i < 5; ++i) {
      held.push_back(blocks.start({}));
      blocks->allocate(held.back(), 1, {.delay_caching = true}).value();
    }
    EXPECT_EQ(cached_blocks(blocks, prompt(5, 1)), left);
    EXPECT_TRUE(blocks->check().ok());
  }
}

// Two requests compute the same two blocks; the second one goes on. Its own copies are not kept, so
// what it adds is behind blocks that the first has let go of before.
class DeduplicatedHazard : public ::testing::Test {
 protected:
  static BlockCacheOptions options() {
    BlockCacheOptions options = hazard_options(6);
    options.deduplicate = true;
    return options;
  }
  DeduplicatedHazard() {
    for (BlockRequest* r : {&first, &second}) {
      blocks->allocate(*r, r->tokens().size(), {.delay_caching = true}).value();
    }
    blocks->checkpoint(first, first.tokens().size()).value();
    blocks->checkpoint(second, second.tokens().size()).value();
    EXPECT_EQ(numbers(second.blocks()), (BlockNumbers{3, 4, 5}));
    blocks->finish(first);
    EXPECT_EQ(blocks.queue(), (BlockNumbers{2, 1}));
  }
  TestBlocks blocks{options()};
  BlockRequest first = blocks.start(prompt(2, 1));
  BlockRequest second = blocks.start(prompt(3, 1));
};

TEST_F(DeduplicatedHazard, OnlyLeavesGo) {
  blocks->finish(second);
  EXPECT_EQ(blocks.queue(), (BlockNumbers{4, 3, 2, 1, 5}));  // lru would take 2, a parent, before 5
  push_out(blocks, 3);
  EXPECT_EQ(cached_blocks(blocks, prompt(3, 1)), 2U);
}

TEST_F(DeduplicatedHazard, WithoutALeafTheOldestGoes) {
  push_out(blocks, 1);  // 5 is held, so neither 1 nor 2 is a leaf
  EXPECT_EQ(cached_blocks(blocks, prompt(3, 1)), 1U);
  push_out(blocks, 2);
  EXPECT_EQ(cached_blocks(blocks, prompt(3, 1)), 0U);
  EXPECT_TRUE(blocks->check().ok());
  blocks->finish(second);
}

TEST(BlockHazard, ABlockThatIsForgottenFreesTheOneBeforeIt) {
  const TestBlocks blocks(hazard_options(5));
  { const BlockRequest request = blocks.run(prompt(4, 1)); }
  const PageId bad{3};
  blocks->forget({&bad, 1});
  EXPECT_TRUE(blocks->check().ok());
  EXPECT_EQ(blocks.queue(), (BlockNumbers{3, 4, 2, 1}));  // it is taken first
  EXPECT_EQ(cached_blocks(blocks, prompt(4, 1)), 2U);
  // Computed anew, it has a place behind block 2 again; block 4 is behind none and a leaf.
  { const BlockRequest request = blocks.run(prompt(3, 1)); }
  EXPECT_TRUE(blocks->check().ok());
  EXPECT_EQ(cached_blocks(blocks, prompt(4, 1)), 4U);
  push_out(blocks, 4);
  EXPECT_EQ(blocks->sizes().total, 0U);
}

TEST(BlockHazard, PreemptedRequestsGiveTheirBlocksAndComeBack) {
  const TestBlocks blocks(hazard_options(7));
  BlockRequest request = blocks.run(prompt(4, 1));
  blocks->preempt(request);
  EXPECT_TRUE(blocks->check().ok());
  { const BlockRequest other = blocks.run(prompt(3, 2)); }  // takes two without content, and a leaf
  EXPECT_EQ(cached_blocks(blocks, prompt(4, 1)), 3U);
  EXPECT_EQ(blocks.begin(request), 3 * kBlock);
  blocks->finish(request);
  EXPECT_EQ(cached_blocks(blocks, prompt(4, 1)), 4U);
}

TEST(BlockHazard, WhatWasNeverComputedIsForgottenWithItsLinks) {
  const TestBlocks blocks(hazard_options(7));
  BlockRequest request = blocks.start(prompt(4, 1));
  blocks->allocate(request, 4 * kBlock).value();  // cached at once
  blocks->checkpoint(request, 2 * kBlock).value();
  blocks->finish(request);
  EXPECT_EQ(blocks->sizes().total, 2 * kBlock);
  push_out(blocks, 5);
  EXPECT_EQ(cached_blocks(blocks, prompt(4, 1)), 1U);
}

TEST(BlockHazard, TwinsHaveLinksOfTheirOwn) {
  const TestBlocks blocks(hazard_options(8));
  BlockRequest one = blocks.start(prompt(2, 1));
  BlockRequest two = blocks.start(prompt(3, 1));
  blocks->allocate(one, 2 * kBlock).value();
  blocks->allocate(two, 3 * kBlock).value();
  blocks->checkpoint(one, 2 * kBlock).value();
  blocks->checkpoint(two, 3 * kBlock).value();
  blocks->finish(one);
  EXPECT_TRUE(blocks->check().ok());
  push_out(blocks, 3);  // the two without content, and a leaf: the twin of one that is held
  EXPECT_EQ(cached_blocks(blocks, prompt(3, 1)), 3U);
  blocks->finish(two);
  push_out(blocks, 7);
  EXPECT_EQ(blocks->sizes().total, 0U);
}

TEST(BlockHazard, ResetForgetsAllCandidates) {
  const TestBlocks blocks(hazard_options(8));
  { const BlockRequest request = blocks.run(prompt(6, 1)); }
  EXPECT_TRUE(blocks->reset().ok());
  EXPECT_TRUE(blocks->check().ok());
  { const BlockRequest request = blocks.run(prompt(6, 1)); }
  EXPECT_EQ(cached_blocks(blocks, prompt(6, 1)), 6U);
}

// Prompts that come round one after the other are the worst for lru: each has just gone.
TEST(BlockHazard, LearnsWhatComesBack) {
  const auto hits_of = [](const char* policy) {
    BlockCacheOptions options = hazard_options(22);
    options.policy = policy;
    options.hash.seed = "a seed";
    const TestBlocks blocks(options);
    Tokens key;
    for (Token i = 0; i < 4000; ++i) {
      key = prompt(1, i % 40);
      key.push_back(1);
      const BlockRequest request = blocks.run(key);
    }
    return blocks->stats().hit_tokens / kBlock;
  };
  EXPECT_EQ(hits_of("lru"), 0U);
  EXPECT_GT(hits_of("hazard"), 400U);
}

// ---- Groups ------------------------------------------------------------------------------------

TEST(BlockHazard, BlocksThatNeedNoPrefixGoBeforeLeaves) {
  const TestBlocks blocks(hazard_options(10, {full_group(kBlock), window_group(kBlock, kBlock)}));
  { const BlockRequest request = blocks.run(prompt(4, 1)); }
  EXPECT_EQ(blocks->sizes(0).total, 4 * kBlock);
  EXPECT_EQ(blocks->sizes(1).total, 4 * kBlock);
  // Block 9 has no content. The window's first blocks go, the last is needed for a hit.
  BlockRequest filler = blocks.start({});
  blocks->allocate(filler, 2 * kBlock, {.delay_caching = true}).value();
  EXPECT_EQ(blocks->sizes(0).total, 4 * kBlock);
  EXPECT_EQ(blocks->sizes(1).total, 1 * kBlock);
  EXPECT_EQ(cached_blocks(blocks, prompt(4, 1)), 4U);
  blocks->finish(filler);
}

TEST(BlockHazard, EveryFreeBlockCanBeHadWhateverTheGroups) {
  for (const std::vector<BlockGroup>& groups :
       {std::vector{window_group(kBlock, 100)}, std::vector{chunked_group(kBlock, 128)},
        std::vector{recurrent_group(kBlock)}, std::vector{recurrent_group(16, true)},
        std::vector{full_group(16), full_group(kBlock), recurrent_group(kBlock)}}) {
    const TestBlocks blocks(hazard_options(60, groups));
    for (Token i = 0; i < 8; ++i) const BlockRequest request = blocks.run(prompt(3, i % 5));
    ASSERT_TRUE(blocks->check().ok());
    std::vector<BlockRequest> fillers;
    while (blocks->pool().num_free() >= groups.size()) {
      fillers.push_back(blocks.start({}));
      ASSERT_TRUE(blocks->allocate(fillers.back(), 1, {.delay_caching = true}).ok());
    }
    ASSERT_TRUE(blocks->check().ok());
  }
}

// ---- Host --------------------------------------------------------------------------------------

BlockTierSetup host_setup(std::size_t host_pages, WritePolicy policy = WritePolicy::write_through) {
  BlockTierSetup setup;
  setup.cache = hazard_options(16, {full_group(4)});
  setup.write_policy = policy;
  setup.host_pages = host_pages;
  return setup;
}

TEST(BlockHazardHost, WhatWasUsedOnTheDeviceStaysOnTheHost) {
  BlockTierSetup setup = host_setup(2);
  setup.cache = hazard_options(16);
  TieredBlocks blocks(setup);
  const auto key = [](Token number) {
    Tokens key = prompt(1, number);
    key.push_back(1);
    return key;
  };
  for (const Token number : {1, 2, 1, 3}) {
    { const BlockRequest request = blocks.run(key(number)); }
    blocks.settle();
  }
  blocks.flush();
  EXPECT_EQ(blocks.find(key(1)).host_length, kBlock);  // copied first, used last
  EXPECT_EQ(blocks.find(key(2)).host_length, 0U);
  EXPECT_EQ(blocks.find(key(3)).host_length, kBlock);
  EXPECT_TRUE(blocks.closes());
}

TEST(BlockHazardHost, AmongEqualsTheDeeperGoesFirst) {
  TieredBlocks blocks(host_setup(8));
  { const BlockRequest request = blocks.run(prompt(8, 1, 4)); }
  blocks.settle();
  { const BlockRequest request = blocks.run(prompt(3, 2, 4)); }
  blocks.settle();
  blocks.flush();
  Tokens key = prompt(8, 1, 4);
  key.push_back(1);
  EXPECT_EQ(blocks.find(key).host_length, 5 * 4U);
  EXPECT_TRUE(blocks.closes());
}

TEST(BlockHazardHost, LoadedBlocksHaveTheirPlaceInTheChain) {
  for (const WritePolicy policy : {WritePolicy::write_through, WritePolicy::write_back}) {
    TieredBlocks blocks(host_setup(32, policy));
    Tokens key = prompt(6, 1, 4);
    key.push_back(1);
    { const BlockRequest request = blocks.run(key); }
    blocks.settle();
    blocks.flush();
    { const BlockRequest request = blocks.run(key); }  // loads them
    blocks.settle();
    EXPECT_EQ(blocks->tiers().stats().loaded_tokens, 24U);
    EXPECT_TRUE(blocks.closes());
    // From its end, though all were loaded at once.
    BlockRequest filler = *blocks->start({});
    blocks->allocate(filler, 4 * (blocks->pool().num_free() - 4), {.delay_caching = true}).value();
    EXPECT_EQ(blocks.find(key).length, 4 * 4U);
    EXPECT_TRUE(blocks.closes());
  }
}

TEST(BlockHazardHost, ALoadWhoseRequestHasGoneIsBehindNobodyElsesBlock) {
  StepCopier copier;
  copier.at_once(true);
  BlockTierSetup setup = host_setup(32);
  setup.copier = &copier;
  TieredBlocks blocks(setup);
  Tokens key = prompt(6, 1, 4);
  key.push_back(1);
  { const BlockRequest request = blocks.run(key); }
  blocks.settle();
  blocks.flush();
  { const BlockRequest head = blocks.run(prompt(2, 1, 4)); }  // the rest is loaded behind these
  blocks.settle();
  copier.at_once(false);
  {
    BlockRequest request = *blocks->start(key);
    const BlockMatch found = blocks->match(request);
    EXPECT_EQ(found.length, 4U);
    EXPECT_EQ(found.host_length, 20U);
    blocks->allocate(request, 1, {.match = &found}).value();
  }
  // Others get the blocks that were before them.
  BlockRequest other = *blocks->start(prompt(blocks->pool().num_free(), 2, 4));
  blocks->allocate(other, other.tokens().size()).value();
  EXPECT_EQ(blocks.find(key).length, 0U);
  copier.run_all();
  blocks.open_gates();
  blocks.settle();
  EXPECT_TRUE(blocks.closes());
  blocks->finish(other);
  blocks.flush();
  EXPECT_EQ(blocks->sizes().total, 0U);
  EXPECT_TRUE(blocks.closes());
}

// ---- The blocks alone --------------------------------------------------------------------------

TEST(HazardBlocks, RemembersTheHitsOfUnitsThatHaveGone) {
  HazardBlocks::Options options;
  options.num_blocks = 4;
  options.leaves_only = {true};
  options.unit_group_tokens = 32;
  HazardBlocks hazard(options);
  EXPECT_EQ(hazard.blocks_per_unit(), 2U);
  const auto put = [&](std::uint32_t block, std::uint32_t depth, std::uint64_t name) {
    hazard.set_position(PageId{block}, {0, depth, name, kNullBlock, 0, 20});
    hazard.cached(PageId{block});
  };
  put(1, 0, 10);
  put(2, 1, 20);
  EXPECT_EQ(hazard.hit(PageId{2}), 0U);  // the first access
  EXPECT_EQ(hazard.hit(PageId{2}), 1U);
  hazard.freed(PageId{1});
  hazard.freed(PageId{2});
  EXPECT_EQ(hazard.take(PageId{1}), PageId{2});  // as deep as any, and older
  EXPECT_EQ(hazard.past_hits(20), 1U);
  EXPECT_EQ(hazard.take(PageId{1}), PageId{1});
  EXPECT_EQ(hazard.past_hits(10), std::nullopt);  // ends no unit
  put(3, 0, 10);
  EXPECT_EQ(hazard.hit(PageId{3}), 2U);
  put(2, 1, 20);
  EXPECT_EQ(hazard.hit(PageId{2}), 2U);
  EXPECT_EQ(hazard.past_hits(20), std::nullopt);
}

TEST(HazardBlocks, TimeAdvancesByWholeUnits) {
  HazardBlocks::Options options;
  options.num_blocks = 4;
  options.leaves_only = {true};
  options.unit_group_tokens = 16;
  HazardBlocks hazard(options);
  for (int i = 0; i < 3; ++i) hazard.begin_request(3);
  EXPECT_EQ(hazard.index().learner.now(), 2U);
  hazard.look_ahead(9);
  EXPECT_EQ(hazard.index().ahead, 2U);
}

}  // namespace
}  // namespace pando::testing
