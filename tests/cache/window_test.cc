// SPDX-License-Identifier: Apache-2.0
// The window component on keys: tombstones, which match is valid, inserting over tombstones, what a
// lease holds, and eviction of (full, window). Requests are in window_requests_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/hybrid_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kWindow = 4;

HybridCache window_cache(std::size_t page_size = 1, std::size_t window = kWindow) {
  return HybridCache(page_size, {.window = window});
}

// A trunk of `trunk` tokens with two branches of `branch` tokens each; the trunk's window is gone.
struct TombstoneTrunk {
  explicit TombstoneTrunk(std::size_t trunk = 8, std::size_t branch = 6)
      : left(tokens(trunk) + tokens(branch, 100)), right(tokens(trunk) + tokens(branch, 200)) {
    cache.put(tokens(trunk));
    cache.put_rest(left);
    EXPECT_EQ(cache.evict_window(1), trunk);  // shallow before deep
    cache.put(right, {.window_released = trunk});
  }
  HybridCache cache = window_cache();
  Tokens left, right;
};

// ---- Tombstones --------------------------------------------------------------------------------

TEST(WindowTombstone, AnInnerNodeLosesItsWindowAndKeepsItsFullSide) {
  TombstoneTrunk t;
  EXPECT_EQ(t.cache.full_sizes().total, 20u);
  EXPECT_EQ(t.cache.window_sizes().total, 12u);
  EXPECT_NE(t.cache->inspect().dump().find("tombstone"), std::string::npos);
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowTombstone, ALeafThatWouldBeOneGoes) {
  HybridCache cache = window_cache();
  cache.put(tokens(6));
  const EvictResult gone = cache->evict({.window_tokens = 1});
  EXPECT_EQ(gone.window_tokens, 6u);
  EXPECT_EQ(gone.tokens, 6u);
  EXPECT_EQ(cache->inspect().num_nodes(), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowTombstone, GoesWithItsLastChild) {
  TombstoneTrunk t;
  EXPECT_EQ(t.cache->evict(6).tokens, 6u);  // one branch; the trunk still has the other
  EXPECT_EQ(t.cache.full_sizes().total, 14u);
  const EvictResult gone = t.cache->evict(1);  // trims the other branch
  EXPECT_EQ(gone.tokens, 1u);
  EXPECT_EQ(t.cache->evict(5).tokens, 5u + 8u);  // the branch ends, and so does the trunk
  EXPECT_EQ(t.cache.full_sizes().total, 0u);
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowTombstone, StaysWhileSomeoneHoldsItAndGoesWithTheLease) {
  HybridCache cache = window_cache();
  cache.put(tokens(6));
  Lease lease = cache.hold(tokens(6));
  ASSERT_TRUE(lease.release_window().ok());
  const EvictResult gone = cache->evict({.tokens = 6, .window_tokens = 6});
  EXPECT_EQ(gone.tokens, 0u);
  EXPECT_EQ(gone.window_tokens, 6u);
  EXPECT_EQ(cache.full_sizes().total, 6u);
  EXPECT_EQ(cache.probe(tokens(6)), 0u);
  EXPECT_TRUE(cache.closes());
  lease.release();
  EXPECT_EQ(cache.full_sizes().total, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowTombstone, IsNoNewsToReadersOfEvents) {
  HybridCache cache(1, {.events = true, .window = kWindow});
  cache.put(tokens(8));
  cache.put_rest(tokens(8) + tokens(2, 50));
  cache->take_events();
  EXPECT_EQ(cache.evict_window(8), 8u);
  EXPECT_TRUE(cache->take_events().empty());
  cache->evict(2);  // the leaf, and the tombstone above
  const auto events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].hashes.size(), 10u);
}

// ---- Match -------------------------------------------------------------------------------------

TEST(WindowMatch, NeedsNoWholeWindowWhereNothingIsMissing) {
  HybridCache cache = window_cache();
  cache.put(tokens(2));
  EXPECT_EQ(cache.match(tokens(2)).length, 2u);
}

TEST(WindowMatch, NeedsAnUnbrokenWindowBehindATombstone) {
  TombstoneTrunk t;
  const auto prefix = [&](std::size_t n) {
    return Tokens(t.left.begin(), t.left.begin() + static_cast<std::ptrdiff_t>(n));
  };
  EXPECT_EQ(t.cache.probe(prefix(8)), 0u);
  EXPECT_EQ(t.cache.probe(prefix(8 + kWindow - 1)), 0u);
  EXPECT_EQ(t.cache.probe(prefix(8 + kWindow)), 8 + kWindow);
  EXPECT_EQ(t.cache.probe(t.left), 14u);
}

TEST(WindowMatch, SaysThatTheWindowIsMissingAndHowMuchIsThere) {
  TombstoneTrunk t;
  const Match match = t.cache.match(tokens(8));
  EXPECT_EQ(match.length, 0u);
  EXPECT_EQ(match.agreed_length, 8u);
  EXPECT_EQ(match.end, MatchEnd::window_gone);
  EXPECT_FALSE(match.node);
}

TEST(WindowMatch, FallsBackToTheLongestEndThatIsWhole) {
  HybridCache cache = window_cache();
  const Tokens key = tokens(12);
  // [0, 4) whole, [4, 8) a tombstone, [8, 12) a run that is just long enough, then a longer key.
  cache.put(key);
  cache.match(tokens(4));
  cache.match(tokens(8));
  cache.match(key);
  Lease lease = cache.hold(tokens(4));
  ASSERT_EQ(cache.evict_window(1), 4u);  // the shallowest that is not held: [4, 8)
  lease.release();
  EXPECT_EQ(cache.probe(tokens(4)), 4u);
  EXPECT_EQ(cache.probe(tokens(8)), 4u);
  EXPECT_EQ(cache.probe(tokens(11)), 4u);
  EXPECT_EQ(cache.probe(tokens(12)), 12u);
  EXPECT_EQ(cache.match(tokens(11)).end, MatchEnd::window_gone);
  EXPECT_EQ(cache.match(tokens(11)).node, cache.match(tokens(4)).node);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowMatch, RoundsTheWindowUpToPages) {
  HybridCache cache = window_cache(16, 17);
  cache.put(tokens(64));
  cache.match(tokens(16));
  cache.match(tokens(64));
  ASSERT_EQ(cache.evict_window(1), 16u);
  EXPECT_EQ(cache.probe(tokens(32)), 0u);
  EXPECT_EQ(cache.probe(tokens(48)), 48u);  // two pages behind the tombstone
}

TEST(WindowMatch, OffersNoRowsOfAPageWithoutAWindow) {
  HybridCache cache = window_cache(16, 16);
  cache.put(tokens(16));
  cache.put_rest(tokens(32));
  EXPECT_EQ(cache.match(tokens(40)).length, 32u);
  EXPECT_EQ(cache.match(tokens(8)).partial_length, 8u);
  ASSERT_EQ(cache.evict_window(1), 16u);
  EXPECT_EQ(cache.match(tokens(8)).partial_length, 0u);
  EXPECT_EQ(cache.match(tokens(24)).partial_length, 0u);
}

TEST(WindowMatch, KeepsNamespacesAndPairsApart) {
  HybridCache cache(1, {.bigram = true, .window = kWindow});
  cache.put(tokens(9), {}, "a");
  cache.put(tokens(9), {}, "b");
  cache.match(tokens(9), "b");
  EXPECT_EQ(cache->evict({.window_tokens = 1}).tokens, 8u);  // the leaf of "a"
  EXPECT_EQ(cache.probe(tokens(9), "a"), 0u);
  EXPECT_EQ(cache.probe(tokens(9), "b"), 8u);
  EXPECT_TRUE(cache.closes({.full = 2, .windows = 2}));  // the last token of each key
}

// ---- Insert over tombstones --------------------------------------------------------------------

TEST(WindowInsert, AllOfTheOverlapAliveMakesTheNodeWholeWithTheNewSlots) {
  TombstoneTrunk t;
  const Slots slots = t.cache.take(8);
  const Inserted inserted = *t.cache->paths().insert({tokens(8)}, slots);
  EXPECT_EQ(inserted.existing, 8u);
  EXPECT_EQ(inserted.revived, 8u);
  EXPECT_EQ(inserted.freed, 8u);
  EXPECT_EQ(t.cache.slots_of(tokens(8)), slots);
  EXPECT_EQ(t.cache.probe(t.left), 14u);
  EXPECT_EQ(t.cache.window_sizes().total, 20u);
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowInsert, PartOfItAliveSplitsAndRevivesTheTail) {
  TombstoneTrunk t;
  const Slots slots = t.cache.take(8);
  t.cache.window->free_window(std::span(slots).first(3));
  const std::size_t nodes = t.cache->inspect().num_nodes();
  const Inserted inserted = *t.cache->paths().insert({tokens(8)}, slots, {.window_released = 3});
  EXPECT_EQ(inserted.revived, 5u);
  EXPECT_EQ(inserted.freed, 8u);
  EXPECT_EQ(t.cache->inspect().num_nodes(), nodes + 1);
  const Slots now = t.cache.slots_of(tokens(8));
  ASSERT_EQ(now.size(), 8u);
  EXPECT_TRUE(std::equal(now.begin() + 3, now.end(), slots.begin() + 3));
  EXPECT_NE(now[0], slots[0]);
  EXPECT_EQ(t.cache.probe(tokens(6)), 0u);  // a run of 3
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowInsert, NoneOfItAliveFreesTheNewSlotsAsDuplicates) {
  TombstoneTrunk t;
  const Slots slots = t.cache.take(8);
  t.cache.window->free_window(slots);
  const Inserted inserted = *t.cache->paths().insert({tokens(8)}, slots, {.window_released = 8});
  EXPECT_EQ(inserted.revived, 0u);
  EXPECT_EQ(inserted.freed, 8u);
  EXPECT_EQ(t.cache.probe(tokens(8)), 0u);
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowInsert, LeavesAloneWhatTheCallerGotFromTheTree) {
  HybridCache cache = window_cache();
  const Tokens key = tokens(12);
  cache.put(key + tokens(4, 70));
  Slots slots(12);
  ASSERT_EQ(cache->paths().match({tokens(6)}, slots)->length, 6u);
  Lease lease = cache.hold(tokens(6));
  cache.match(key);
  cache.match(key + tokens(4, 70));
  ASSERT_EQ(cache.evict_window(1), 2u);  // [0, 2): before what the lease holds
  ASSERT_EQ(cache.evict_window(1), 6u);  // [6, 12)
  const Slots rest = cache.take(6);
  std::copy(rest.begin(), rest.end(), slots.begin() + 6);
  const Inserted inserted = *cache->paths().insert({key}, slots, {.owned_by_tree = 6});
  EXPECT_EQ(inserted.revived, 6u);
  EXPECT_EQ(cache.slots_of(key), slots);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowInsert, MovesTheWindowOverWhereSomeoneReadsTheOldSlots) {
  TombstoneTrunk t;
  const Slots old = t.cache.slots_of(t.left);
  Lease reader = t.cache.hold(t.left);  // its slot table names the trunk's slots
  const Slots slots = t.cache.take(8);
  Slots windows(8);
  t.cache.window->translate(slots, windows);
  const Inserted inserted = *t.cache->paths().insert({tokens(8)}, slots);
  EXPECT_EQ(inserted.revived, 8u);
  EXPECT_EQ(inserted.freed, 8u);
  EXPECT_EQ(t.cache.slots_of(t.left), old);
  Slots now(8);
  t.cache.window->translate(std::span(old).first(8), now);
  EXPECT_EQ(now, windows);  // token by token
  EXPECT_EQ(t.cache.probe(tokens(8)), 8u);
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowInsert, ANewLeafIsSplitWhereItsWindowBegins) {
  HybridCache cache = window_cache();
  const Slots slots = cache.take(10);
  cache.window->free_window(std::span(slots).first(5));
  cache->paths().insert({tokens(10)}, slots, {.window_released = 5}).value();
  EXPECT_EQ(cache.full_sizes().total, 10u);
  EXPECT_EQ(cache.window_sizes().total, 5u);
  EXPECT_EQ(cache->inspect().num_nodes(), 3u);  // with the root
  EXPECT_EQ(cache.probe(tokens(5)), 0u);
  EXPECT_EQ(cache.probe(tokens(8)), 0u);
  EXPECT_EQ(cache.probe(tokens(9)), 9u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowInsert, GivesBackAWindowThatWasOnlySaidToBeReleased) {
  HybridCache cache = window_cache();
  cache.put(tokens(10), {.window_released = 5});
  EXPECT_EQ(cache.window_sizes().total, 5u);
  EXPECT_TRUE(cache.closes());
}

// ---- Leases ------------------------------------------------------------------------------------

TEST(WindowLease, HoldsThePathAndOfTheWindowWhatTheNextTokenSees) {
  HybridCache cache = window_cache();
  cache.put(tokens(10));
  const Lease lease = cache.hold(tokens(10));
  EXPECT_EQ(cache.full_sizes(), (Sizes{0, 10, 10}));
  EXPECT_EQ(cache.window_sizes(), (Sizes{6, 4, 10}));
  EXPECT_EQ(cache.evict_window(100), 6u);
  EXPECT_EQ(cache.probe(tokens(10)), 10u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowLease, HoldsAllOfAShorterPath) {
  HybridCache cache = window_cache();
  cache.put(tokens(3));
  const Lease lease = cache.hold(tokens(3));
  EXPECT_EQ(cache.window_sizes(), (Sizes{0, 3, 3}));
}

TEST(WindowLease, LetsGoOfExactlyWhatItHeldAfterSplits) {
  HybridCache cache = window_cache();
  cache.put(tokens(10));
  Lease one = cache.hold(tokens(10));
  Lease two = cache.hold(tokens(8));    // [4, 8)
  Lease three = cache.hold(tokens(7));  // [3, 7)
  EXPECT_EQ(cache.window_sizes(), (Sizes{3, 7, 10}));
  one.release();
  EXPECT_EQ(cache.window_sizes(), (Sizes{5, 5, 10}));
  two.release();
  EXPECT_EQ(cache.window_sizes(), (Sizes{6, 4, 10}));
  three.release();
  EXPECT_EQ(cache.window_sizes(), (Sizes{10, 0, 10}));
  EXPECT_TRUE(cache.closes());
}

TEST(WindowLease, CanLetGoOfItsWindowAlone) {
  HybridCache cache = window_cache();
  cache.put(tokens(10));
  Lease lease = cache.hold(tokens(10));
  ASSERT_TRUE(lease.release_window().ok());
  EXPECT_EQ(cache.full_sizes(), (Sizes{0, 10, 10}));
  EXPECT_EQ(cache.window_sizes(), (Sizes{10, 0, 10}));
  EXPECT_TRUE(fails(lease.release_window(), ErrorCode::invalid_argument, "released it already"));
  EXPECT_TRUE(cache.closes());
}

TEST(WindowLease, IsRefusedForAMatchWhoseWindowHasGone) {
  HybridCache cache = window_cache();
  cache.put(tokens(8));
  cache.put_rest(tokens(8) + tokens(6, 50));
  const Match match = cache.match(tokens(8));
  ASSERT_EQ(match.length, 8u);
  ASSERT_EQ(cache.evict_window(1), 6u);  // the branch is older, and a leaf
  ASSERT_EQ(cache.evict_window(1), 8u);
  cache.put(tokens(8) + tokens(6, 50), {.window_released = 8});
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "evicted since"));
  EXPECT_TRUE(cache.closes());
}

TEST(WindowLease, OnAPartlyMatchedPageHoldsItsWindowAfterASplit) {
  HybridCache cache = window_cache(16, 16);
  cache.put(tokens(64));
  const Match match = cache.match(tokens(8));
  ASSERT_EQ(match.partial_length, 8u);
  cache.match(tokens(32));  // splits the node that the match names
  Lease lease = *cache->paths().lock(match);
  EXPECT_EQ(cache.window_sizes().protected_tokens, 64u);
  lease.release_partial();
  EXPECT_EQ(cache.window_sizes().protected_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

// ---- Eviction ----------------------------------------------------------------------------------

TEST(WindowEvict, FullTakesLeavesAndCountsTheirWindows) {
  TombstoneTrunk t;
  const EvictResult gone = t.cache->evict({.tokens = 6, .window_tokens = 6});
  EXPECT_EQ(gone.tokens, 6u);
  EXPECT_EQ(gone.window_tokens, 6u);  // the same ones: nothing more was asked
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowEvict, TakesShallowBeforeDeepOfWhatWasUsedTogether) {
  HybridCache cache = window_cache();
  const Tokens key = tokens(12);
  cache.put(key);
  cache.match(tokens(4));
  cache.match(tokens(8));
  cache.match(key);  // three nodes, used together
  EXPECT_EQ(cache.evict_window(1), 4u);
  EXPECT_EQ(cache.probe(tokens(4)), 0u);
  EXPECT_EQ(cache.probe(tokens(8)), 8u);
  EXPECT_EQ(cache.evict_window(1), 4u);
  EXPECT_EQ(cache.probe(tokens(8)), 0u);
  EXPECT_EQ(cache.probe(key), 12u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowEvict, TakesTheOldestPathFirst) {
  HybridCache cache = window_cache();
  for (const Token start : {100, 200, 300}) {
    cache.put(tokens(4, start));
    cache.put_rest(tokens(4, start) + tokens(4, start + 50));
  }
  cache.match(tokens(4, 100) + tokens(4, 150));
  EXPECT_EQ(cache.evict_window(1), 4u);
  EXPECT_EQ(cache.probe(tokens(4, 200)), 0u);
  EXPECT_EQ(cache.probe(tokens(4, 300)), 4u);
  EXPECT_EQ(cache.probe(tokens(4, 100)), 4u);
}

TEST(WindowEvict, GoesByThePolicyOfTheCache) {
  HybridCache cache(1, {.window = kWindow}, "priority");
  cache.put(tokens(4, 100), {.priority = 1});
  cache.put_rest(tokens(4, 100) + tokens(4, 150), {.priority = 1});
  cache.put(tokens(4, 200));
  cache.put_rest(tokens(4, 200) + tokens(4, 250));
  EXPECT_EQ(cache.evict_window(5), 8u);
  EXPECT_EQ(cache.probe(tokens(4, 100)), 4u);
  EXPECT_EQ(cache.full_sizes().total, 8u);
}

TEST(WindowEvict, NeverTakesWhatALeaseHolds) {
  TombstoneTrunk t;
  const Lease lease = t.cache.hold(t.left);
  EXPECT_EQ(t.cache.evict_window(1000), 8u);  // the other branch, and the head of this one
  EXPECT_EQ(t.cache.probe(t.left), 14u);
  EXPECT_EQ(t.cache.window_sizes().total, kWindow);
  EXPECT_TRUE(t.cache.closes());
}

TEST(WindowEvict, MakesRoomOnBothSidesForAllocate) {
  HybridCache cache = window_cache();
  for (Token i = 0; i < 8; ++i) cache.put(tokens(64, 1000 * (i + 1)));
  ASSERT_EQ(cache.window->window().available(), 0u);
  Running running(tokens(100));
  EXPECT_TRUE(running.allocate(cache).ok());
  EXPECT_EQ(cache.window_sizes().total, HybridCache::kWindowTokens - 128);
  EXPECT_TRUE(cache.closes({.full = 100, .windows = 100}));
  running.abandon(cache).value();
}

TEST(WindowEvict, AllocateSaysWhichSideLacksRoom) {
  HybridCache cache = window_cache();
  Running running(tokens(600));
  EXPECT_TRUE(fails(running.allocate(cache), ErrorCode::out_of_capacity,
                    "window slots; 512 are free and 0 evictable"));
}

// ---- A window smaller than a page --------------------------------------------------------------

// Three pages in nodes of their own; the window of the first two is gone.
struct SmallWindow {
  explicit SmallWindow(std::size_t w) : cache(window_cache(16, w)) {
    cache.put(tokens(16));
    cache.put_rest(tokens(32));
    cache.put_rest(tokens(48));
    cache.match(tokens(48));
    EXPECT_EQ(cache.evict_window(17), 32u);  // shallow before deep
  }
  HybridCache cache;
};

TEST(Window, SmallerThanAPageNeedsOnlyTheLastPage) {
  for (const std::size_t w : {1, 4, 15, 16}) {
    SmallWindow t(w);
    EXPECT_EQ(t.cache.probe(tokens(48)), 48u) << w;
    EXPECT_EQ(t.cache.probe(tokens(47)), 0u) << w;
    EXPECT_EQ(t.cache.match(tokens(32)).end, MatchEnd::window_gone) << w;
    EXPECT_TRUE(t.cache.closes());
  }
  EXPECT_EQ(SmallWindow(17).cache.probe(tokens(48)), 0u) << "one token more than the page has";
}

TEST(Window, SmallerThanAPageIsHeldAsTheLastPage) {
  HybridCache cache = window_cache(16, 4);
  cache.put(tokens(64));
  Lease lease = cache.hold(tokens(64));
  EXPECT_EQ(cache.full_sizes(), (Sizes{0, 64, 64}));
  EXPECT_EQ(cache.window_sizes(), (Sizes{48, 16, 64}));
  EXPECT_EQ(cache.evict_window(1000), 48u);
  EXPECT_EQ(cache.probe(tokens(64)), 64u);
  ASSERT_TRUE(lease.release_window().ok());
  EXPECT_EQ(cache.window_sizes(), (Sizes{16, 0, 16}));
  EXPECT_TRUE(cache.closes());
}

TEST(Window, SmallerThanAPageIsRefusedToALeaseOnceItsPageLostIt) {
  HybridCache cache = window_cache(16, 1);
  cache.put(tokens(16));
  cache.put_rest(tokens(32));
  const Match match = cache.match(tokens(16));
  cache.match(tokens(32));
  ASSERT_EQ(cache.evict_window(1), 16u);
  EXPECT_TRUE(fails(cache->paths().lock(match), ErrorCode::stale_handle, "evicted since"));
  EXPECT_TRUE(cache.closes());
}

TEST(Window, SmallerThanAPageComesBackWithOnePage) {
  SmallWindow t(4);
  const Slots slots = t.cache.take(32);
  t.cache.window->free_window(std::span(slots).first(16));
  const Inserted inserted = *t.cache->paths().insert({tokens(32)}, slots, {.window_released = 16});
  EXPECT_EQ(inserted.revived, 16u);
  EXPECT_EQ(inserted.freed, 32u);
  EXPECT_EQ(t.cache.probe(tokens(32)), 32u);
  EXPECT_EQ(t.cache.probe(tokens(16)), 0u);
  EXPECT_TRUE(t.cache.closes());
}

TEST(Window, SmallerThanAPageMovesOverWhereSomeoneReadsTheOldSlots) {
  SmallWindow t(4);
  const Slots old = t.cache.slots_of(tokens(48));
  Lease reader = t.cache.hold(tokens(48));
  const Inserted inserted = *t.cache->paths().insert({tokens(32)}, t.cache.take(32));
  EXPECT_EQ(inserted.revived, 32u);
  EXPECT_EQ(t.cache.slots_of(tokens(48)), old);
  EXPECT_EQ(t.cache.probe(tokens(32)), 32u);
  EXPECT_TRUE(t.cache.closes());
}

TEST(Window, SmallerThanAPageStillMakesRowsOfTheNextPageWorthCopying) {
  HybridCache cache = window_cache(16, 4);
  cache.put(tokens(32));
  const Match match = cache.match(tokens(24));
  EXPECT_EQ(match.length, 16u);
  EXPECT_EQ(match.partial_length, 8u);
  Lease lease = *cache->paths().lock(match);
  EXPECT_EQ(cache.window_sizes().protected_tokens, 32u);  // of both pages
  lease.release_partial();
  EXPECT_EQ(cache.window_sizes().protected_tokens, 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Window, SmallerThanAPageOfPairsNeedsOnlyTheLastPage) {
  HybridCache cache(16, {.bigram = true, .window = 4});
  cache.put(tokens(33));
  cache.match(tokens(17));
  cache.match(tokens(33));
  ASSERT_EQ(cache.evict_window(1), 16u);
  EXPECT_EQ(cache.probe(tokens(17)), 0u);
  EXPECT_EQ(cache.probe(tokens(33)), 32u);
  EXPECT_TRUE(cache.closes({.full = 16, .windows = 16}));  // the last token of the key
}

// ---- Telling -----------------------------------------------------------------------------------

TEST(WindowDump, ShowsBothSides) {
  TombstoneTrunk t;
  const Lease lease = t.cache.hold(t.left);
  const std::string dump = t.cache->inspect().dump();
  EXPECT_NE(dump.find("| tombstone"), std::string::npos);
  EXPECT_NE(dump.find("| window locks 1"), std::string::npos);
  EXPECT_NE(dump.find("| window locks 0 evictable"), std::string::npos);
  EXPECT_NE(dump.find("20 tokens, 6 evictable, 14 protected; 12 window tokens, 8 evictable, "
                      "4 protected"),
            std::string::npos)
      << dump;
}

TEST(WindowStats, CountWhatLeftAndWhatCameBack) {
  TombstoneTrunk t;
  t.cache.put(tokens(8));
  EXPECT_EQ(t.cache->inspect().stats().evicted_window_tokens, 8u);
  EXPECT_EQ(t.cache->inspect().stats().revived_tokens, 8u);
  EXPECT_EQ(t.cache->inspect().stats().evicted_tokens, 0u);
}

TEST(WindowReset, GivesBackBothSides) {
  TombstoneTrunk t;
  t.cache->reset().value();
  EXPECT_EQ(t.cache.window->full().available(), HybridCache::kFullTokens);
  EXPECT_EQ(t.cache.window->window().available(), HybridCache::kWindowTokens);
}

}  // namespace
}  // namespace pando::testing
