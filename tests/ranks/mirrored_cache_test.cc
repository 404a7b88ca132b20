// SPDX-License-Identifier: Apache-2.0
// Caches that mirror each other, each on a thread of its own.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "pando/paths.h"
#include "support/mirrored_cache.h"

namespace pando::testing {
namespace {

constexpr std::size_t kRanks = 4;

std::vector<std::unique_ptr<Ranks>> thread_ranks(std::chrono::milliseconds timeout) {
  return *make_thread_ranks({.num_ranks = kRanks, .timeout = timeout});
}

/// fn(ranks) on a thread for each rank, which is destroyed when it returns.
void on_each_rank(const std::function<void(Ranks&)>& fn,
                  std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  std::vector<std::thread> threads;
  for (std::unique_ptr<Ranks>& ranks : thread_ranks(timeout))
    threads.emplace_back([&fn, own = std::move(ranks)] { fn(*own); });
  for (std::thread& thread : threads) thread.join();
}

TierSetup mirrored(Ranks& ranks) {
  TierSetup setup;
  setup.cache.ranks = &ranks;
  return setup;
}

class MirroredCacheTest : public ::testing::TestWithParam<MirrorCase> {};

TEST_P(MirroredCacheTest, TreesStayAlikeWhateverHappensToOneOfThem) {
  std::size_t num_steps = 5000;
  if (const char* text = std::getenv("PANDO_MODEL_OPS"))
    num_steps = std::strtoull(text, nullptr, 10) / 500;
  on_each_rank([&](Ranks& ranks) {
    MirroredCache mirror(ranks, GetParam(), 1);
    std::string wrong;
    for (std::size_t i = 0; i < num_steps && wrong.empty(); ++i) {
      wrong = mirror.step();
      if (!wrong.empty()) wrong = "step " + std::to_string(i) + ", " + wrong;
    }
    const TierStats stats = mirror.stats();
    if (wrong.empty()) wrong = mirror.finish();
    EXPECT_EQ(wrong, "");
    if (num_steps < 5000) return;
    // It was worth the trouble.
    EXPECT_GT(mirror.num_refused(), 100u);
    EXPECT_GT(stats.failed_backups + stats.refused_backups, 100u);
    EXPECT_GT(stats.loaded_tokens, 100u);
    EXPECT_GT(stats.failed_loads, 0u);
    if (!GetParam().store) return;
    EXPECT_GT(stats.revoked_prefetches, 0u);
    EXPECT_EQ(stats.prefetched_tokens > 0, !GetParam().one_writer);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, MirroredCacheTest, ::testing::ValuesIn(mirror_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(MirroredCache, SettingsThatDifferAreNamedOnEveryRank) {
  on_each_rank([](Ranks& ranks) {
    const auto slots = *PagedAllocator::create(
        {.capacity_tokens = ranks.rank() == 2 ? 128u : 64u, .page_size = 1});
    CacheOptions options;
    options.ranks = &ranks;
    const auto cache = PrefixCache::create(options, *slots);
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(cache.error().message.find("free pages"), std::string::npos) << cache.error().message;
  });
}

TEST(MirroredCache, AGateThatOneRankLacksIsNamedOnEveryRank) {
  on_each_rank([](Ranks& ranks) {
    TieredCache plain;
    CacheOptions options = plain->options();
    options.ranks = &ranks;
    if (ranks.rank() != 1) options.host->cost_gate.emplace();
    const auto cache = PrefixCache::create(options, *plain.slots);
    ASSERT_FALSE(cache.ok());
    EXPECT_NE(cache.error().message.find("cost_gate"), std::string::npos) << cache.error().message;
  });
}

TEST(MirroredCache, OptionsRefusedByOneRankAreRefusedByAll) {
  on_each_rank([](Ranks& ranks) {
    const auto slots = *PagedAllocator::create({.capacity_tokens = 64, .page_size = 1});
    CacheOptions options;
    options.ranks = &ranks;
    options.retention.max_pinned_share = ranks.rank() == 1 ? 2 : 0.5;
    const auto cache = PrefixCache::create(options, *slots);
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().code,
              ranks.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::unavailable);
  });
}

TEST(MirroredCache, AStoreThatOneRankCannotOpenIsAttachedByNone) {
  on_each_rank([](Ranks& ranks) {
    TieredCache cache(mirrored(ranks));
    StorageOptions options;
    options.backend = "memory";
    options.options = ranks.rank() == 3 ? R"({"prefetch_threshold": "many"})" : "";
    ASSERT_FALSE(cache->tiers().attach_storage(options).ok());
    EXPECT_FALSE(cache->tiers().has_storage());
    options.options = "";
    options.prefetch_policy = ranks.rank() == 2 ? "sometimes" : "timeout";
    ASSERT_FALSE(cache->tiers().attach_storage(options).ok());
    EXPECT_FALSE(cache->tiers().has_storage());
    options.prefetch_policy = "timeout";
    EXPECT_TRUE(cache->tiers().attach_storage(options).ok());
  });
}

TEST(MirroredCache, WhatOneRankWouldComputeNoneLoads) {
  on_each_rank([](Ranks& ranks) {
    TierSetup setup = mirrored(ranks);
    setup.cost_gate.emplace();
    TieredCache cache(setup);
    Tokens key(16);
    const auto load = [&] {
      cache.settle();
      cache->evict(16);
      Slots at(16);
      Lease lease = *cache->paths().lock(*cache->paths().match({key}, at));
      const LoadOutcome outcome = cache->paths().load_back(lease, at)->outcome;
      cache.settle();
      cache.open_gates();
      return outcome;
    };
    cache.put(key);
    EXPECT_EQ(load(), LoadOutcome::loaded);
    cache->tiers().report_prefill(1000, ranks.rank() == 1 ? 1e-12 : 1e12).value();
    EXPECT_EQ(load(), LoadOutcome::recompute);
    EXPECT_EQ(cache->tiers().stats().gated_loads, 1u);
    EXPECT_TRUE(cache.closes());
  });
}

TEST(MirroredCache, NothingIsExchangedWhileNothingIsUnderWay) {
  // A rank that polls alone would wait for the others in vain.
  on_each_rank(
      [](Ranks& ranks) {
        TieredCache cache(mirrored(ranks));
        for (std::size_t i = 0; i < 100 * ranks.rank(); ++i) {
          const PollResult result = cache->poll();
          EXPECT_TRUE(result.idle);
          EXPECT_FALSE(result.ranks_lost);
        }
      },
      std::chrono::milliseconds(200));
}

/// A rank of two, of which the other always says the same; its exchanges are counted, and may
/// throw.
class CountingRanks final : public Ranks {
 public:
  std::size_t rank() const override { return 0; }
  std::size_t size() const override { return 2; }
  Status min(std::span<std::int64_t>) override {
    ++num_exchanges;
    if (throws) throw std::runtime_error("no such group");
    return {};
  }
  Status max(std::span<std::int64_t>) override { return {}; }
  Status barrier() override { return {}; }

  int num_exchanges = 0;
  bool throws = false;
};

TEST(MirroredCache, APollIsOneExchangeHoweverMuchIsUnderWay) {
  CountingRanks ranks;
  StepCopier copier;
  TierSetup setup = mirrored(ranks);
  setup.copier = &copier;
  TieredCache cache(setup);
  StorageOptions options;
  options.backend = "memory";
  options.options = R"({"prefetch_threshold": 1})";
  cache->tiers().attach_storage(options).value();
  for (Token first = 0; first < 5; ++first) cache.put(tokens(4, 100 * first));
  (void)cache->prefetch({tokens(8, 1000)});
  copier.step(0);
  const int before = ranks.num_exchanges;
  EXPECT_FALSE(cache->poll().idle);
  EXPECT_EQ(ranks.num_exchanges, before + 1);
  copier.run_all();
  cache.settle();
  const int after = ranks.num_exchanges;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(cache->poll().idle);
  EXPECT_EQ(ranks.num_exchanges, after) << "nothing is under way";
}

TEST(MirroredCache, RanksThatThrowAreLost) {
  CountingRanks ranks;
  TieredCache cache(mirrored(ranks));
  cache.put({1, 2, 3, 4});
  ranks.throws = true;
  EXPECT_TRUE(cache->poll().ranks_lost);
}

TEST(MirroredCache, AfterARankIsLostNothingMovesAndEverythingCanBeGivenUp) {
  on_each_rank(
      [](Ranks& ranks) {
        TieredCache cache(mirrored(ranks));
        cache.put({1, 2, 3, 4});
        if (ranks.rank() == 2) return;  // and does not come again
        PollResult result = cache->poll();
        EXPECT_TRUE(result.ranks_lost);
        EXPECT_FALSE(result.idle);
        EXPECT_EQ(result.backups, 0u);
        cache.put({1, 2, 3, 5});  // what is on the device can be used on
        EXPECT_EQ(cache.match({1, 2, 3, 5}).length, 4u);
        EXPECT_TRUE(cache.closes());
        EXPECT_TRUE(cache->reset().ok());
      },
      std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace pando::testing
