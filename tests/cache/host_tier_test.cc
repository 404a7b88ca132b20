// SPDX-License-Identifier: Apache-2.0
// The host tier: when nodes get a host copy, what stays when the device evicts, and what goes when
// the host is full. What comes back is in load_back_test.cc. Bytes are real: see tier_fixture.h.
#include <gtest/gtest.h>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

TEST(HostTier, TellsWhatEachTierCanHold) {
  const TieredCache cache({.device_tokens = 64, .host_tokens = 128});
  EXPECT_EQ(cache->inspect().capacity_tokens(Tier::device), 64u);
  EXPECT_EQ(cache->inspect().capacity_tokens(Tier::host), 128u);
  EXPECT_EQ(cache->inspect().capacity_tokens(Tier::store), 0u);
}

// ---- Write policies ----------------------------------------------------------------------------

TEST(HostTier, WriteThroughCopiesAtTheFirstHit) {
  TieredCache cache;
  cache.put(tokens(8));
  EXPECT_EQ(cache->inspect().host_sizes().total, 0u) << "not before poll() has seen it";
  EXPECT_EQ(cache.settle().backups, 1u);
  EXPECT_EQ(cache->inspect().host_sizes().total, 8u);
  EXPECT_EQ(cache->tiers().stats().backed_up_tokens, 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, SelectiveWriteThroughCopiesAtTheSecondHit) {
  TieredCache cache({.write_policy = WritePolicy::write_through_selective});
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes().total, 0u);
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes().total, 8u);
}

TEST(HostTier, ChunkedInsertsAreNoHits) {
  TieredCache cache;
  Slots at(8);
  cache.slots->alloc(at).value();
  cache.compute(tokens(8), at, 0, 8);
  cache->paths().insert({tokens(8)}, at, {.chunked = true}).value();
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes().total, 0u);
}

TEST(HostTier, WriteBackCopiesWhenTheDeviceEvicts) {
  TieredCache cache({.write_policy = WritePolicy::write_back});
  cache.put(tokens(8));
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes().total, 0u);
  const EvictResult evicted = cache->evict(8);
  EXPECT_EQ(evicted.tokens, 8u);
  EXPECT_EQ(evicted.demoted_tokens, 8u);
  EXPECT_EQ(cache->inspect().host_sizes().total, 8u);
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
  EXPECT_EQ(cache.load(tokens(8)).size(), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, WriteBackOfAChainEvictsFromBelowInOneBatch) {
  TieredCache cache({.write_policy = WritePolicy::write_back});
  cache.put(tokens(8));
  cache.put(tokens(16));
  cache.put(tokens(8) + tokens(8, 100));
  EXPECT_EQ(cache->evict(24).tokens, 24u);
  EXPECT_EQ(cache->inspect().host_sizes().total, 24u);
  EXPECT_EQ(cache.match(tokens(16)).host_length, 16u);
  EXPECT_EQ(cache.load(tokens(16)).size(), 16u);
  EXPECT_EQ(cache.load(tokens(8) + tokens(8, 100)).size(), 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, AcknowledgementsSurviveSplits) {
  TieredCache cache;
  cache.put(tokens(12));
  EXPECT_EQ(cache.match(tokens(5)).length, 5u);  // splits the node that is being copied
  EXPECT_EQ(cache.match(tokens(9)).length, 9u);
  cache.settle();
  EXPECT_EQ(cache->inspect().host_sizes().total, 12u);
  EXPECT_TRUE(cache.closes());
  cache->evict(12);
  EXPECT_EQ(cache.load(tokens(12)).size(), 12u);
}

TEST(HostTier, ANodeThatIsBeingCopiedIsNotEvicted) {
  TieredCache cache;
  cache.put(tokens(8));
  EXPECT_EQ(cache->evict(8).tokens, 0u);
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 8u);
  cache.settle();
  EXPECT_EQ(cache->evict(8).tokens, 8u);
}

TEST(HostTier, CopiesAreUnderWayUntilPollHasSeenThemEnd) {
  TieredCache cache;
  EXPECT_TRUE(cache->tiers().under_way().idle());
  cache.put(tokens(8));
  EXPECT_EQ(cache->tiers().under_way().backups, 1u);
  EXPECT_FALSE(cache->tiers().under_way().idle());
  cache.settle();
  EXPECT_TRUE(cache->tiers().under_way().idle());
  cache->evict(8);
  Lease lease = *cache->paths().lock(cache.match(tokens(8)));
  Slots at(8);
  ASSERT_EQ(cache->paths().load_back(lease, at)->tokens, 8u);
  EXPECT_EQ(cache->tiers().under_way().loads, 1u);
  cache.settle();
  EXPECT_TRUE(cache->tiers().under_way().idle());
}

// ---- Leaving the device ------------------------------------------------------------------------

TEST(HostTier, AnEvictedNodeWithACopyStaysInTheTree) {
  TieredCache cache;
  cache.put(tokens(8));
  cache.settle();
  const EvictResult evicted = cache->evict(8);
  EXPECT_EQ(evicted.demoted_tokens, 8u);
  EXPECT_EQ(evicted.nodes, 0u);
  const Match match = cache.match(tokens(8));
  EXPECT_EQ(match.length, 0u);
  EXPECT_EQ(match.host_length, 8u);
  EXPECT_EQ(match.end, MatchEnd::whole_key);
  EXPECT_FALSE(match.node);
  EXPECT_TRUE(match.host_node);
  EXPECT_EQ(cache.full.host->count(PageState::backed_up), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, AnEvictedNodeWithoutACopyGoes) {
  TieredCache cache({.write_policy = WritePolicy::write_through_selective});
  cache.put(tokens(8));
  EXPECT_EQ(cache->evict(8).nodes, 1u);
  EXPECT_EQ(cache.match(tokens(8)).host_length, 0u);
}

TEST(HostTier, EvictionTakesExactlyWhatIsMissingAndLeavesTheRestOnTheDevice) {
  TieredCache cache;
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->evict(3).tokens, 3u);
  const Match match = cache.match(tokens(8));
  EXPECT_EQ(match.length, 5u);
  EXPECT_EQ(match.host_length, 3u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, WhatHangsOnTheHostBelowANodeWithoutACopyGoesWithIt) {
  TieredCache cache({.write_policy = WritePolicy::write_through, .host_tokens = 8});
  cache.put(tokens(8, 500));
  cache.settle();  // the host is full
  cache.put(tokens(8));
  cache.settle();
  EXPECT_EQ(cache->tiers().stats().refused_backups, 1u);
  cache->evict(8);               // demotes 500..
  cache->tiers().evict_host(8);  // and makes room
  cache.put(tokens(16));
  cache.settle();  // of both nodes there is room for the upper one alone
  EXPECT_EQ(cache->inspect().host_sizes().total, 8u);
  EXPECT_EQ(cache->evict(16).tokens, 16u);
  EXPECT_EQ(cache.match(tokens(16)).host_length, 8u);
  EXPECT_TRUE(cache.closes());
}

// ---- The host is full --------------------------------------------------------------------------

TEST(HostTier, HostEvictionTakesTheOldestLeafThatIsNowhereElse) {
  TieredCache cache({.host_tokens = 24});
  for (const Token start : {100, 200, 300}) cache.put(tokens(8, start));
  cache.settle();
  cache->evict(24);
  (void)cache.match(tokens(8, 100));  // used
  cache.put(tokens(8, 400));
  cache.settle();
  EXPECT_EQ(cache->tiers().stats().host_evicted_tokens, 8u);
  EXPECT_EQ(cache.match(tokens(8, 200)).host_length, 0u);
  EXPECT_EQ(cache.match(tokens(8, 100)).host_length, 8u);
  EXPECT_EQ(cache.match(tokens(8, 300)).host_length, 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, HostEvictionSparesWhatALeaseHolds) {
  TieredCache cache({.host_tokens = 16});
  cache.put(tokens(8, 100));
  cache.put(tokens(8, 200));
  cache.settle();
  cache->evict(16);
  const Lease lease = *cache->paths().lock(cache.match(tokens(8, 100)));
  (void)cache.match(tokens(8, 200));
  EXPECT_EQ(cache->tiers().evict_host(16), 8u);
  EXPECT_EQ(cache.match(tokens(8, 100)).host_length, 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, CopiesOfWhatIsOnTheDeviceStayUnlessAskedOtherwise) {
  TieredCache cache({.host_tokens = 16});
  cache.put(tokens(8, 100));
  cache.put(tokens(8, 200));
  cache.put(tokens(8, 300));
  cache.settle();
  EXPECT_EQ(cache->tiers().stats().refused_backups, 1u);
  EXPECT_EQ(cache->inspect().host_sizes().total, 16u);
}

TEST(HostTier, MirrorsOfWhatTheDeviceKeepsLongestAreReclaimedFirst) {
  TieredCache cache({.host_tokens = 16, .reclaim_mirrors_first = true});
  cache.put(tokens(8, 100));
  cache.put(tokens(8, 200));
  cache.settle();
  cache.put(tokens(8, 300));
  cache.settle();
  EXPECT_EQ(cache->tiers().stats().refused_backups, 0u);
  cache->evict(24);
  EXPECT_EQ(cache.match(tokens(8, 100)).host_length, 8u);
  EXPECT_EQ(cache.match(tokens(8, 200)).host_length, 0u);
  EXPECT_EQ(cache.match(tokens(8, 300)).host_length, 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, EvictionOrdersHoldOnTheHostForEveryPolicy) {
  for (const std::string_view policy : {"lru", "lfu", "fifo", "filo", "mru", "priority", "slru"}) {
    TieredCache cache({.host_tokens = 64, .policy = policy});
    for (const Token start : {100, 200, 300, 400}) cache.put(tokens(8, start));
    cache.settle();
    cache->evict(32);
    (void)cache.match(tokens(8, 200));
    cache->tiers().evict_host(8);
    const bool newest_first = policy == "filo";
    const Token gone = policy == "mru" ? 200 : newest_first ? 400 : 100;
    EXPECT_EQ(cache.match(tokens(8, gone)).host_length, 0u) << policy;
    EXPECT_TRUE(cache.closes());
  }
}

// ---- Other options -----------------------------------------------------------------------------

TEST(HostTier, NamespacesStayApartOnTheHost) {
  TieredCache cache;
  cache.put(tokens(8), "a");
  cache.put(tokens(8), "b");
  cache.settle();
  cache->evict(16);
  EXPECT_EQ(cache.load(tokens(8), "b").size(), 8u);
  EXPECT_EQ(cache.load(tokens(8), "a").size(), 8u);
  EXPECT_EQ(cache.match(tokens(8)).host_length, 0u);
}

TEST(HostTier, BigramKeysGoToTheHostAndBack) {
  TieredCache cache({.page_size = 4, .cache = {.bigram = true}});
  cache.put(tokens(13));
  cache.settle();
  cache->evict(12);
  EXPECT_EQ(cache.match(tokens(13)).host_length, 12u);
  EXPECT_EQ(cache.load(tokens(13)).size(), 12u);
}

TEST(HostTier, EveryLayoutRoundTrips) {
  for (const HostLayout layout : {HostLayout::layer_first, HostLayout::page_first,
                                  HostLayout::page_first_direct, HostLayout::page_head}) {
    TieredCache cache({.page_size = 4, .layout = layout});
    cache.put(tokens(16));
    cache.settle();
    cache->evict(16);
    EXPECT_EQ(cache.load(tokens(16)).size(), 16u) << to_string(layout);
  }
}

TEST(HostTier, EventsTellWhatIsOnTheHost) {
  TieredCache cache({.page_size = 4, .cache = {.events = true}});
  cache.put(tokens(8));
  (void)cache->take_events();
  cache.settle();
  std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::stored);
  EXPECT_EQ(events[0].tier, Tier::host);
  EXPECT_EQ(events[0].tokens, tokens(8));
  const std::vector<PageHash> hashes = events[0].hashes;
  cache->evict(8);
  cache->tiers().evict_host(8);
  events = cache->take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].tier, Tier::device);
  EXPECT_EQ(events[1].tier, Tier::host);
  EXPECT_EQ(events[1].kind, KvEvent::Kind::removed);
  EXPECT_EQ(events[1].hashes, hashes);
}

TEST(HostTier, ResetEmptiesTheHostToo) {
  TieredCache cache;
  cache.put(tokens(8));
  cache.put(tokens(8, 100));
  EXPECT_TRUE(cache->reset().ok()) << "waits for copies under way";
  EXPECT_EQ(cache.full.host->count(PageState::idle), cache.full.host->num_pages());
  EXPECT_EQ(cache->inspect().num_nodes(), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(HostTier, PollWithNothingUnderWayDoesNothing) {
  TieredCache cache;
  EXPECT_TRUE(cache->poll().idle);
  TestCache plain;
  EXPECT_TRUE(plain->poll().idle);
}

// ---- Refusals ----------------------------------------------------------------------------------

TEST(HostTier, PoolsThatDoNotFitAreRefused) {
  TieredCache good;
  auto allocator = *PagedAllocator::create({.capacity_tokens = 64});
  CacheOptions options = good->options();
  const auto create = [&] { return PrefixCache::create(options, *allocator); };
  options.host->copier = nullptr;
  EXPECT_TRUE(fails(create(), ErrorCode::invalid_argument, "no copier"));
  options = good->options();
  options.host->load_stream = 7;
  EXPECT_TRUE(fails(create(), ErrorCode::invalid_argument, "streams 0 and 7 of a copier"));
  options = good->options();
  options.host->full.host = nullptr;
  EXPECT_TRUE(fails(create(), ErrorCode::invalid_argument, "expected a device pool and a host"));
  options = good->options();
  options.host->state = options.host->full;
  EXPECT_TRUE(fails(create(), ErrorCode::invalid_argument, "no such component"));
  options = good->options();
  auto bigger = *PagedAllocator::create({.capacity_tokens = 65});
  EXPECT_TRUE(fails(PrefixCache::create(options, *bigger), ErrorCode::invalid_argument,
                    "slots are handed out for 66"));
  EXPECT_TRUE(fails(parse_write_policy("sometimes"), ErrorCode::invalid_argument,
                    "expected write_through"));
}

}  // namespace
}  // namespace pando::testing
