// SPDX-License-Identifier: Apache-2.0
// What comes back from the host: by load_back, or because it was computed anew; tokens, windows and
// snapshots. Bytes are real: see tier_fixture.h.
#include <gtest/gtest.h>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/step_copier.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

// ---- Tokens ------------------------------------------------------------------------------------

TEST(HostTier, LoadBackBringsTheBytesAndMovesTheLease) {
  TieredCache cache;
  const Tokens key = tokens(16);
  cache.put(tokens(8));
  cache.put(key);
  cache.settle();
  cache->evict(12);
  Slots at(16);
  const Match match = *cache->paths().match({key}, at);
  EXPECT_EQ(match.length, 4u);
  EXPECT_EQ(match.host_length, 12u);
  Lease lease = *cache->paths().lock(match);
  const LoadBack loaded = *cache->paths().load_back(lease, at);
  EXPECT_EQ(loaded.outcome, LoadOutcome::loaded);
  EXPECT_EQ(loaded.tokens, 12u);
  EXPECT_EQ(lease.node(), match.host_node);
  EXPECT_FALSE(lease.host_node());
  EXPECT_EQ(cache->evict(16).tokens, 0u) << "held by the lease";
  cache.open_gates();
  EXPECT_TRUE(cache.holds(key, at, 16));
  EXPECT_EQ(cache.settle().loads, 1u);
  EXPECT_EQ(cache->tiers().stats().loaded_tokens, 12u);
  EXPECT_TRUE(cache.closes());
  lease.release();
  EXPECT_EQ(cache.match(key).length, 16u);
}

TEST(HostTier, LoadBackEvictsOthersButNotItsOwnPath) {
  TieredCache cache({.device_tokens = 16});
  cache.put(tokens(8));
  cache.put(tokens(16));
  cache.settle();
  cache->evict(8);
  cache.put(tokens(8, 300));  // fills the device
  cache.settle();
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
  EXPECT_EQ(cache.match(tokens(8, 300)).host_length, 8u);
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, AFailedLoadIsForgottenWhereverItsNodeWasSplitMeanwhile) {
  StepCopier copier;
  TieredCache cache({.copier = &copier});
  const Tokens key = tokens(8);
  cache.put(key);
  copier.run_all();
  cache->poll();
  cache->evict(8);
  Lease lease = *cache->paths().lock(cache.match(key));
  Slots at(8);
  ASSERT_EQ(cache->paths().load_back(lease, at)->tokens, 8u);
  const Tokens other{key[0], key[1], key[2], 999};
  EXPECT_EQ(cache.match(other).length, 3u) << "splits the node whose pages are on their way";
  copier.step(1, /*succeed=*/false);
  EXPECT_EQ(cache->poll().failures, 1u);
  EXPECT_EQ(cache.match(key).length, 0u);
  EXPECT_EQ(cache.match(other).length, 0u);
  EXPECT_TRUE(cache.closes());
  lease.release();
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, LoadBackIsAllOrNothing) {
  TieredCache cache({.device_tokens = 16});
  cache.put(tokens(16));
  cache.settle();
  cache->evict(16);
  cache.put(tokens(8, 300));
  Lease in_use = *cache->paths().lock(cache.match(tokens(8, 300)));
  cache.settle();
  Slots at(16);
  Lease lease = *cache->paths().lock(*cache->paths().match({tokens(16)}, at));
  const LoadBack refused = *cache->paths().load_back(lease, at);
  EXPECT_EQ(refused.outcome, LoadOutcome::no_room);
  EXPECT_EQ(refused.tokens, 0u);
  EXPECT_EQ(cache->inspect().sizes().total, 8u);
  EXPECT_TRUE(lease.host_node()) << "may be tried again";
  EXPECT_TRUE(cache.closes());
  in_use.release();
  EXPECT_EQ(cache->paths().load_back(lease, at)->outcome, LoadOutcome::loaded);
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, AnEngineThatRefusesIsAskedOnceMoreAfterEvictingWhatIsWanted) {
  int num_refusals = 0;
  bool refuses = true;
  TieredCache cache({.engine_refuses = [&] { return refuses && ++num_refusals > 0; }});
  cache.put(tokens(8));
  cache.settle();
  cache->evict(8);
  cache.put(tokens(32, 300));
  cache.settle();
  Slots at(8);
  Lease lease = *cache->paths().lock(*cache->paths().match({tokens(8)}, at));
  EXPECT_EQ(cache->paths().load_back(lease, at)->outcome, LoadOutcome::no_room);
  EXPECT_EQ(num_refusals, 2);
  EXPECT_EQ(cache->inspect().sizes().total, 24u) << "8 were evicted";
  refuses = false;
  EXPECT_EQ(cache->paths().load_back(lease, at)->outcome, LoadOutcome::loaded);
  cache.settle();
  EXPECT_EQ(cache->inspect().sizes().total, 32u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, LoadBackHasAThresholdAndAQuota) {
  TieredCache cache({.load_back_threshold = 10});
  cache.put(tokens(16));
  cache.settle();
  cache->evict(9);
  Slots at(16);
  Lease lease = *cache->paths().lock(*cache->paths().match({tokens(16)}, at));
  EXPECT_EQ(cache->paths().load_back(lease, at)->outcome, LoadOutcome::below_threshold);
  lease.release();
  cache->evict(1);
  lease = *cache->paths().lock(*cache->paths().match({tokens(16)}, at));
  EXPECT_EQ(cache->paths().load_back(lease, at, {.quota_tokens = 9})->outcome,
            LoadOutcome::over_quota);
  EXPECT_EQ(cache->paths().load_back(lease, at, {.quota_tokens = 10})->outcome,
            LoadOutcome::loaded);
  EXPECT_EQ(cache->paths().load_back(lease, at)->outcome, LoadOutcome::nothing_to_load);
}

TEST(HostTier, ARequestLoadsBack) {
  TieredCache cache;
  cache.put(tokens(12));
  cache.settle();
  cache->evict(12);
  Running running(tokens(13));
  EXPECT_EQ(running.start(cache)->host_length, 12u);
  EXPECT_EQ(running.request.cached_length(), 0u);
  EXPECT_EQ(cache->load_back(running.request)->tokens, 12u);
  EXPECT_EQ(running.request.cached_length(), 12u);
  EXPECT_TRUE(running.allocate(cache).ok());
  cache.compute(running.prompt, running.slots(), 12, 13);
  cache.open_gates();
  EXPECT_TRUE(cache.holds(running.prompt, running.slots(), 13));
  EXPECT_TRUE(running.finish(cache).ok());
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, AnInsertPutsItsSlotsOverAHostOnlyNode) {
  TieredCache cache;
  cache.put(tokens(12));
  cache.settle();
  cache->evict(8);
  const Inserted inserted = cache.put(tokens(12), {}, /*load=*/false);
  EXPECT_EQ(inserted.existing, 12u);
  EXPECT_EQ(inserted.freed, 0u);
  EXPECT_EQ(cache->tiers().stats().recomputed_tokens, 8u);
  EXPECT_EQ(cache.match(tokens(12)).length, 12u);
  EXPECT_EQ(cache.full.host->count(PageState::synced), 12u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, AnInsertOverPartOfAHostOnlyNodeSplitsIt) {
  TieredCache cache;
  cache.put(tokens(12));
  cache.settle();
  cache->evict(12);
  cache.put(tokens(5) + tokens(3, 700), {}, /*load=*/false);
  EXPECT_EQ(cache.match(tokens(12)).length, 5u);
  EXPECT_EQ(cache.match(tokens(12)).host_length, 7u);
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

// ---- Windows and snapshots ---------------------------------------------------------------------

TEST(HostTier, AWindowComesBackWithItsTokens) {
  TieredCache cache({.page_size = 2, .cache = {.window = 8}});
  cache.put(tokens(24));
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes(ComponentKind::window).total, 24u);
  cache->evict(24);
  EXPECT_EQ(cache.match(tokens(24)).host_length, 24u);
  EXPECT_EQ(cache.load(tokens(24)).size(), 24u);
  EXPECT_EQ(cache->inspect().sizes(ComponentKind::window).total, 8u)
      << "as much as the next token sees";
  cache.settle();
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, OfAWindowSmallerThanAPageOnePageComesBack) {
  for (const std::size_t window : {1, 3}) {
    TieredCache cache({.page_size = 4, .cache = {.window = window}});
    cache.put(tokens(24));
    cache.settle();
    cache->evict(24);
    EXPECT_EQ(cache.match(tokens(24)).host_length, 24u);
    EXPECT_EQ(cache.load(tokens(24)).size(), 24u);
    EXPECT_EQ(cache->inspect().sizes(ComponentKind::window).total, 4u);
    cache.settle();
    EXPECT_EQ(cache.match(tokens(24)).length, 24u);
    EXPECT_EQ(cache.match(tokens(20)).length, 0u);
    EXPECT_EQ(cache.match(tokens(20)).host_length, 20u);
    EXPECT_TRUE(cache.closes());
  }
}

TEST(HostTier, AWindowAloneIsLoadedWhereTheTokensAreOnTheDevice) {
  TieredCache cache({.page_size = 2, .cache = {.window = 8}});
  cache.put(tokens(12));
  cache.put(tokens(16));
  cache.settle();
  Lease lease = *cache->paths().lock(cache.match(tokens(16)));
  lease.release_window().value();
  cache->evict({.window_tokens = 16});
  EXPECT_EQ(cache.match(tokens(16)).length, 0u);
  EXPECT_EQ(cache.match(tokens(16)).host_length, 16u);
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
  cache.settle();
  lease.release();
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, WhoseWindowTheHostHasNoRoomForCannotBeMatchedThere) {
  TieredCache cache({.page_size = 2, .cache = {.window = 4}, .host_window_tokens = 8});
  cache.put(tokens(8, 100));
  cache.settle();
  cache.put(tokens(8, 200));
  cache.settle();
  cache->evict(16);
  EXPECT_EQ(cache.match(tokens(8, 100)).host_length, 0u);
  EXPECT_EQ(cache.match(tokens(8, 200)).host_length, 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, ASnapshotComesBackWithItsTokens) {
  TieredCache cache({.page_size = 2, .cache = {.state = StateOptions{}}});
  const Tokens key = tokens(12);
  cache.put(key);
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes(ComponentKind::state).total, 1u);
  cache->evict(12);
  EXPECT_EQ(cache.match(key).host_length, 12u);
  EXPECT_EQ(cache.load(key).size(), 12u);
  cache.settle();
  EXPECT_TRUE(cache.holds_state(key, cache.match(key)));
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, ASnapshotAloneIsLoadedWhereTheTokensAreOnTheDevice) {
  TieredCache cache({.page_size = 2, .cache = {.state = StateOptions{}}});
  const Tokens key = tokens(8);
  cache.put(key);
  cache.put(tokens(16));
  cache.settle();
  cache->evict({.snapshots = 1});
  EXPECT_EQ(cache.match(key).length, 0u);
  EXPECT_EQ(cache.match(key).host_length, 8u);
  EXPECT_EQ(cache.load(key).size(), 8u);
  cache.settle();
  EXPECT_TRUE(cache.holds_state(key, cache.match(key)));
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, WindowAndStateTogetherSurviveWriteBack) {
  TieredCache cache({.page_size = 2,
                     .cache = {.window = 4, .state = StateOptions{}},
                     .write_policy = WritePolicy::write_back});
  const Tokens key = tokens(12);
  cache.put(tokens(8));
  cache.put(key);
  cache->evict(12);
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
  EXPECT_EQ(cache.load(key).size(), 12u);
  cache.settle();
  EXPECT_TRUE(cache.holds_state(key, cache.match(key)));
  EXPECT_TRUE(cache.closes());
}

}  // namespace
}  // namespace pando::testing
