// SPDX-License-Identifier: Apache-2.0
// A cache with a store behind its host tier: what is put there, what comes back while a request
// waits, attaching and detaching. Stores are real ones, or say when to go on; bytes are real too.
#include <gtest/gtest.h>

#include "pando/config.h"
#include "support/store_fixture.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

// One memory store for several caches, as a server would be; questions and reads wait at gates.
class SharedStore final : public StoreBackend {
 public:
  SharedStore(StoreBackend& inner, Gate& questions, Gate& reads)
      : inner_(inner), questions_(questions), reads_(reads) {}
  std::string_view name() const override { return "shared"; }
  void exists(StoreBatch& batch) override {
    questions_.pass();
    inner_.exists(batch);
  }
  void get(StoreBatch& batch) override {
    reads_.pass();
    inner_.get(batch);
  }
  void put(StoreBatch& batch) override { inner_.put(batch); }
  void remove(StoreBatch& batch) override { inner_.remove(batch); }
  Status clear() override { return inner_.clear(); }
  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    return inner_.list(visit);
  }
  BackendStats stats() const override { return inner_.stats(); }

 private:
  StoreBackend& inner_;
  Gate& questions_;
  Gate& reads_;
};

const TierSetup kPages{.cache = {.page_size = 4}};

class StorageTierTest : public ::testing::Test {
 protected:
  StorageTierTest() : inner(*make_memory_store()) {
    static int count = 0;
    name = "shared" + std::to_string(++count);
    register_store(name, [this](const Config& config) -> Result<std::unique_ptr<StoreBackend>> {
      if (Status s = config.refuse_unknown({}); !s) return s.error();
      return std::unique_ptr<StoreBackend>(std::make_unique<SharedStore>(*inner, questions, reads));
    }).value();
  }

  StorageOptions storage(std::string options = R"({"prefetch_threshold": 1})") const {
    StorageOptions o;
    o.backend = name;
    o.options = std::move(options);
    o.scope.model = "test/model";
    o.now = [this] { return now; };
    return o;
  }
  void attach(TieredCache& cache, std::string_view policy = "wait_complete") {
    StorageOptions o = storage();
    o.prefetch_policy = std::string(policy);
    cache->attach_storage(o).value();
  }
  std::size_t num_stored() const { return inner->stats().num_pages; }
  /// Another cache has computed the key, and the store has it.
  void store(const Tokens& key, const TierSetup& setup = kPages, std::string_view ns = {}) {
    TieredCache writer(setup);
    attach(writer);
    writer.put(key, ns);
    writer.settle();
  }

  // Polls until the policy lets the request go, then ends the prefetch.
  static std::size_t fetch(TieredCache& cache, const Tokens& key, std::string_view ns = {}) {
    const Prefetch prefetch = *cache->prefetch({key, ns});
    EXPECT_EQ(prefetch.outcome, PrefetchOutcome::started) << to_string(prefetch.outcome);
    while (!cache->prefetch_ready(prefetch.id)) (void)cache->poll();
    const std::size_t tokens = cache->end_prefetch(prefetch.id);
    EXPECT_EQ(cache->end_prefetch(prefetch.id), 0u) << "reported once";
    cache.settle();
    EXPECT_TRUE(cache.closes());
    return tokens;
  }

  std::unique_ptr<StoreBackend> inner;
  Gate questions, reads;
  std::string name;
  std::chrono::steady_clock::time_point now = {};
};

TEST_F(StorageTierTest, WhatHasAHostCopyGoesToTheStore) {
  TieredCache cache(kPages);
  attach(cache);
  cache.put(tokens(16));
  const PollResult result = cache.settle();
  EXPECT_EQ(result.stored, 1u);
  EXPECT_EQ(num_stored(), 4u);
  EXPECT_EQ(cache->tier_stats().stored_tokens, 16u);
  EXPECT_TRUE(cache.closes());
}

TEST_F(StorageTierTest, WhatTheHostHadBeforeGoesThereWhenItIsHit) {
  TieredCache cache(kPages);
  cache.put(tokens(16));
  cache.put(tokens(8, 500));
  cache.settle();
  attach(cache);
  cache.settle();
  EXPECT_EQ(num_stored(), 0u);
  cache.put(tokens(12));  // splits it
  EXPECT_EQ(cache.settle().stored, 1u);
  EXPECT_EQ(num_stored(), 3u);
  cache.put(tokens(16));
  EXPECT_EQ(cache.settle().stored, 1u);
  EXPECT_EQ(num_stored(), 4u);
  EXPECT_TRUE(cache.closes());
}

TEST_F(StorageTierTest, WhatTheStoreRefusedIsPutAgainWhenItIsHit) {
  bool is_down = true;
  const std::string flaky = name + "_flaky";
  register_store(flaky, [&](const Config&) -> Result<std::unique_ptr<StoreBackend>> {
    return std::unique_ptr<StoreBackend>(std::make_unique<ScriptedBackend>([&](StoreBatch& batch) {
      if (is_down) throw std::runtime_error("not now");
      inner->put(batch);
    }));
  }).value();
  TieredCache cache(kPages);
  StorageOptions o = storage();
  o.backend = flaky;
  cache->attach_storage(o).value();
  cache.put(tokens(16));
  EXPECT_EQ(cache.settle().failures, 1u);
  EXPECT_EQ(cache->tier_stats().failed_puts, 4u);
  cache.put(tokens(16));
  EXPECT_EQ(cache.settle().failures, 1u) << "still down";
  is_down = false;
  cache.put(tokens(16));
  EXPECT_EQ(cache.settle().stored, 1u);
  EXPECT_EQ(num_stored(), 4u);
  cache.put(tokens(16));
  EXPECT_EQ(cache.settle().stored, 0u) << "it is there";
  EXPECT_TRUE(cache.closes());
}

TEST_F(StorageTierTest, AnotherCacheFindsItThere) {
  store(tokens(16));
  TieredCache cache(kPages);
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(18)), 16u);
  EXPECT_EQ(cache.match(tokens(18)).host_length, 16u);
  EXPECT_EQ(cache.load(tokens(18)).size(), 16u);
  EXPECT_EQ(cache->tier_stats().prefetched_tokens, 16u);
}

TEST_F(StorageTierTest, OnlyWhatTheTreeLacksIsFetched) {
  store(tokens(16));
  TieredCache cache(kPages);
  attach(cache);
  cache.put(tokens(8));
  EXPECT_EQ(fetch(cache, tokens(16)), 8u);
  EXPECT_EQ(cache->storage_stats().read_pages, 2u);
  EXPECT_EQ(cache.match(tokens(16)).length, 8u);
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
}

TEST_F(StorageTierTest, NamespacesModelsAndRanksDoNotMeet) {
  store(tokens(8), kPages, "tenant");
  const auto found = [&](StorageOptions o, std::string_view ns) {
    TieredCache cache(kPages);
    o.prefetch_policy = "wait_complete";
    cache->attach_storage(o).value();
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

TEST_F(StorageTierTest, AnotherGeometryFindsNothing) {
  store(tokens(8));
  TieredCache cache({.cache = {.page_size = 4}, .layout = HostLayout::layer_first});
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(8)), 0u);
}

TEST_F(StorageTierTest, ADamagedPageEndsWhatIsKept) {
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
  EXPECT_EQ(fetch(cache, tokens(16)), 8u) << "up to the damaged page";
  EXPECT_EQ(cache->storage_stats().damaged_pages, 1u);
  EXPECT_EQ(cache.load(tokens(16)).size(), 8u);
}

TEST_F(StorageTierTest, ThresholdAndLimitOfOccupiedTokens) {
  TieredCache cache(kPages);
  StorageOptions o = storage(R"({"prefetch_threshold": 8, "prefetch_max_tokens": 16})");
  cache->attach_storage(o).value();
  EXPECT_EQ(cache->prefetch({tokens(7)})->outcome, PrefetchOutcome::below_threshold);
  EXPECT_EQ(cache->prefetch({tokens(3)})->outcome, PrefetchOutcome::nothing_to_fetch);
  const Prefetch first = *cache->prefetch({tokens(12)});
  EXPECT_EQ(first.outcome, PrefetchOutcome::started);
  EXPECT_EQ(cache->prefetch({tokens(8, 100)})->outcome, PrefetchOutcome::rate_limited);
  cache->abort_prefetch(first.id);
  cache.settle();
  EXPECT_EQ(cache->prefetch({tokens(8, 100)})->outcome, PrefetchOutcome::started);
}

TEST_F(StorageTierTest, AnAbortedPrefetchReleasesEverything) {
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

TEST_F(StorageTierTest, WhatTheTreeGotMeanwhileIsNotDoubled) {
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

TEST_F(StorageTierTest, WindowsAndSnapshotsAreStoredAndFetched) {
  const TierSetup setup{.cache = {.page_size = 2, .window = 4, .state = StateOptions{}}};
  const Tokens key = tokens(12);
  store(key, setup);
  EXPECT_EQ(num_stored(), 6u + 6u + 1u);
  TieredCache cache(setup);
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(16)), 12u) << "there is no snapshot further on";
  EXPECT_EQ(cache.match(tokens(16)).host_length, 12u);
  EXPECT_EQ(cache->storage_stats().read_pages, 6u + 2u + 1u) << "of the window, what is needed";
  EXPECT_EQ(cache.load(key).size(), 12u);
  cache.settle();
  EXPECT_TRUE(cache.holds_state(key, cache.match(key)));
}

TEST_F(StorageTierTest, BigramKeysAreStoredAndFetched) {
  const TierSetup setup{.cache = {.page_size = 4, .bigram = true}};
  store(tokens(13), setup);
  TieredCache cache(setup);
  attach(cache);
  EXPECT_EQ(fetch(cache, tokens(13)), 12u);
  EXPECT_EQ(cache.load(tokens(13)).size(), 12u);
}

// A prefetch whose reads have reached the store and hang there.
class HangingReads : public StorageTierTest {
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

TEST_F(StorageTierTest, AStoreThatDoesNotAnswerInTimeHasNothing) {
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
  EXPECT_EQ(cache->tier_stats().revoked_prefetches, 1u);
  questions.open();
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST_F(StorageTierTest, TheCostGateTurnsDownWhatIsFasterToCompute) {
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
  cache->report_prefill(16, 0.9).value();
  EXPECT_EQ(fetch_slowly(100), 0u);
  EXPECT_EQ(cache->tier_stats().gated_prefetches, 1u);
  EXPECT_NEAR(cache->tier_stats().fetch_bytes_per_second,
              16.0 / 40 * static_cast<double>(cache.full.device->geometry().token_bytes()), 1e-9);
  for (int i = 0; i < 100; ++i) cache->report_prefill(16, 400).value();
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
  cache->evict_host(64);
  EXPECT_EQ(cache.match(tokens(8)).host_length, 8u);
  reads.open();
  while (!cache->prefetch_ready(id)) (void)cache->poll();
  EXPECT_EQ(cache->end_prefetch(id), 8u);
  cache.settle();
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
}

// ---- Attaching ---------------------------------------------------------------------------------

TEST_F(StorageTierTest, TheSameStoreAgainChangesPoliciesOnly) {
  TieredCache cache;
  attach(cache);
  StorageOptions again = storage("not even JSON");
  again.write_policy = "write_back";
  EXPECT_NE(cache->attach_storage(again)->find("policies updated"), std::string::npos);
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->host_sizes().total, 0u) << "write_back now";
}

TEST_F(StorageTierTest, AnotherStoreIsRefusedUntilDetached) {
  TieredCache cache;
  attach(cache);
  StorageOptions other = storage();
  other.backend = "memory";
  EXPECT_TRUE(fails(cache->attach_storage(other), ErrorCode::in_use, "detach it before"));
  EXPECT_NE(cache->detach_storage()->find("is detached"), std::string::npos);
  EXPECT_EQ(*cache->detach_storage(), "no store is attached");
  other.options = {};
  EXPECT_TRUE(cache->attach_storage(other).ok());
}

TEST_F(StorageTierTest, BadOptionsAreRefusedAndNothingChanges) {
  TieredCache cache;
  const auto refused = [&](StorageOptions o, ErrorCode code, std::string_view part) {
    o.write_policy = o.write_policy.value_or("write_back");
    const bool right = fails(cache->attach_storage(o), code, part);
    return right && !cache->has_storage();
  };
  StorageOptions o = storage();
  o.prefetch_policy = "maybe";
  EXPECT_TRUE(refused(o, ErrorCode::invalid_argument, "expected best_effort, wait_complete"));
  o = storage();
  o.write_policy = "maybe";
  EXPECT_TRUE(refused(o, ErrorCode::invalid_argument, "expected write_through"));
  EXPECT_TRUE(refused(storage(R"({"prefetch_threshold": "many"})"), ErrorCode::invalid_argument,
                      "prefetch_threshold must be"));
  EXPECT_TRUE(refused(storage(R"({"prefetch_timeout_base": -1})"), ErrorCode::invalid_argument,
                      "expected seconds"));
  EXPECT_TRUE(refused(storage(R"({"threshold": 1})"), ErrorCode::invalid_argument, "threshold"));
  EXPECT_TRUE(refused(storage("{"), ErrorCode::invalid_argument, ""));
  o = storage();
  o.backend = "nowhere";
  EXPECT_TRUE(refused(o, ErrorCode::not_found, "nowhere"));
  o = storage();
  o.scope.tp_rank = 3;
  EXPECT_TRUE(refused(o, ErrorCode::invalid_argument, "tensor rank 3 of 1"));
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->host_sizes().total, 8u) << "still write_through";
  TestCache plain;
  EXPECT_TRUE(fails(plain->attach_storage(storage()), ErrorCode::unavailable, "no host tier"));
}

TEST_F(StorageTierTest, HashesAreBackfilledWhenAStoreComesLater) {
  TieredCache cache(kPages);
  cache.put(tokens(8));
  cache.put(tokens(8), "tenant");
  cache.settle();
  attach(cache);
  EXPECT_TRUE(cache.closes());
  cache.put(tokens(16));
  cache.put(tokens(16), "tenant");
  cache.settle();
  EXPECT_EQ(num_stored(), 8u) << "what is new, and what was hit on the way";
  TieredCache reader(kPages);
  attach(reader);
  reader.put(tokens(8));
  EXPECT_EQ(fetch(reader, tokens(16)), 8u) << "the chain goes through what was there before";
  EXPECT_EQ(fetch(reader, tokens(16), "tenant"), 16u);
}

TEST_F(StorageTierTest, DetachReleasesWhatIsUnderWay) {
  TieredCache cache(kPages);
  attach(cache);
  cache.put(tokens(16));
  (void)cache->prefetch({tokens(32, 500)});
  cache->detach_storage().value();
  EXPECT_FALSE(cache->has_storage());
  cache.settle();
  EXPECT_TRUE(cache.closes());
  EXPECT_EQ(cache->prefetch({tokens(32, 500)})->outcome, PrefetchOutcome::no_store);
}

TEST_F(StorageTierTest, ClearEmptiesTheStoreAndKeepsTheTree) {
  TieredCache cache(kPages);
  EXPECT_TRUE(fails(cache->clear_storage(), ErrorCode::unavailable, "no store"));
  attach(cache);
  cache.put(tokens(16));
  cache.settle();
  EXPECT_TRUE(cache->clear_storage().ok());
  EXPECT_EQ(num_stored(), 0u);
  EXPECT_EQ(cache.match(tokens(16)).length, 16u);
}

}  // namespace
}  // namespace pando::testing
