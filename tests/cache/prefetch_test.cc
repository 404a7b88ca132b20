// SPDX-License-Identifier: Apache-2.0
// What comes back from a store while a request waits: which pages, when the request may go on, what
// is kept. Stores are real ones, or say when to go on; bytes are real too.
#include <gtest/gtest.h>

#include "support/shared_store.h"

namespace pando::testing {
namespace {

using PrefetchTest = StorageTierTest;

TEST_F(PrefetchTest, AnotherCacheFindsItThere) {
  store(tokens(16));
  TieredCache cache(kPages);
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(18)), 16u);
  EXPECT_EQ(cache.match(tokens(18)).host_length, 16u);
  EXPECT_EQ(cache.load(tokens(18)).size(), 16u);
  EXPECT_EQ(cache->tiers().stats().prefetched_tokens, 16u);
}

TEST_F(PrefetchTest, OnlyWhatTheTreeLacksIsFetched) {
  store(tokens(16));
  TieredCache cache(kPages);
  attach(cache);
  cache.put(tokens(8));
  EXPECT_EQ(fetch(cache, tokens(16)), 8u);
  EXPECT_EQ(cache->tiers().storage_stats().read_pages, 2u);
  EXPECT_EQ(cache.match(tokens(16)).length, 8u);
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
}

TEST_F(PrefetchTest, NamespacesModelsAndRanksDoNotMeet) {
  store(tokens(8), kPages, "tenant");
  const auto found = [&](StorageOptions o, std::string_view ns) {
    TieredCache cache(kPages);
    o.prefetch_policy = "wait_complete";
    cache->tiers().attach_storage(o).value();
    return fetch(cache, tokens(8), ns);
  };
  EXPECT_EQ(found(storage(), "tenant"), 8u);
  EXPECT_EQ(found(storage(), ""), 0u);
  EXPECT_EQ(found(storage(), "other"), 0u);
  StorageOptions other = storage();
  other.scope.model = "another/model";
  EXPECT_EQ(found(other, "tenant"), 0u);
  other = storage();
  other.scope.tp_size = 2;
  EXPECT_EQ(found(other, "tenant"), 0u);
}

TEST_F(PrefetchTest, AnotherGeometryFindsNothing) {
  store(tokens(8));
  TieredCache cache({.page_size = 4, .layout = HostLayout::layer_first});
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(8)), 0u);
}

TEST_F(PrefetchTest, APageOfAnotherSizeEndsWhatIsKept) {
  store(tokens(16));
  std::vector<std::string> keys;
  inner->list([&](const StoredPage& page) { return keys.push_back(page.key), true; }).value();
  const PageHash third = (*hash_pages(tokens(16), 4))[2];
  for (const std::string& key : keys) {
    const std::string begin =
        KeySpace({}, TieredCache::geometry(4), HostLayout::page_first, ComponentKind::full)
            .key(third)
            .substr(0, 64);
    if (!key.starts_with(begin)) continue;
    StoreBatch gone(StoreBatch::Kind::remove, {StorePage{.key = key}},
                    std::chrono::steady_clock::now() + std::chrono::seconds(10));
    inner->remove(gone);
    std::vector<std::byte> wrong(7);
    StoreBatch put(StoreBatch::Kind::put, {StorePage{.key = key, .pieces = {wrong}}},
                   std::chrono::steady_clock::now() + std::chrono::seconds(10));
    inner->put(put);
  }
  TieredCache cache(kPages);
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(16)), 8u) << "up to the page that is not it";
  EXPECT_EQ(cache->tiers().storage_stats().missing_pages, 1u);
  EXPECT_EQ(cache.load(tokens(16)).size(), 8u);
}

TEST_F(PrefetchTest, ThresholdAndLimitOfOccupiedTokens) {
  TieredCache cache(kPages);
  StorageOptions o = storage(R"({"prefetch_threshold": 8, "prefetch_max_tokens": 16})");
  cache->tiers().attach_storage(o).value();
  EXPECT_EQ(cache->prefetch({tokens(7)})->outcome, PrefetchOutcome::below_threshold);
  EXPECT_EQ(cache->prefetch({tokens(3)})->outcome, PrefetchOutcome::nothing_to_fetch);
  const Prefetch first = *cache->prefetch({tokens(12)});
  EXPECT_EQ(first.outcome, PrefetchOutcome::started);
  EXPECT_EQ(cache->prefetch({tokens(8, 100)})->outcome, PrefetchOutcome::rate_limited);
  cache->abort_prefetch(first.id);
  cache.settle();
  EXPECT_EQ(cache->prefetch({tokens(8, 100)})->outcome, PrefetchOutcome::started);
}

TEST_F(PrefetchTest, AnAbortedPrefetchReleasesEverything) {
  store(tokens(16));
  TieredCache cache(kPages);
  attach(cache);
  const Prefetch prefetch = *cache->prefetch({tokens(16)});
  (void)cache->poll();
  cache->abort_prefetch(prefetch.id);
  cache.settle();
  EXPECT_EQ(cache.full.host->count(PageState::idle), cache.full.host->num_pages());
  EXPECT_EQ(cache.match(tokens(16)).host_length, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST_F(PrefetchTest, PutsAndFetchesAreUnderWayUntilPollHasSeenThemEnd) {
  {
    TieredCache cache(kPages);
    attach(cache);
    cache.put(tokens(16));
    while (cache->tiers().under_way().backups > 0) (void)cache->poll();
    EXPECT_EQ(cache->tiers().under_way().puts, 1u)
        << "it starts when the copy to the host has ended";
    cache.settle();
    EXPECT_TRUE(cache->tiers().under_way().idle());
  }
  TieredCache cache(kPages);
  attach(cache);
  const Prefetch prefetch = *cache->prefetch({tokens(16)});
  EXPECT_EQ(cache->tiers().under_way().fetches, 1u);
  while (!cache->prefetch_ready(prefetch.id)) (void)cache->poll();
  EXPECT_EQ(cache->tiers().under_way().fetches, 1u) << "until the request ends it";
  EXPECT_EQ(cache->end_prefetch(prefetch.id), 16u);
  cache.settle();
  EXPECT_TRUE(cache->tiers().under_way().idle());
}

TEST_F(PrefetchTest, WhatTheTreeGotMeanwhileIsNotDoubled) {
  store(tokens(16));
  TieredCache cache(kPages);
  attach(cache);
  const Prefetch prefetch = *cache->prefetch({tokens(16)});
  cache.put(tokens(8));
  while (!cache->prefetch_ready(prefetch.id)) (void)cache->poll();
  EXPECT_EQ(cache->end_prefetch(prefetch.id), 8u);
  cache.settle();
  EXPECT_TRUE(cache.closes());
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
}

TEST_F(PrefetchTest, WindowsAndSnapshotsAreStoredAndFetched) {
  const TierSetup setup{.page_size = 2, .cache = {.window = 4, .state = StateOptions{}}};
  const Tokens key = tokens(12);
  store(key, setup);
  EXPECT_EQ(num_stored(), 6u + 6u + 1u);
  TieredCache cache(setup);
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(16)), 12u) << "there is no snapshot further on";
  EXPECT_EQ(cache.match(tokens(16)).host_length, 12u);
  EXPECT_EQ(cache->tiers().storage_stats().read_pages, 6u + 2u + 1u)
      << "of the window, what is needed";
  EXPECT_EQ(cache.load(key).size(), 12u);
  cache.settle();
  EXPECT_TRUE(cache.holds_state(key, cache.match(key)));
}

TEST_F(PrefetchTest, OfAWindowSmallerThanAPageOnePageIsFetched) {
  const TierSetup setup{.page_size = 4, .cache = {.window = 1}};
  const Tokens key = tokens(24);
  store(key, setup);
  TieredCache cache(setup);
  attach(cache);
  EXPECT_EQ(fetch(cache, key), 24u);
  EXPECT_EQ(cache->tiers().storage_stats().read_pages, 6u + 1u);
  EXPECT_EQ(cache.match(key).host_length, 24u);
  EXPECT_EQ(cache.load(key).size(), 24u);
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST_F(PrefetchTest, BigramKeysAreStoredAndFetched) {
  const TierSetup setup{.page_size = 4, .cache = {.bigram = true}};
  store(tokens(13), setup);
  TieredCache cache(setup);
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(13)), 12u);
  EXPECT_EQ(cache.load(tokens(13)).size(), 12u);
}

// A prefetch whose reads have reached the store and hang there.
class HangingReads : public PrefetchTest {
 protected:
  HangingReads() {
    store(tokens(16));
    reads.shut();
  }
  ~HangingReads() override { reads.open(); }
  PrefetchId begin(std::string_view policy) {
    attach(cache, policy);
    const PrefetchId id = cache->prefetch({tokens(16)})->id;
    while (reads.num_arrived() == 0) (void)cache->poll();
    return id;
  }
  TieredCache cache{kPages};
};

TEST_F(HangingReads, TheTimeoutGrowsWithTheNumberOfTokens) {
  const PrefetchId id = begin("timeout");
  now += std::chrono::milliseconds(1003);  // 1 s + 16 / 1024 * 0.25 s = 1.0039 s
  (void)cache->poll();
  EXPECT_FALSE(cache->prefetch_ready(id));
  now += std::chrono::milliseconds(1);
  (void)cache->poll();
  EXPECT_TRUE(cache->prefetch_ready(id));
  EXPECT_EQ(cache->end_prefetch(id), 0u);
  EXPECT_FALSE(cache->poll().idle) << "the store may still write to its pages";
  EXPECT_TRUE(cache.closes());
  reads.open();
  cache.settle();
  EXPECT_EQ(cache.full.host->count(PageState::idle), cache.full.host->num_pages());
}

TEST_F(PrefetchTest, AStoreThatDoesNotAnswerInTimeHasNothing) {
  store(tokens(16));
  TieredCache cache(kPages);
  attach(cache, "timeout");
  questions.shut();
  const PrefetchId id = cache->prefetch({tokens(16)})->id;
  questions.await(1);
  now += std::chrono::milliseconds(999);
  (void)cache->poll();
  EXPECT_FALSE(cache->prefetch_ready(id));
  now += std::chrono::milliseconds(2);
  (void)cache->poll();
  EXPECT_TRUE(cache->prefetch_ready(id));
  EXPECT_EQ(cache->end_prefetch(id), 0u);
  EXPECT_EQ(cache->tiers().stats().revoked_prefetches, 1u);
  questions.open();
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST_F(PrefetchTest, TheCostGateTurnsDownWhatIsFasterToCompute) {
  for (const Token first : {0, 100, 200}) store(tokens(16, first));
  TierSetup setup = kPages;
  setup.cost_gate.emplace();
  TieredCache cache(setup);
  attach(cache);
  const auto fetch_slowly = [&](Token first) {
    reads.shut();
    const PrefetchId id = cache->prefetch({tokens(16, first)})->id;
    const std::size_t before = reads.num_arrived();
    while (!cache->prefetch_ready(id) && reads.num_arrived() == before) (void)cache->poll();
    now += std::chrono::seconds(40);
    reads.open();
    while (!cache->prefetch_ready(id)) (void)cache->poll();
    const std::size_t tokens = cache->end_prefetch(id);
    cache.settle();
    return tokens;
  };
  EXPECT_EQ(fetch_slowly(0), 16u) << "nothing is known yet";
  EXPECT_EQ(cache.load(tokens(16, 0)).size(), 16u);
  cache.settle();
  cache->tiers().report_prefill(16, 0.9).value();
  EXPECT_EQ(fetch_slowly(100), 0u);
  EXPECT_EQ(cache->tiers().stats().gated_prefetches, 1u);
  EXPECT_NEAR(cache->tiers().stats().fetch_bytes_per_second,
              16.0 / 40 * static_cast<double>(cache.full.device->geometry().token_bytes()), 1e-9);
  for (int i = 0; i < 100; ++i) cache->tiers().report_prefill(16, 400).value();
  EXPECT_EQ(fetch_slowly(200), 16u) << "an engine that has become slow";
  EXPECT_TRUE(cache.closes());
}

TEST_F(HangingReads, WaitingForAllWaitsForAll) {
  const PrefetchId id = begin("wait_complete");
  now += std::chrono::hours(1);
  (void)cache->poll();
  EXPECT_FALSE(cache->prefetch_ready(id));
  reads.open();
  while (!cache->prefetch_ready(id)) (void)cache->poll();
  EXPECT_EQ(cache->end_prefetch(id), 16u);
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST_F(HangingReads, BestEffortNeverWaits) {
  const PrefetchId id = begin("best_effort");
  EXPECT_TRUE(cache->prefetch_ready(id));
  EXPECT_EQ(cache->end_prefetch(id), 0u);
  reads.open();
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST_F(HangingReads, TheAnchorStaysWhileAFetchIsUnderWay) {
  attach(cache, "wait_complete");
  cache.put(tokens(8));
  cache.settle();
  const PrefetchId id = cache->prefetch({tokens(16)})->id;
  while (reads.num_arrived() == 0) (void)cache->poll();
  cache->evict(8);
  cache->tiers().evict_host(64);
  EXPECT_EQ(cache.match(tokens(8)).host_length, 8u);
  reads.open();
  while (!cache->prefetch_ready(id)) (void)cache->poll();
  EXPECT_EQ(cache->end_prefetch(id), 8u);
  cache.settle();
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
}

}  // namespace
}  // namespace pando::testing
