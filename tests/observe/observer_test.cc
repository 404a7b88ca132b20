// SPDX-License-Identifier: Apache-2.0
// What an observer is told: every call of the engine once, every fact where it happens, in sums
// that are the cache's own.
#include "pando/observer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "pando/block_cache.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/shared_store.h"
#include "support/tally_observer.h"

namespace pando::testing {
namespace {

using Calls = std::vector<std::string>;

CacheOptions observed_by(CacheObserver& observer) { return {.observer = &observer}; }

TEST(Observer, ARequestIsToldCallByCall) {
  TallyObserver seen;
  TestCache cache(4, observed_by(seen));
  Running r(tokens(10));
  r.start(cache).value();
  r.allocate(cache).value();
  r.checkpoint(cache).value();
  r.finish(cache).value();
  EXPECT_EQ(seen.calls, (Calls{"start", "allocate", "checkpoint", "finish"}));
  EXPECT_EQ(seen.matches, 1u);
  EXPECT_EQ(seen.asked, 10u);
  EXPECT_EQ(seen.last_end, MatchEnd::namespace_unknown);
  EXPECT_EQ(seen.inserts, 2u);
  EXPECT_EQ(seen.stats.inserted_tokens, 8u);
  EXPECT_GT(seen.took.count(), 0);
}

TEST(Observer, AMatchTellsHitsAndWhyItEnded) {
  TallyObserver seen;
  TestCache cache(4, observed_by(seen));
  cache.put(tokens(8));
  (void)cache.match(tokens(8) + tokens(4, 90));
  EXPECT_EQ(seen.asked, 12u);
  EXPECT_EQ(seen.device_hits, 8u);
  EXPECT_EQ(seen.last_end, MatchEnd::no_such_child);
}

TEST(Observer, FinishTellsPromptAndOutput) {
  TallyObserver seen;
  TestCache cache(4, observed_by(seen));
  Request request = *cache->start(tokens(12));
  request.append(tokens(8, 13)).value();
  cache->allocate(request).value();
  cache->finish(request).value();
  EXPECT_EQ(seen.finished, 1u);
  EXPECT_EQ(seen.prompts, 12u);
  EXPECT_EQ(seen.outputs, 8u);
}

TEST(Observer, AnAllocationThatEvictsTellsOfBoth) {
  TallyObserver seen;
  TestCache cache(4, observed_by(seen), 16);
  cache.put(tokens(16));
  Running r(tokens(8, 100));
  r.start(cache).value();
  seen.calls.clear();
  r.allocate(cache).value();
  EXPECT_EQ(seen.calls, Calls{"allocate"});
  EXPECT_EQ(seen.evictions, 1u);
  EXPECT_EQ(seen.stats.evicted_tokens, 8u);
  r.abandon(cache).value();
}

TEST(Observer, CallsThatFailAreToldWithoutFacts) {
  TallyObserver seen;
  TestCache cache(4, observed_by(seen));
  EXPECT_FALSE(cache->paths().match({}).ok());
  Running r(Tokens{1, -1, 2, 3, 4});
  EXPECT_FALSE(r.start(cache).ok());
  EXPECT_EQ(seen.calls, (Calls{"match!", "start!"}));
  EXPECT_EQ(seen.matches, 0u);
}

TEST(Observer, ResetAndTheEndAreNoEvictions) {
  TallyObserver seen;
  {
    TestCache cache(4, observed_by(seen));
    cache.put(tokens(8));
    cache->reset().value();
    cache.put(tokens(8));
  }
  EXPECT_EQ(seen.calls, (Calls{"insert", "reset", "insert"}));
  EXPECT_EQ(seen.evictions, 0u);
}

TEST(Observer, AFanOutTellsAllInOrder) {
  struct Noter : CacheObserver {
    explicit Noter(std::string name, std::string& log) : name(std::move(name)), log(log) {}
    void on_call(const CallInfo&) override { log += name; }
    std::string name;
    std::string& log;
  };
  std::string log;
  Noter a("a", log), b("b", log);
  TallyObserver tally;
  ObserverFanOut all({&a, &tally, &b});
  TestCache cache(4, observed_by(all));
  cache.put(tokens(8));
  (void)cache.match(tokens(8));
  EXPECT_EQ(log, "abab");
  EXPECT_EQ(tally.device_hits, 8u);
  EXPECT_EQ(tally.stats.inserted_tokens, 8u);
}

// ---- Sums --------------------------------------------------------------------------------------

void expect_same_sums(const TallyObserver& seen, const CacheStats& stats, const TierStats& tier) {
  EXPECT_EQ(seen.stats.inserted_tokens, stats.inserted_tokens);
  EXPECT_EQ(seen.stats.duplicate_tokens, stats.duplicate_tokens);
  EXPECT_EQ(seen.stats.revived_tokens, stats.revived_tokens);
  EXPECT_EQ(seen.stats.evicted_tokens, stats.evicted_tokens);
  EXPECT_EQ(seen.stats.evicted_nodes, stats.evicted_nodes);
  EXPECT_EQ(seen.stats.evicted_window_tokens, stats.evicted_window_tokens);
  EXPECT_EQ(seen.stats.evicted_snapshots, stats.evicted_snapshots);
  EXPECT_EQ(seen.tier.demoted_tokens, tier.demoted_tokens);
  EXPECT_EQ(seen.tier.host_evicted_tokens, tier.host_evicted_tokens);
  EXPECT_EQ(seen.tier.prefetches, tier.prefetches);
  EXPECT_EQ(seen.tier.prefetched_tokens, tier.prefetched_tokens);
}

using ObserverSums = StorageTierTest;

// Keys of a few families, so that they share prefixes; all tiers are too small for them.
TEST_F(ObserverSums, AreTheCachesOwnOverARandomWorkload) {
  for (const bool hybrid : {false, true}) {
    TallyObserver seen;
    TierSetup setup{.page_size = 4, .cache = {.observer = &seen}};
    if (hybrid) {
      setup.cache.window = 8;
      setup.cache.state = StateOptions{};
    }
    TieredCache cache(setup);
    attach(cache);
    Random random(hybrid ? 2 : 1);
    for (std::size_t step = 0; step < 400; ++step) {
      const auto family = static_cast<Token>(1000 * random.below(6));
      const Tokens key =
          tokens(4 + 4 * random.below(6), family) +
          tokens(random.below(12), 500 + family + static_cast<Token>(random.below(3)));
      const std::string ns = random.below(4) == 0 ? "t" : "";
      if (random.below(3) == 0) {
        const Prefetch begun = *cache->prefetch({key, ns});
        while (!cache->prefetch_ready(begun.id)) (void)cache->poll();
        random.below(4) == 0 ? cache->abort_prefetch(begun.id)
                             : (void)cache->end_prefetch(begun.id);
      }
      cache.put(key, ns);
      if (random.below(4) == 0) cache->evict(random.below(32));
      if (random.below(8) == 0) cache->tiers().evict_host(random.below(32));
      cache.settle();
    }
    expect_same_sums(seen, cache->inspect().stats(), cache->tiers().stats());
    // What a request gains is all copied, unless the device had tokens that only lacked a window.
    const std::uint64_t copied = cache->tiers().stats().loaded_tokens;
    EXPECT_TRUE(hybrid ? seen.tier.loaded_tokens >= copied : seen.tier.loaded_tokens == copied);
    EXPECT_GT(seen.stats.duplicate_tokens + seen.tier.loaded_tokens, 0u);
    EXPECT_GT(seen.tier.demoted_tokens, 0u);
    EXPECT_GT(seen.tier.prefetched_tokens, 0u);
    EXPECT_EQ(seen.polled.failures, 0u);
    EXPECT_TRUE(cache.closes());
  }
}

// ---- Blocks ------------------------------------------------------------------------------------

TEST(Observer, SeesABlockCacheUnderTheSameNames) {
  TallyObserver seen;
  auto cache =
      *BlockCache::create({.num_blocks = 16, .groups = {{.block_size = 4}}, .observer = &seen});
  for (int i = 0; i < 2; ++i) {
    BlockRequest request = *cache->start(tokens(10));
    const BlockMatch found = cache->match(request);
    cache->allocate(request, 10 - found.length, {.match = &found}).value();
    cache->checkpoint(request, 10).value();
    request.append(tokens(2, 70)).value();
    cache->finish(request);
  }
  cache->poll();
  const Calls one{"start", "match", "allocate", "checkpoint", "finish"};
  EXPECT_EQ(seen.calls, one + one + Calls{"poll"});
  EXPECT_EQ(seen.asked, 20u);
  EXPECT_EQ(seen.device_hits, cache->stats().hit_tokens);
  EXPECT_EQ(seen.device_hits, 8u);
  EXPECT_EQ(seen.last_end, MatchEnd::page_boundary);
  EXPECT_EQ(seen.finished, 2u);
  EXPECT_EQ(seen.prompts, 20u);
  EXPECT_EQ(seen.outputs, 4u);
}

}  // namespace
}  // namespace pando::testing
