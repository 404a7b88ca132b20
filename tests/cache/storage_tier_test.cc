// SPDX-License-Identifier: Apache-2.0
// A cache with a store behind its host tier: what is put there, attaching and detaching. What comes
// back is in prefetch_test.cc.
#include <gtest/gtest.h>

#include "pando/inspect.h"
#include "support/shared_store.h"

namespace pando::testing {
namespace {

TEST_F(StorageTierTest, WhatHasAHostCopyGoesToTheStore) {
  TieredCache cache(kPages);
  attach(cache);
  cache.put(tokens(16));
  const PollResult result = cache.settle();
  EXPECT_EQ(result.stored, 1u);
  EXPECT_EQ(num_stored(), 4u);
  EXPECT_EQ(cache->tiers().stats().stored_tokens, 16u);
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
  cache->tiers().attach_storage(o).value();
  cache.put(tokens(16));
  EXPECT_EQ(cache.settle().failures, 1u);
  EXPECT_EQ(cache->tiers().stats().failed_puts, 4u);
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

TEST_F(StorageTierTest, ASlowStoreLeavesTheHostToTheCache) {
  Gate puts;
  const std::string slow = name + "_slow";
  register_store(slow, [&](const Config&) -> Result<std::unique_ptr<StoreBackend>> {
    return std::unique_ptr<StoreBackend>(std::make_unique<ScriptedBackend>([&](StoreBatch& batch) {
      puts.pass();
      inner->put(batch);
    }));
  }).value();
  TieredCache cache(kPages);  // 32 host pages
  StorageOptions o = storage();
  o.backend = slow;
  cache->tiers().attach_storage(o).value();
  puts.shut();
  for (Token i = 0; i < 16; ++i) {
    cache.put(tokens(16, 100 * i));
    while (cache->tiers().under_way().backups > 0) (void)cache->poll();
    cache->evict(SIZE_MAX);
  }
  EXPECT_EQ(cache->tiers().stats().refused_backups, 0u);
  EXPECT_EQ(cache->inspect().host_sizes().protected_tokens, 32u) << "a quarter";
  EXPECT_EQ(cache->tiers().under_way().puts, 16u)
      << "two are put, and the others wait, gone or not";
  EXPECT_TRUE(cache.closes());
  puts.open();
  cache.settle();
  EXPECT_EQ(num_stored(), 32u) << "what the host has";
  EXPECT_EQ(cache->inspect().host_sizes().protected_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

// ---- Attaching ---------------------------------------------------------------------------------

TEST_F(StorageTierTest, TheSameStoreAgainChangesPoliciesOnly) {
  TieredCache cache;
  attach(cache);
  StorageOptions again = storage("not even JSON");
  again.write_policy = "write_back";
  EXPECT_NE(cache->tiers().attach_storage(again)->find("policies updated"), std::string::npos);
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes().total, 0u) << "write_back now";
}

TEST_F(StorageTierTest, AnotherStoreIsRefusedUntilDetached) {
  TieredCache cache;
  attach(cache);
  StorageOptions other = storage();
  other.backend = "memory";
  EXPECT_TRUE(fails(cache->tiers().attach_storage(other), ErrorCode::in_use, "detach it before"));
  EXPECT_NE(cache->tiers().detach_storage()->find("is detached"), std::string::npos);
  EXPECT_EQ(*cache->tiers().detach_storage(), "no store is attached");
  other.options = {};
  EXPECT_TRUE(cache->tiers().attach_storage(other).ok());
}

TEST_F(StorageTierTest, BadOptionsAreRefusedAndNothingChanges) {
  TieredCache cache;
  const auto refused = [&](StorageOptions o, ErrorCode code, std::string_view part) {
    o.write_policy = o.write_policy.value_or("write_back");
    const bool right = fails(cache->tiers().attach_storage(o), code, part);
    return right && !cache->tiers().has_storage();
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
  EXPECT_EQ(cache->inspect().host_sizes().total, 8u) << "still write_through";
  TestCache plain;
  EXPECT_TRUE(
      fails(plain->tiers().attach_storage(storage()), ErrorCode::unavailable, "no host tier"));
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
  cache->tiers().detach_storage().value();
  EXPECT_FALSE(cache->tiers().has_storage());
  cache.settle();
  EXPECT_TRUE(cache.closes());
  EXPECT_EQ(cache->prefetch({tokens(32, 500)})->outcome, PrefetchOutcome::no_store);
}

TEST_F(StorageTierTest, ClearEmptiesTheStoreAndKeepsTheTree) {
  TieredCache cache(kPages);
  EXPECT_TRUE(fails(cache->tiers().clear_storage(), ErrorCode::unavailable, "no store"));
  attach(cache);
  cache.put(tokens(16));
  cache.settle();
  EXPECT_TRUE(cache->tiers().clear_storage().ok());
  EXPECT_EQ(num_stored(), 0u);
  EXPECT_EQ(cache.match(tokens(16)).length, 16u);
}

}  // namespace
}  // namespace pando::testing
