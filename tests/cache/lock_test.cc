// SPDX-License-Identifier: Apache-2.0
// Leases: what they protect, how they move, how splits and evictions treat held paths, and handles
// that are stale or foreign.
#include <gtest/gtest.h>

#include <utility>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

TEST(PrefixCacheLock, ProtectsThePathUntilReleased) {
  TestCache cache;
  cache.put(tokens(4));
  Lease lease = cache.hold(tokens(4));
  EXPECT_TRUE(lease);
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 0, .protected_tokens = 4, .total = 4}));
  EXPECT_EQ(cache->evict(4).tokens, 0u);
  lease.release();
  EXPECT_FALSE(lease);
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 4, .protected_tokens = 0, .total = 4}));
  EXPECT_EQ(cache->evict(4).tokens, 4u);
}

TEST(PrefixCacheLock, ProtectsOnlyWhatMatched) {
  TestCache cache;
  cache.put(tokens(6));
  const Lease lease = cache.hold(tokens(4));
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 2, .protected_tokens = 4, .total = 6}));
  EXPECT_EQ(cache->evict(6).tokens, 2u);
  EXPECT_EQ(cache.probe(tokens(6)), 4u);
}

TEST(PrefixCacheLock, ProtectsAllAncestors) {
  TestCache cache;
  cache.put(tokens(2));
  cache.put(tokens(4));
  cache.put(tokens(6));
  const Lease lease = cache.hold(tokens(6));
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 6u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheLock, CountsSeveralLeasesOnOnePath) {
  TestCache cache;
  cache.put(tokens(4));
  Lease first = cache.hold(tokens(4));
  Lease second = cache.hold(tokens(4));
  first.release();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 4u);
  second.release();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
}

TEST(PrefixCacheLock, TheSharedPartStaysWhileOneOfTwoBranchesIsHeld) {
  TestCache cache;
  cache.put(tokens(2) + tokens(2, 50));
  cache.put(tokens(2) + tokens(2, 70));
  Lease first = cache.hold(tokens(2) + tokens(2, 50));
  Lease second = cache.hold(tokens(2) + tokens(2, 70));
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 6u);
  first.release();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 4u);
  EXPECT_EQ(cache->evict(10).tokens, 2u);
  EXPECT_EQ(cache.probe(tokens(2) + tokens(2, 70)), 4u);
}

TEST(PrefixCacheLock, SplitKeepsLockOnBothHalves) {
  TestCache cache;
  cache.put(tokens(6));
  Lease lease = cache.hold(tokens(6));
  EXPECT_EQ(cache.match(tokens(2)).length, 2u);  // splits the held edge
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 6u);
  EXPECT_EQ(cache->evict(6).tokens, 0u);
  EXPECT_TRUE(cache.closes());
  lease.release();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheLock, SplitKeepsHandlesOnTheEndTheyWereMadeFor) {
  TestCache cache;
  cache.put(tokens(6));
  const Match match = cache.match(tokens(6));
  cache.match(tokens(2));
  const Lease lease = *cache->paths().lock(match);
  EXPECT_EQ(lease.node(), match.node);
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 6u);
}

TEST(PrefixCacheLock, AnInsertBelowAHeldPathIsEvictable) {
  TestCache cache;
  cache.put(tokens(2));
  const Lease lease = cache.hold(tokens(2));
  cache.put(tokens(4));
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 2, .protected_tokens = 2, .total = 4}));
  EXPECT_EQ(cache->evict(4).tokens, 2u);
}

TEST(PrefixCacheLock, AnEmptyMatchGivesAnEmptyLease) {
  TestCache cache;
  cache.put(tokens(2));
  const Lease lease = cache.hold(tokens(2, 50));
  EXPECT_FALSE(lease);
  EXPECT_TRUE(cache->reset().ok());
}

TEST(Lease, MovesItsHold) {
  TestCache cache;
  cache.put(tokens(4));
  Lease first = cache.hold(tokens(4));
  Lease second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT: moved from, and that is the point
  EXPECT_TRUE(second);
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 4u);
}

TEST(Lease, AssignmentLetsGoOfWhatItHeld) {
  TestCache cache;
  cache.put(tokens(4));
  cache.put(tokens(3, 50));
  Lease lease = cache.hold(tokens(4));
  lease = cache.hold(tokens(3, 50));
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 3u);
}

TEST(Lease, DestructionReleases) {
  TestCache cache;
  cache.put(tokens(4));
  { const Lease lease = cache.hold(tokens(4)); }
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
}

TEST(Lease, ReleasingTwiceIsReleasingOnce) {
  TestCache cache;
  cache.put(tokens(4));
  const Lease other = cache.hold(tokens(4));
  Lease lease = cache.hold(tokens(4));
  lease.release();
  lease.release();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 4u);
  EXPECT_TRUE(cache.closes());
}

// ---- The partly matched page is held too.

TEST(PrefixCachePartialLock, EvictionCannotTakeThePartlyMatchedPage) {
  TestCache cache(4);
  cache.put(tokens(8));
  Lease lease = cache.hold(tokens(6));
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 8u);
  EXPECT_EQ(cache->evict(8).tokens, 0u);
  lease.release_partial();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 4u);
  EXPECT_EQ(cache->evict(8).tokens, 4u);
  EXPECT_EQ(cache.probe(tokens(8)), 4u);
}

TEST(PrefixCachePartialLock, HoldsAPageWithoutAnyWholeOne) {
  TestCache cache(4);
  cache.put(tokens(4));
  Lease lease = cache.hold(tokens(3));
  EXPECT_TRUE(lease);
  EXPECT_FALSE(lease.node());
  EXPECT_EQ(cache->evict(4).tokens, 0u);
  lease.release();
  EXPECT_EQ(cache->evict(4).tokens, 4u);
}

TEST(PrefixCachePartialLock, ReleaseLetsGoOfBoth) {
  TestCache cache(4);
  cache.put(tokens(8));
  Lease lease = cache.hold(tokens(6));
  lease.release();
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCachePartialLock, SurvivesASplitOfThePartialEdge) {
  TestCache cache(4);
  cache.put(tokens(12));
  Lease lease = cache.hold(tokens(6));  // holds [4, 12) for its first page
  EXPECT_EQ(cache.match(tokens(8)).length, 8u);
  EXPECT_EQ(cache->evict(12).tokens, 0u);
  EXPECT_TRUE(cache.closes());
  lease.release();
  EXPECT_EQ(cache->evict(12).tokens, 12u);
}

// ---- Handles.

TEST(PrefixCacheHandle, IsStaleOnceItsNodeWasEvicted) {
  TestCache cache;
  cache.put(tokens(4));
  const Match match = cache.match(tokens(4));
  cache->evict(4);
  const Snapshot before(cache);
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "match again"));
  EXPECT_EQ(Snapshot(cache), before);
}

TEST(PrefixCacheHandle, IsStaleWhenAnotherNodeTookThePlace) {
  TestCache cache;
  cache.put(tokens(4));
  const Match match = cache.match(tokens(4));
  cache->evict(4);
  cache.put(tokens(4));
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "evicted"));
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
}

TEST(PrefixCacheHandle, IsStaleOnceItsEndWasTrimmed) {
  TestCache cache;
  cache.put(tokens(4));
  const Match match = cache.match(tokens(4));
  cache->evict(1);
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "evicted"));
}

TEST(PrefixCacheHandle, AStalePartialPageLocksNothing) {
  TestCache cache(4);
  cache.put(tokens(8));
  const Match match = cache.match(tokens(6));
  cache->evict(4);
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "evicted"));
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
}

TEST(PrefixCacheHandle, OfAnotherCacheIsForeign) {
  TestCache cache;
  TestCache other;
  cache.put(tokens(4));
  other.put(tokens(4));
  const Match match = other.match(tokens(4));
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "another cache"));
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 0u);
}

TEST(PrefixCacheHandle, ADefaultMatchIsForeign) {
  TestCache cache;
  EXPECT_TRUE(fails(cache->paths().lock(Match{}), ErrorCode::stale_handle, "another cache"));
}

TEST(PrefixCacheHandle, MadeUpNodesAreStale) {
  TestCache cache;
  cache.put(tokens(4));
  Match match = cache.match(tokens(4));
  match.node.index = 1'000'000;
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "node 1000000"));
}

}  // namespace
}  // namespace pando::testing
