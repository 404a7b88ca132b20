// SPDX-License-Identifier: Apache-2.0
// Why a key is, or is not, in the cache: every reason, with and without a memory of evictions.
#include "pando/inspect.h"

#include <gtest/gtest.h>

#include "pando/paths.h"
#include "support/hybrid_fixture.h"
#include "support/step_copier.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

CacheOptions remembering() {
  CacheOptions options;
  options.remember_evicted = 1000;
  return options;
}

void expect_part(const KeyPart& part, std::size_t from, std::size_t to, Finding finding) {
  EXPECT_EQ(part.from, from);
  EXPECT_EQ(part.to, to);
  EXPECT_EQ(part.finding, finding) << to_string(part.finding);
}

TEST(Explain, PartsCoverTheKeyInOrder) {
  TieredCache cache({.page_size = 4, .cache = remembering()});
  cache.put(tokens(16));
  Tokens key = tokens(16);
  for (int i = 0; i < 6; ++i) key.push_back(900 + i);
  const Explanation told = *cache->inspect().explain({key});
  ASSERT_EQ(told.parts.size(), 3u);
  expect_part(told.parts[0], 0, 16, Finding::on_device);
  expect_part(told.parts[1], 16, 20, Finding::never_seen);
  expect_part(told.parts[2], 20, 22, Finding::shorter_than_a_page);
  EXPECT_FALSE(told.forgetful);
}

TEST(Explain, ExplainingChangesNothing) {
  TieredCache cache({.page_size = 4, .cache = remembering()});
  cache.put(tokens(16));
  const std::uint64_t before = cache->inspect().digest();
  Tokens key = tokens(8);
  key.push_back(7);
  EXPECT_TRUE(cache->inspect().explain({key}).ok());
  EXPECT_EQ(cache->inspect().digest(), before);
}

TEST(Explain, AnEvictionIsToldWithItsPressureAndItsTime) {
  TieredCache cache(
      {.page_size = 4, .cache = remembering(), .device_tokens = 32, .host_tokens = 8});
  cache.put(tokens(16));
  cache.put(tokens(16, 300));
  cache.settle();
  cache.put(tokens(16, 600));  // the first has to go, but for what the host has room for
  cache.settle();
  const Explanation told = *cache->inspect().explain({tokens(16)});
  const KeyPart& last = told.parts.back();
  EXPECT_EQ(last.to, 16u);
  ASSERT_EQ(last.finding, Finding::evicted);
  EXPECT_EQ(last.eviction->pressure, Pressure::allocate);
  EXPECT_EQ(last.eviction->pressure_tokens, 16u);
  EXPECT_EQ(last.eviction->at_match, 3u);
  EXPECT_EQ(told.matches, 3u);
}

TEST(Explain, WhatTheEngineEvictedSaysSo) {
  TieredCache cache({.page_size = 4,
                     .cache = remembering(),
                     .write_policy = WritePolicy::write_through_selective});
  cache.put(tokens(16));
  cache->evict(8);
  const Explanation told = *cache->inspect().explain({tokens(16)});
  ASSERT_EQ(told.parts.size(), 2u);
  expect_part(told.parts[0], 0, 8, Finding::on_device);
  expect_part(told.parts[1], 8, 16, Finding::evicted);
  EXPECT_EQ(told.parts[1].eviction->pressure, Pressure::evict_call);
  EXPECT_EQ(told.parts[1].eviction->from, Tier::device);
}

TEST(Explain, TheHostAndWhatLeftIt) {
  TieredCache cache({.page_size = 4, .cache = remembering()});
  cache.put(tokens(16));
  cache.settle();
  cache->evict(16);
  expect_part(cache->inspect().explain({tokens(16)})->parts[0], 0, 16, Finding::on_host);
  cache->tiers().evict_host(8);
  const Explanation told = *cache->inspect().explain({tokens(16)});
  ASSERT_EQ(told.parts.size(), 2u);
  expect_part(told.parts[0], 0, 8, Finding::on_host);
  expect_part(told.parts[1], 8, 16, Finding::evicted);
  EXPECT_EQ(told.parts[1].eviction->from, Tier::host);
}

TEST(Explain, AFailedLoadIsAReason) {
  StepCopier copier;
  TieredCache cache({.page_size = 4, .cache = remembering(), .copier = &copier});
  cache.put(tokens(8));
  copier.run_all();
  cache->poll();
  cache->evict(8);
  {
    Lease lease = *cache->paths().lock(cache.match(tokens(8)));
    Slots at(8);
    ASSERT_EQ(cache->paths().load_back(lease, at)->tokens, 8u);
    copier.step(1, /*succeed=*/false);
    cache->poll();
  }
  const Explanation told = *cache->inspect().explain({tokens(8)});
  ASSERT_EQ(told.parts.size(), 1u);
  EXPECT_EQ(told.parts[0].finding, Finding::evicted);
  EXPECT_EQ(told.parts[0].eviction->pressure, Pressure::failed_load);
}

TEST(Explain, AnotherNamespaceHasIt) {
  TieredCache cache({.page_size = 4, .cache = remembering()});
  cache.put(tokens(8), "alice");
  const Explanation told = *cache->inspect().explain({tokens(12), "bob"});
  ASSERT_EQ(told.parts.size(), 2u);
  expect_part(told.parts[0], 0, 8, Finding::other_namespace);
  EXPECT_EQ(told.parts[0].ns, "alice");
  expect_part(told.parts[1], 8, 12, Finding::never_seen);
}

TEST(Explain, AWindowThatHasGone) {
  HybridCache cache(1, {.window = 4, .remember_evicted = 1000});
  cache.put(tokens(8));
  cache.put_rest(tokens(8) + tokens(2, 50));
  EXPECT_EQ(cache.evict_window(8), 8u);  // of the inner node: its tokens stay
  const Explanation told = *cache->inspect().explain({tokens(8)});
  ASSERT_EQ(told.parts.size(), 1u);
  expect_part(told.parts[0], 0, 8, Finding::window_gone);
}

TEST(Explain, ASnapshotThatIsMissing) {
  TierSetup setup{.cache = remembering()};
  setup.cache.state = StateOptions{};
  TieredCache cache(setup);
  cache.put(tokens(16));
  const Explanation told = *cache->inspect().explain({tokens(12)});
  ASSERT_EQ(told.parts.size(), 1u);
  expect_part(told.parts[0], 0, 12, Finding::no_snapshot);
}

TEST(Explain, WithoutAMemoryWhatWentWasNeverSeen) {
  TieredCache cache({.page_size = 4, .write_policy = WritePolicy::write_through_selective});
  cache.put(tokens(8));
  cache->evict(8);
  EXPECT_EQ(cache->inspect().explain({tokens(8)})->parts[0].finding, Finding::never_seen);
}

TEST(Explain, AFullMemoryForgetsTheOldestAndSaysSo) {
  CacheOptions options = remembering();
  options.remember_evicted = 2;
  TieredCache cache(
      {.page_size = 4, .cache = options, .write_policy = WritePolicy::write_through_selective});
  cache.put(tokens(8));
  cache->evict(8);
  EXPECT_FALSE(cache->inspect().explain({tokens(8)})->forgetful);
  cache.put(tokens(8, 300));
  cache->evict(8);
  EXPECT_EQ(cache->inspect().explain({tokens(8)})->parts[0].finding, Finding::never_seen);
  EXPECT_EQ(cache->inspect().explain({tokens(8, 300)})->parts[0].finding, Finding::evicted);
  EXPECT_TRUE(cache->inspect().explain({tokens(8)})->forgetful);
}

TEST(Explain, ResetForgets) {
  TieredCache cache({.page_size = 4,
                     .cache = remembering(),
                     .write_policy = WritePolicy::write_through_selective});
  cache.put(tokens(8));
  cache->evict(8);
  ASSERT_TRUE(cache->reset().ok());
  EXPECT_EQ(cache->inspect().explain({tokens(8)})->parts[0].finding, Finding::never_seen);
}

TEST(Explain, NegativeTokensAreRefused) {
  TieredCache cache({.page_size = 4, .cache = remembering()});
  const Tokens key{1, -2, 3, 4};
  EXPECT_EQ(cache->inspect().explain({key}).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace pando::testing
