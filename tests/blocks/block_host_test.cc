// SPDX-License-Identifier: Apache-2.0
// The host tier of a BlockCache: what goes there, what comes back, and what happens when a copy is
// slow, fails or is refused.
#include <gtest/gtest.h>

#include "support/step_copier.h"
#include "support/tiered_blocks.h"

namespace pando::testing {
namespace {

/// Copies end when the test says; the first 9 tokens are on the host, and only there.
class BlockHostSteps : public ::testing::Test {
 protected:
  BlockHostSteps() : cache({.copier = &copier}) {
    cache.run(tokens(9));
    copier.run_all();
    cache.settle();
    cache.flush();
  }
  ~BlockHostSteps() override {
    copier.run_all();
    cache.settle();
    EXPECT_TRUE(cache.closes());
  }
  /// A request that loads the first 8 of its tokens.
  BlockRequest load(std::size_t num_tokens) {
    BlockRequest request = *cache->start(tokens(num_tokens));
    const BlockMatch found = cache->match(request);
    EXPECT_EQ(found.host_length, 8U);
    cache->allocate(request, num_tokens - 8, {.match = &found}).value();
    return request;
  }

  StepCopier copier;
  TieredBlocks cache;
};

TEST(BlockHost, WhatTheDeviceForgetsComesBackWithItsBytes) {
  for (const HostLayout layout : {HostLayout::layer_first, HostLayout::page_first,
                                  HostLayout::page_first_direct, HostLayout::page_head}) {
    TieredBlocks cache({.layout = layout});
    cache.run(tokens(17));
    EXPECT_EQ(cache.settle().backups, 1U);
    cache.flush();
    const BlockMatch found = cache.find(tokens(17));
    EXPECT_EQ(found.length, 0U);
    EXPECT_EQ(found.host_length, 16U);
    BlockRequest again = *cache->start(tokens(17));
    EXPECT_EQ(cache.begin(again), 16U);
    EXPECT_EQ(cache.settle().loads, 1U);
    EXPECT_EQ(cache.find(tokens(17)).length, 16U);  // on the device again
    EXPECT_TRUE(cache.holds(again, 17));
    EXPECT_TRUE(cache.closes());
    EXPECT_EQ(cache->tiers().stats().loaded_tokens, 16U);
    EXPECT_EQ(cache->host_sizes(), (Sizes{16, 0, 16}));
  }
}

TEST(BlockHost, TheRestOfAHitComesFromTheHost) {
  TieredBlocks cache;
  { const BlockRequest first = cache.run(tokens(25)); }
  cache.settle();
  BlockRequest holder = *cache->start(tokens(9));
  cache.begin(holder);  // keeps the first two blocks on the device
  cache.flush();
  const BlockMatch found = cache.find(tokens(25));
  EXPECT_EQ(found.length, 8U);
  EXPECT_EQ(found.host_length, 16U);
  BlockRequest again = *cache->start(tokens(25));
  EXPECT_EQ(cache.begin(again), 24U);
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST(BlockHost, WritePoliciesDecideWhatIsCopied) {
  TieredBlocks selective({.write_policy = WritePolicy::write_through_selective});
  selective.run(tokens(9));
  selective.settle();
  EXPECT_EQ(selective->host_sizes().total, 0U);
  selective.run(tokens(5) + tokens(4, 50));  // the second use of the first block
  selective.settle();
  EXPECT_EQ(selective->host_sizes().total, 4U);

  TieredBlocks back({.write_policy = WritePolicy::write_back});
  back.run(tokens(9));
  back.settle();
  EXPECT_EQ(back->host_sizes().total, 0U);
  back.flush();
  EXPECT_EQ(back->host_sizes().total, 8U);
  BlockRequest again = *back->start(tokens(9));
  EXPECT_EQ(back.begin(again), 8U);
  back.settle();
  EXPECT_TRUE(back.closes());
}

TEST(BlockHost, AFullHostGivesUpTheLeastRecentlyUsed) {
  TieredBlocks cache({.host_pages = 4});
  for (const Token first : {100, 200, 300}) {
    cache.run(tokens(9, first));
    cache.settle();
  }
  cache.flush();
  EXPECT_EQ(cache.find(tokens(9, 100)).host_length, 0U);
  EXPECT_EQ(cache.find(tokens(9, 200)).host_length, 8U);
  EXPECT_EQ(cache.find(tokens(9, 300)).host_length, 8U);
  EXPECT_EQ(cache->tiers().stats().host_evicted_tokens, 8U);
  BlockRequest used = *cache->start(tokens(9, 200));
  cache.begin(used);
  cache.settle();
  cache.run(tokens(9, 400));
  cache.settle();
  cache.flush();
  EXPECT_EQ(cache.find(tokens(9, 300)).host_length, 0U);  // 200 was used since
  EXPECT_TRUE(cache.closes());
}

TEST(BlockHost, WhatIsInUseIsNotGivenUp) {
  StepCopier copier;
  TieredBlocks cache({.host_pages = 2, .copier = &copier});
  cache.run(tokens(9, 100));  // both pages are being written
  cache.run(tokens(9, 200));
  EXPECT_EQ(cache->tiers().stats().refused_backups, 2U);
  copier.run_all();
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST(BlockHost, BlocksAreHeldWhileTheyAreCopied) {
  StepCopier copier;
  TieredBlocks cache({.copier = &copier});
  {
    const BlockRequest request = cache.run(tokens(9));
    EXPECT_EQ(cache->common_prefix_blocks(request)[0], 3U);  // a copy is no request
  }
  EXPECT_GT(cache->usage(), 0.0);
  EXPECT_EQ(cache.find(tokens(9)).length, 8U);
  EXPECT_TRUE(cache.closes());
  copier.run_all();
  EXPECT_TRUE(cache.settle().idle);
  EXPECT_DOUBLE_EQ(cache->usage(), 0.0);
  EXPECT_TRUE(cache.closes());
}

TEST(BlockHost, AFailedBackupIsAMiss) {
  StepCopier copier;
  TieredBlocks cache({.copier = &copier});
  cache.run(tokens(9));
  copier.step(0, /*succeed=*/false);
  EXPECT_EQ(cache.settle().failures, 1U);
  EXPECT_EQ(cache->tiers().stats().failed_backups, 2U);
  cache.flush();
  EXPECT_EQ(cache.find(tokens(9)).host_length, 0U);
  copier.refuse(1);
  cache.run(tokens(9, 50));
  EXPECT_EQ(cache.settle().failures, 1U);
  EXPECT_EQ(cache->tiers().stats().failed_backups, 4U);
  EXPECT_TRUE(cache.closes());
}

TEST_F(BlockHostSteps, NothingComputedBehindALoadIsFoundBeforeItHasArrived) {
  BlockRequest request = load(13);
  EXPECT_EQ(request.num_computed(), 8U);
  cache.compute(request, 8, 13);
  ASSERT_TRUE(cache->checkpoint(request, 13).ok());
  EXPECT_EQ(cache.find(tokens(13)).length, 0U);
  EXPECT_TRUE(cache.closes());
  copier.run_all();
  cache->poll();
  EXPECT_EQ(cache.find(tokens(13)).length, 12U);
}

TEST_F(BlockHostSteps, AFailedLoadBreaksItsRequestAlone) {
  BlockRequest request = load(13);
  copier.step(1, /*succeed=*/false);
  EXPECT_EQ(cache->poll().failures, 1U);
  EXPECT_TRUE(request.is_broken());
  EXPECT_TRUE(
      fails(cache->checkpoint(request, 13), ErrorCode::corrupt, "expected it to be preempted"));
  EXPECT_TRUE(fails(cache->allocate(request, 1), ErrorCode::corrupt, "a load of this request"));
  cache->preempt(request);
  EXPECT_FALSE(request.is_broken());
  EXPECT_EQ(cache.find(tokens(13)).length, 0U);  // nothing of it is found
  cache.sides[0].device->open_gate();
  const BlockMatch again = cache->match(request);
  EXPECT_EQ(again.host_length, 8U);
  ASSERT_TRUE(cache->allocate(request, 13, {.match = &again, .load_back = false}).ok());
  cache.compute(request, 0, 13);
  ASSERT_TRUE(cache->checkpoint(request, 13).ok());
  EXPECT_TRUE(cache.holds(request, 13));
}

TEST_F(BlockHostSteps, ARequestMayGoWhileItsLoadIsUnderWay) {
  { const BlockRequest request = load(9); }
  EXPECT_TRUE(cache.closes());
  EXPECT_GT(cache->usage(), 0.0);  // nobody else is given blocks that are being written
  copier.run_all();
  cache.settle();
  EXPECT_EQ(cache.find(tokens(9)).length, 8U);
  EXPECT_TRUE(cache.closes());
}

TEST_F(BlockHostSteps, TwoRequestsMayLoadTheSamePages) {
  const BlockRequest a = load(9), b = load(9);
  EXPECT_TRUE(cache.closes());
  copier.step(1, true);
  cache->poll();
  EXPECT_TRUE(cache.closes());
  copier.step(1, false);
  cache->poll();
  EXPECT_FALSE(a.is_broken());
  EXPECT_TRUE(b.is_broken());
  EXPECT_TRUE(cache.holds(a, 8));
  EXPECT_TRUE(cache.closes());
}

TEST_F(BlockHostSteps, ARefusedLoadLeavesTheRequestAsItWas) {
  BlockRequest request = *cache->start(tokens(9));
  const BlockMatch found = cache->match(request);
  copier.refuse(1);
  EXPECT_TRUE(fails(cache->allocate(request, 1, {.match = &found}), ErrorCode::io_error,
                    "the copier refuses"));
  EXPECT_TRUE(request.blocks().empty());
  EXPECT_DOUBLE_EQ(cache->usage(), 0.0);
  EXPECT_TRUE(cache.closes());
  EXPECT_TRUE(cache->allocate(request, 1, {.match = &found}).ok());
}

TEST(BlockHost, FewTokensAreSoonerComputed) {
  TieredBlocks cache({.load_back_threshold = 9});
  cache.run(tokens(13));
  cache.settle();
  cache.flush();
  EXPECT_EQ(cache.find(tokens(9)).host_length, 0U);
  EXPECT_EQ(cache.find(tokens(13)).host_length, 12U);
}

TEST(BlockHost, EveryKindOfGroupComesBack) {
  const std::vector<std::vector<BlockGroup>> cases = {
      {window_group(4, 9)},
      {recurrent_group(4, true)},
      {full_group(4), window_group(4, 6), recurrent_group(8, true), chunked_group(2, 8)}};
  for (const auto& groups : cases) {
    TieredBlocks cache({.cache = block_options(groups, 80), .host_pages = 80});
    { const BlockRequest first = cache.run(tokens(33)); }
    cache.settle();
    cache.flush();
    const BlockMatch found = cache.find(tokens(33));
    EXPECT_EQ(found.length + found.host_length, 32U);
    BlockRequest again = *cache->start(tokens(33));
    EXPECT_EQ(cache.begin(again), 32U);
    cache.settle();
    EXPECT_TRUE(cache.closes());
  }
}

TEST(BlockHost, WriteBackNeverPushesOutWhatIsAboutToBeLoaded) {
  TieredBlocks cache({.cache = block_options({full_group(4)}, 6),
                      .write_policy = WritePolicy::write_back,
                      .host_pages = 3});
  { const BlockRequest first = cache.run(tokens(9)); }
  cache.flush();  // two pages on the host
  { const BlockRequest other = cache.run(tokens(17, 100)); }
  // Loading needs two blocks, and takes one more: all of the other's blocks go to the host, which
  // has room for one.
  BlockRequest again = *cache->start(tokens(13));
  EXPECT_EQ(cache.begin(again), 8U);
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST(BlockHost, EventsTellTheHostApart) {
  BlockTierSetup setup;
  setup.cache.events = true;
  setup.host_pages = 2;
  TieredBlocks cache(setup);
  PageHash first;
  {
    const BlockRequest request = cache.run(tokens(9));
    first = request.hashes()[0].value;
  }
  cache.settle();
  std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].tier, Tier::host);
  EXPECT_EQ(events[1].tokens, tokens(8));
  EXPECT_FALSE(events[1].parent);
  cache.flush();
  events = cache->take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::removed);
  EXPECT_EQ(events[0].tier, Tier::device);
  { const BlockRequest again = cache.run(tokens(9)); }
  cache.settle();
  events = cache->take_events();
  ASSERT_EQ(events.size(), 1U);  // back on the device
  EXPECT_EQ(events[0].tier, Tier::device);
  EXPECT_EQ(events[0].hashes[0], first);
  cache.run(tokens(5, 100));
  cache.settle();
  events = cache->take_events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1].kind, KvEvent::Kind::removed);
  EXPECT_EQ(events[1].tier, Tier::host);
}

TEST(BlockHost, AResetEmptiesTheHost) {
  TieredBlocks cache;
  cache.run(tokens(9));
  ASSERT_TRUE(cache->reset().ok());  // waits for the copy
  EXPECT_EQ(cache->host_sizes(), Sizes{});
  EXPECT_EQ(cache.sides[0].host->available_pages(), cache.sides[0].host->num_pages());
  EXPECT_TRUE(cache.closes());
}

TEST(BlockHost, ADestroyedCacheWaitsForItsCopies) {
  auto cache = std::make_unique<TieredBlocks>();
  for (Token i = 0; i < 4; ++i) cache->run(tokens(9, i * 100));
  HostPool& host = *cache->sides[0].host;
  cache->cache.reset();
  EXPECT_EQ(host.available_pages(), host.num_pages());
}

TEST(BlockHost, EvictHostDropsWhatWasUsedLongestAgo) {
  TieredBlocks cache;
  { const BlockRequest request = cache.run(tokens(9)); }
  { const BlockRequest request = cache.run(tokens(9, 500)); }
  cache.settle();
  EXPECT_EQ(cache->tiers().evict_host(5), 8U) << "whole blocks";
  cache.flush();
  EXPECT_EQ(cache.find(tokens(9)).host_length, 0U);
  EXPECT_EQ(cache.find(tokens(9, 500)).host_length, 8U);
  EXPECT_EQ(cache->tiers().evict_host(100), 8U);
  EXPECT_EQ(cache->tiers().stats().host_evicted_tokens, 16U);
  EXPECT_TRUE(cache.closes());
}

TEST(BlockHost, UnderWayCountsWhatPollHasNotApplied) {
  StepCopier copier;
  TieredBlocks cache({.copier = &copier});
  EXPECT_TRUE(cache->tiers().under_way().idle());
  { const BlockRequest request = cache.run(tokens(9)); }
  EXPECT_EQ(cache->tiers().under_way().backups, 1U);
  copier.run_all();
  EXPECT_EQ(cache->tiers().under_way().backups, 1U);
  cache.settle();
  EXPECT_TRUE(cache->tiers().under_way().idle());
}

TEST(BlockHost, WhatIsSoonerComputedIsNotLoaded) {
  BlockTierSetup setup;
  setup.cost_gate = CostGateOptions{.probe_every = 0};
  TieredBlocks cache(setup);
  { const BlockRequest request = cache.run(tokens(9)); }
  cache.settle();
  cache.flush();
  EXPECT_FALSE(cache->tiers().report_prefill(1000, 0).ok());
  EXPECT_EQ(cache.find(tokens(9)).host_length, 8U) << "nothing was measured yet";
  { const BlockRequest request = cache.run(tokens(9)); }
  cache.settle();
  cache.flush();
  cache->tiers().report_prefill(1'000'000, 1e-12).value();
  EXPECT_EQ(cache.find(tokens(9)).host_length, 0U);
  EXPECT_EQ(cache->tiers().stats().gated_loads, 1U);
  cache->tiers().report_prefill(1, 1e12).value();
  EXPECT_EQ(cache.find(tokens(9)).host_length, 8U);
  EXPECT_TRUE(cache.closes());
}

}  // namespace
}  // namespace pando::testing
