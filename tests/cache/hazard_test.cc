// SPDX-License-Identifier: Apache-2.0
// The policy that learns, in a PrefixCache: it starts as lru, evicts from the ends of prefixes,
// keeps what comes back, and works on all tiers and components.
#include <gtest/gtest.h>

#include "base/random.h"
#include "pando/inspect.h"
#include "support/cache_fixture.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kPage = 64;  // a block of the policy

Tokens prompt(Token name, std::size_t pages) { return tokens(pages * kPage, name * 100'000); }

TEST(Hazard, StartsAsLru) {
  TestCache cache(kPage, {}, 64 * kPage, "hazard");
  for (const Token name : {1, 2, 3}) {
    cache.put(prompt(name, 1));
    cache.put(prompt(9, 20));  // time passes
  }
  cache->evict(kPage);
  EXPECT_EQ(cache.probe(prompt(1, 1)), 0u);
  EXPECT_EQ(cache.probe(prompt(2, 1)), kPage);
  EXPECT_EQ(cache.probe(prompt(3, 1)), kPage);
  EXPECT_TRUE(cache.closes());
}

TEST(Hazard, EvictsFromTheEndsOfPrefixes) {
  TestCache cache(kPage, {}, 64 * kPage, "hazard");
  cache.put(prompt(1, 8));
  cache->evict(3 * kPage);
  EXPECT_EQ(cache.probe(prompt(1, 8)), 5 * kPage);
  EXPECT_TRUE(cache.closes());
}

/// Conversations that come back after some time, among prompts that never do.
double hit_ratio(std::string_view policy, std::size_t page_size) {
  TestCache cache(page_size, {}, 128 * kPage, policy);
  Random random(1);
  std::size_t hits = 0;
  std::size_t sum = 0;
  for (Token i = 0; i < 6000; ++i) {
    // Every fourth one is one of eight that take turns; the others are seen once.
    const Tokens key = i % 4 == 0 ? prompt(1 + i / 4 % 8, 6) : prompt(100 + i, 8);
    Running running(key);
    const std::size_t cached = running.start(cache)->length;
    running.allocate(cache).value();
    running.finish(cache).value();
    hits += cached;
    sum += key.size();
  }
  EXPECT_TRUE(cache.closes());
  return static_cast<double>(hits) / static_cast<double>(sum);
}

TEST(Hazard, KeepsWhatComesBack) {
  for (const std::size_t page_size : {kPage, kPage / 4}) {
    EXPECT_LT(hit_ratio("lru", page_size), 0.01);
    EXPECT_GT(hit_ratio("hazard", page_size), 0.1);
  }
}

TEST(Hazard, CountsARequestOnceHoweverOftenItInserts) {
  const auto serve = [](bool checkpoints) {
    TestCache cache(kPage, {}, 256 * kPage, "hazard");
    Random random(5);
    for (int i = 0; i < 400; ++i) {
      Running running(prompt(static_cast<Token>(random.below(60)), 8));
      running.start(cache).value();
      running.allocate(cache).value();
      for (const std::size_t chunk : {2 * kPage, 5 * kPage, 8 * kPage}) {
        if (!checkpoints || chunk < running.request.cached_length()) continue;
        cache->checkpoint(running.request, chunk, chunk < 8 * kPage).value();
      }
      running.finish(cache).value();
    }
    std::vector<std::size_t> left;
    for (Token name = 0; name < 60; ++name) left.push_back(cache.probe(prompt(name, 8)));
    return left;
  };
  EXPECT_EQ(serve(false), serve(true));
}

// Ranks that mirror a cache count on it. Long lists are drawn from in another way than short ones.
TEST(Hazard, TheSameCallsEvictTheSameWhereverThingsLie) {
  const auto digest = [](std::size_t odd_bytes) {
    std::vector<std::unique_ptr<char[]>> elsewhere;
    TestCache cache(1, {}, 40'000, "hazard");
    Random random(9);
    for (int i = 0; i < 30'000; ++i) {
      if (i % 50 == 0)
        elsewhere.push_back(std::make_unique<char[]>(odd_bytes * (1 + random.below(9))));
      if (cache.allocator->available() < 4) cache->evict(200);
      const auto name = static_cast<Token>(random.below(12'000));
      cache.put({name, name + 1, static_cast<Token>(random.below(3))});
    }
    return cache->inspect().digest();
  };
  EXPECT_EQ(digest(1), digest(37));
  EXPECT_EQ(digest(1), digest(5000));
}

TEST(Hazard, ARequestThatInsertsNoMoreIsCountedToo) {
  TestCache cache(kPage, {}, 64 * kPage, "hazard");
  Running running(prompt(1, 4));
  running.start(cache).value();
  running.allocate(cache).value();
  running.checkpoint(cache).value();
  running.abandon(cache).value();
  EXPECT_EQ(cache.probe(prompt(1, 4)), 4 * kPage);
  EXPECT_TRUE(cache.closes());
}

TEST(Hazard, SurvivesASoakOnAllTiersAndComponents) {
  for (const bool hybrid : {false, true}) {
    TierSetup setup;
    setup.policy = "hazard";
    setup.page_size = 4;
    if (hybrid) {
      setup.cache.window = 8;
      setup.cache.state.emplace();
    }
    TieredCache cache(setup);
    Random random(2);
    for (int i = 0; i < 1500; ++i) {
      cache.put(tokens(4 + random.below(24), static_cast<Token>(1000 * random.below(12))));
      poll_until_idle(*cache.cache);
      if (i % 100 != 0) continue;
      ASSERT_TRUE(cache.closes());
    }
    EXPECT_TRUE(cache.closes());
    EXPECT_GT(cache->tiers().stats().loaded_tokens, 0u);
  }
}

TEST(Hazard, CostAwareSparesDeepBlocks) {
  const auto survivors = [](std::unique_ptr<EvictionPolicy> policy) {
    TestCache cache(kPage, {}, 64 * kPage, std::move(policy));
    cache.put(prompt(1, 16));
    cache.put(prompt(2, 1));
    cache.put(prompt(3, 1));
    cache->evict(2 * kPage);
    return cache.probe(prompt(1, 16));
  };
  EXPECT_EQ(survivors(*make_hazard_policy({.cost_aware = true, .attention_tokens = 64})),
            16 * kPage);
  EXPECT_LT(survivors(*make_hazard_policy({})), 16 * kPage);
}

TEST(Hazard, MeasuresWhatAttentionCosts) {
  TestCache cache(kPage, {}, 64 * kPage, *make_hazard_policy({.cost_aware = true}));
  // Each token takes 1 us, and 1 us more for every 100 before it.
  for (std::size_t i = 1; i <= 32; ++i) {
    const auto n = static_cast<double>(64 * i);
    ASSERT_TRUE(
        cache->tiers().report_prefill(64 * i, 1e-6 * (n + n * (500 + n / 2) / 100), 500).ok());
  }
  cache.put(prompt(1, 16));
  cache.put(prompt(2, 1));
  cache.put(prompt(3, 1));
  cache->evict(2 * kPage);
  EXPECT_EQ(cache.probe(prompt(1, 16)), 16 * kPage);
}

TEST(Hazard, BadOptionsAreRefused) {
  for (const double tokens : {0.0, -1.0, std::numeric_limits<double>::infinity()})
    EXPECT_TRUE(fails(make_hazard_policy({.attention_tokens = tokens}), ErrorCode::invalid_argument,
                      "expected a number of tokens above 0"));
}

}  // namespace
}  // namespace pando::testing
