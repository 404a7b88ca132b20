// SPDX-License-Identifier: Apache-2.0
// The state component: where snapshots are, which of them stay, what a lease holds, eviction; and
// all three components together.
#include <gtest/gtest.h>

#include "pando/paths.h"
#include "support/hybrid_fixture.h"

namespace pando::testing {
namespace {

HybridCache state_cache(StateOptions state = {}, std::size_t page_size = 1) {
  return HybridCache(page_size, {.state = state});
}

// ---- Match -------------------------------------------------------------------------------------

TEST(StateMatch, EndsWhereASnapshotIs) {
  HybridCache cache = state_cache();
  const StateSlot snapshot = cache.take_state();
  cache.put(tokens(8), {.snapshot = snapshot});
  const Match whole = cache.match(tokens(10));
  EXPECT_EQ(whole.length, 8u);
  EXPECT_EQ(whole.snapshot, snapshot);
  const Match part = cache.match(tokens(6));
  EXPECT_EQ(part.length, 0u);
  EXPECT_FALSE(part.snapshot);
  EXPECT_EQ(part.end, MatchEnd::no_snapshot);
  EXPECT_TRUE(cache.closes());
}

TEST(StateMatch, TellsTheBranchingPointWhereASnapshotWouldHelp) {
  HybridCache cache = state_cache();
  cache.put(tokens(8) + tokens(4, 100));
  const Tokens other = tokens(8) + tokens(4, 200);
  const Match match = cache.match(other);
  EXPECT_EQ(match.length, 0u);
  EXPECT_EQ(match.agreed_length, 8u);

  cache.put(tokens(8));  // the engine took one on its way, at the branching point
  cache.put_rest(other);
  EXPECT_EQ(cache.match(tokens(8) + tokens(4, 300)).length, 8u);
  EXPECT_EQ(cache.match(tokens(8) + tokens(4, 100)).length, 12u);
  EXPECT_TRUE(cache.closes());
}

TEST(StateMatch, OffersNoRowsInsideAPage) {
  HybridCache cache = state_cache({}, 16);
  cache.put(tokens(32));
  EXPECT_EQ(cache.match(tokens(40)).length, 32u);
  EXPECT_EQ(cache.match(tokens(40)).partial_length, 0u);
  EXPECT_EQ(cache.match(tokens(8)).partial_length, 0u);
}

TEST(StateMatch, KeepsNamespacesAndPairsApart) {
  HybridCache cache(1, {.bigram = true, .state = StateOptions{}});
  cache.put(tokens(9), {}, "a");
  EXPECT_EQ(cache.match(tokens(9), "a").length, 8u);
  EXPECT_EQ(cache.match(tokens(9), "b").length, 0u);
}

// ---- Which snapshots stay ----------------------------------------------------------------------

TEST(StateInsert, GivesBackASecondSnapshotOfTheSamePlace) {
  HybridCache cache = state_cache();
  const StateSlot first = cache.take_state();
  cache.put(tokens(8), {.snapshot = first});
  cache.put(tokens(8));
  EXPECT_EQ(cache.match(tokens(8)).snapshot, first);
  EXPECT_EQ(cache.state_sizes().total, 1u);
  EXPECT_TRUE(cache.closes());
}

// A conversation that grows by four tokens a turn.
void grow(HybridCache& cache, std::size_t turns) {
  for (std::size_t turn = 1; turn <= turns; ++turn) cache.put_rest(tokens(4 * turn));
}

std::vector<std::size_t> valid_ends(const HybridCache& cache, std::size_t max) {
  std::vector<std::size_t> ends;
  for (std::size_t n = 1; n <= max; ++n) {
    if (cache.probe(tokens(n)) == n) ends.push_back(n);
  }
  return ends;
}

TEST(StateInterval, ZeroKeepsEverySnapshot) {
  HybridCache cache = state_cache();
  grow(cache, 4);
  EXPECT_EQ(valid_ends(cache, 16), (std::vector<std::size_t>{4, 8, 12, 16}));
  EXPECT_TRUE(cache.closes());
}

TEST(StateInterval, OfNTokensKeepsThoseAtLeastNApartAndTheEnd) {
  HybridCache cache = state_cache({.snapshot_interval = 8});
  grow(cache, 5);
  EXPECT_EQ(valid_ends(cache, 20), (std::vector<std::size_t>{8, 16, 20}));
  EXPECT_TRUE(cache.closes());
}

TEST(StateInterval, OnlyEndsKeepsTheEnd) {
  HybridCache cache = state_cache({.snapshot_interval = StateOptions::kOnlyEnds});
  grow(cache, 4);
  EXPECT_EQ(valid_ends(cache, 16), (std::vector<std::size_t>{16}));
  EXPECT_TRUE(cache.closes());
}

TEST(StateInterval, ExemptsBranchingPoints) {
  HybridCache cache = state_cache({.snapshot_interval = StateOptions::kOnlyEnds});
  cache.put(tokens(4) + tokens(4, 100));
  cache.put(tokens(4));                        // at the branching point
  cache.put_rest(tokens(4) + tokens(4, 200));  // which branches now
  cache.put_rest(tokens(4) + tokens(8, 200));
  EXPECT_EQ(cache.probe(tokens(4)), 4u);
  EXPECT_EQ(cache.probe(tokens(4) + tokens(4, 200)), 4u);
  EXPECT_EQ(cache.probe(tokens(4) + tokens(8, 200)), 12u);
  EXPECT_TRUE(cache.closes());
}

TEST(StateCap, DropsTheShallowestOfAPathThatHasTooMany) {
  HybridCache cache = state_cache({.max_per_path = 2});
  grow(cache, 4);
  EXPECT_EQ(valid_ends(cache, 16), (std::vector<std::size_t>{12, 16}));
  EXPECT_TRUE(cache.closes());
}

TEST(StateCap, TakesBranchingPointsLast) {
  HybridCache cache = state_cache({.max_per_path = 2});
  cache.put(tokens(4));
  cache.put_rest(tokens(4) + tokens(4, 100));
  cache.put_rest(tokens(8));
  cache.put_rest(tokens(12));
  EXPECT_EQ(valid_ends(cache, 12), (std::vector<std::size_t>{4, 12}));
  EXPECT_TRUE(cache.closes());
}

TEST(StateCap, NeverDropsWhatALeaseHolds) {
  HybridCache cache = state_cache({.max_per_path = 1});
  cache.put(tokens(4));
  const Lease lease = cache.hold(tokens(4));
  cache.put_rest(tokens(8));
  EXPECT_EQ(valid_ends(cache, 8), (std::vector<std::size_t>{4, 8}));
  EXPECT_TRUE(cache.closes());
}

// ---- Leases ------------------------------------------------------------------------------------

TEST(StateLease, HoldsTheSnapshotOfOneNode) {
  HybridCache cache = state_cache();
  grow(cache, 3);
  const Lease lease = cache.hold(tokens(8));
  EXPECT_EQ(cache.state_sizes(), (Sizes{2, 1, 3}));
  EXPECT_EQ(cache.full_sizes(), (Sizes{4, 8, 12}));
  EXPECT_EQ(cache->evict({.snapshots = 3}).snapshots, 2u);
  EXPECT_EQ(cache.probe(tokens(8)), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(StateLease, CanLetGoOfTheSnapshotOnceItIsCopied) {
  HybridCache cache = state_cache();
  cache.put(tokens(4));
  Lease lease = cache.hold(tokens(4));
  ASSERT_TRUE(lease.release_snapshot().ok());
  EXPECT_TRUE(fails(lease.release_snapshot(), ErrorCode::invalid_argument, "released it already"));
  EXPECT_EQ(cache->evict({.snapshots = 1}).snapshots, 1u);
  EXPECT_EQ(cache.full_sizes().total, 4u);  // still read
  EXPECT_TRUE(cache.closes());
  lease.release();
  EXPECT_EQ(cache.full_sizes().total, 0u);  // nothing could match it
  EXPECT_TRUE(cache.closes());
}

TEST(StateLease, IsRefusedForAMatchWhoseSnapshotHasGone) {
  HybridCache cache = state_cache();
  grow(cache, 2);
  const Match match = cache.match(tokens(4));
  cache.match(tokens(8));
  ASSERT_EQ(cache->evict({.snapshots = 1}).snapshots, 1u);
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "evicted since"));
}

TEST(StateLease, StaysAtItsEndWhenTheNodeIsSplit) {
  HybridCache cache = state_cache();
  cache.put(tokens(8));
  Lease lease = cache.hold(tokens(8));
  cache.put(tokens(4));
  EXPECT_EQ(cache.state_sizes(), (Sizes{1, 1, 2}));
  lease.release();
  EXPECT_EQ(valid_ends(cache, 8), (std::vector<std::size_t>{4, 8}));
  EXPECT_TRUE(cache.closes());
}

// ---- Eviction ----------------------------------------------------------------------------------

TEST(StateEvict, LeavesATombstoneInsideAndTakesALeaf) {
  HybridCache cache = state_cache();
  grow(cache, 2);
  EvictResult gone = cache->evict({.snapshots = 1});  // shallow before deep
  EXPECT_EQ(gone.snapshots, 1u);
  EXPECT_EQ(gone.tokens, 0u);
  EXPECT_EQ(valid_ends(cache, 8), (std::vector<std::size_t>{8}));
  gone = cache->evict({.snapshots = 1});
  EXPECT_EQ(gone.snapshots, 1u);
  EXPECT_EQ(gone.tokens, 8u);  // the leaf, and the tombstone above
  EXPECT_TRUE(cache.closes());
}

TEST(StateEvict, OfTokensTakesWholeNodesWithTheirSnapshots) {
  HybridCache cache = state_cache();
  grow(cache, 2);
  const EvictResult gone = cache->evict(1);
  EXPECT_EQ(gone.tokens, 4u);
  EXPECT_EQ(gone.snapshots, 1u);
  EXPECT_EQ(valid_ends(cache, 8), (std::vector<std::size_t>{4}));
  EXPECT_TRUE(cache.closes());
}

TEST(StateEvict, MakesRoomForAllocateState) {
  HybridCache cache = state_cache();
  grow(cache, HybridCache::kStates);
  ASSERT_EQ(cache.states->available(), 0u);
  const StateSlot slot = *cache->allocate_state();
  EXPECT_EQ(cache.state_sizes().total, HybridCache::kStates - 1);
  cache.states->free(slot);
  std::vector<StateSlot> all;
  while (const auto more = cache->allocate_state()) all.push_back(*more);
  EXPECT_EQ(all.size(), HybridCache::kStates);
  EXPECT_TRUE(fails(cache->allocate_state(), ErrorCode::out_of_capacity, "16 state slots"));
  EXPECT_EQ(cache.full_sizes().total, 0u);
  for (const StateSlot taken : all) cache.states->free(taken);
  EXPECT_TRUE(cache.closes());
}

// ---- Requests ----------------------------------------------------------------------------------

TEST(StateRequest, GivesTheTreeWhatASnapshotStandsFor) {
  HybridCache cache = state_cache({}, 16);
  Running r(tokens(100));
  r.start(cache).value();
  r.allocate(cache).value();
  r.checkpoint(cache).value();  // without a snapshot there is nothing to give
  EXPECT_EQ(cache.full_sizes().total, 0u);
  cache->set_snapshot(r.request, *cache->allocate_state(), 64).value();
  r.checkpoint(cache).value();
  EXPECT_EQ(r.request.cached_length(), 64u);
  EXPECT_FALSE(r.request.snapshot());
  EXPECT_EQ(cache.state_sizes(), (Sizes{0, 1, 1}));
  cache->set_snapshot(r.request, *cache->allocate_state(), 96).value();
  r.finish(cache).value();
  EXPECT_EQ(cache.match(tokens(100)).length, 96u);
  EXPECT_EQ(cache.match(tokens(80)).length, 64u);
  EXPECT_TRUE(cache.closes());
}

TEST(StateRequest, ThatDoesNotInsertGivesItsSnapshotBack) {
  HybridCache cache = state_cache();
  Running r(tokens(10));
  r.start(cache).value();
  r.allocate(cache).value();
  cache->set_snapshot(r.request, *cache->allocate_state(), 10).value();
  r.abandon(cache).value();
  EXPECT_TRUE(cache.closes());
}

TEST(StateRequest, StartReturnsTheSnapshotToCopyAndHoldsIt) {
  HybridCache cache = state_cache();
  const StateSlot snapshot = cache.take_state();
  cache.put(tokens(8), {.snapshot = snapshot});
  Running r(tokens(12));
  const Match match = *r.start(cache);
  EXPECT_EQ(match.snapshot, snapshot);
  EXPECT_EQ(cache->evict({.snapshots = 1}).snapshots, 0u);
  r.abandon(cache).value();
  EXPECT_TRUE(cache.closes());
}

// ---- All three ---------------------------------------------------------------------------------

TEST(AllComponents, MatchTheLongestEndOnWhichAllAgree) {
  HybridCache cache(1, {.window = 4, .state = StateOptions{}});
  grow(cache, 4);  // snapshots at 4, 8, 12, 16
  cache.match(tokens(16));
  ASSERT_EQ(cache->evict({.window_tokens = 1}).window_tokens, 4u);  // [0, 4)
  EXPECT_EQ(valid_ends(cache, 16), (std::vector<std::size_t>{8, 12, 16}));
  ASSERT_EQ(cache->evict({.snapshots = 2}).snapshots, 2u);  // at 4 and 8
  EXPECT_EQ(valid_ends(cache, 16), (std::vector<std::size_t>{12, 16}));
  ASSERT_EQ(cache->evict({.window_tokens = 5}).window_tokens, 8u);  // [4, 12)
  EXPECT_EQ(valid_ends(cache, 16), (std::vector<std::size_t>{16}));
  EXPECT_EQ(cache.match(tokens(14)).end, MatchEnd::window_gone);
  EXPECT_TRUE(cache.closes());
}

TEST(AllComponents, SayWhichOneHoldsAMatchBack) {
  HybridCache cache(1, {.window = 4, .state = StateOptions{}});
  cache.put(tokens(12));
  EXPECT_EQ(cache.match(tokens(10)).end, MatchEnd::no_snapshot);
  EXPECT_EQ(cache.match(tokens(10)).agreed_length, 10u);
}

TEST(AllComponents, KeepTheWindowOfASnapshotThatIsStillToBeGiven) {
  HybridCache cache(1, {.window = 4, .state = StateOptions{}});
  Running r(tokens(40));
  r.start(cache).value();
  r.allocate(cache).value();
  cache->set_snapshot(r.request, *cache->allocate_state(), 20).value();
  EXPECT_EQ(*cache->release_window(r.request, 40), 16u);
  r.finish(cache).value();
  EXPECT_EQ(cache.match(tokens(40)).length, 20u);
  EXPECT_TRUE(cache.closes());
}

TEST(AllComponents, GoTogetherWithALeaf) {
  HybridCache cache(1, {.events = true, .window = 4, .state = StateOptions{}});
  grow(cache, 3);
  const EvictResult gone = cache->evict({.tokens = 12});
  EXPECT_EQ(gone.tokens, 12u);
  EXPECT_EQ(gone.window_tokens, 12u);
  EXPECT_EQ(gone.snapshots, 3u);
  EXPECT_TRUE(cache.closes());
}

}  // namespace
}  // namespace pando::testing
