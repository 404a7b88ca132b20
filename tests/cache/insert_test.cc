// SPDX-License-Identifier: Apache-2.0
// PrefixCache::insert: what the tree takes, what stays the caller's, which duplicates are freed,
// priorities and hits, disabled mode, and an engine's own slots behind a sink.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

TEST(PrefixCacheInsert, ReportsWhatIsNew) {
  TestCache cache(4);
  const Inserted inserted = cache.put(tokens(8));
  EXPECT_EQ(inserted.length, 8u);
  EXPECT_EQ(inserted.existing, 0u);
  EXPECT_EQ(inserted.freed, 0u);
  EXPECT_TRUE(inserted.node);
  EXPECT_EQ(cache->inspect().stats().inserted_tokens, 8u);
}

TEST(PrefixCacheInsert, TheUnalignedTailStaysTheCallers) {
  TestCache cache(4);
  const Slots slots = cache.take(7);
  const Inserted inserted = *cache->paths().insert({tokens(7)}, slots);
  EXPECT_EQ(inserted.length, 4u);
  EXPECT_TRUE(cache.closes(4));
  EXPECT_FALSE(cache.allocator->is_free(PageId{2}));
  EXPECT_EQ(cache->inspect().all_slots(), Slots(slots.begin(), slots.begin() + 4));
}

TEST(PrefixCacheInsert, TheSlotOfABigramKeysLastTokenStaysTheCallers) {
  TestCache cache(1, {.bigram = true});
  const Slots slots = cache.take(4);
  EXPECT_EQ(cache->paths().insert({tokens(4)}, slots)->length, 3u);
  EXPECT_TRUE(cache.closes(1));
}

TEST(PrefixCacheInsert, FreesExactlyTheDuplicates) {
  TestCache cache(4);
  const Slots first = cache.take(8);
  const Slots second = cache.take(12);
  (void)cache->paths().insert({tokens(8)}, first).value();
  const Inserted inserted = *cache->paths().insert({tokens(12)}, second);
  EXPECT_EQ(inserted.length, 12u);
  EXPECT_EQ(inserted.existing, 8u);
  EXPECT_EQ(inserted.freed, 8u);
  EXPECT_EQ(cache->inspect().stats().duplicate_tokens, 8u);
  EXPECT_TRUE(cache.allocator->is_free(PageId{3}));
  EXPECT_TRUE(cache.allocator->is_free(PageId{4}));
  EXPECT_FALSE(cache.allocator->is_free(PageId{5}));
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheInsert, AnOverlapInsideANodeFreesOnlyWhatAgrees) {
  TestCache cache;
  cache.put(tokens(6));
  const Inserted inserted = cache.put(tokens(3) + tokens(3, 50));
  EXPECT_EQ(inserted.existing, 3u);
  EXPECT_EQ(inserted.freed, 3u);
  EXPECT_EQ(cache->inspect().sizes().total, 9u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheInsert, SlotsOwnedByTheTreeAreNotFreed) {
  TestCache cache(2);
  cache.put(tokens(4));
  Slots slots = cache.slots_of(tokens(4));
  for (const SlotId slot : cache.take(2)) slots.push_back(slot);
  const Inserted inserted = *cache->paths().insert({tokens(6)}, slots, {.owned_by_tree = 4});
  EXPECT_EQ(inserted.existing, 4u);
  EXPECT_EQ(inserted.freed, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheInsert, WhatALeaseHoldsIsNotLookedAtAgain) {
  TestCache cache(2);
  cache.put(tokens(6));
  const Lease lease = *cache->paths().lock(*cache->paths().match({tokens(4)}));  // splits the node
  Slots slots(4, SlotId{-1});
  for (const SlotId slot : cache.take(4)) slots.push_back(slot);
  std::vector<Token> key(4, Token{-1});
  for (const Token token : {9, 9, 8, 8}) key.push_back(token);
  const Inserted inserted =
      *cache->paths().insert({key}, slots, {.owned_by_tree = 4, .held = &lease});
  EXPECT_EQ(inserted.existing, 4u);
  EXPECT_EQ(inserted.length, 8u);
  EXPECT_EQ(cache->paths().probe({tokens(4) + std::vector<Token>{9, 9, 8, 8}}), 8u);
  EXPECT_EQ(cache->paths().probe({tokens(6)}), 6u);
  const Lease end = *cache->paths().lock(inserted.match());
  EXPECT_EQ(end.node(), inserted.node);
  EXPECT_EQ(cache->inspect().sizes().protected_tokens, 8u);
}

TEST(PrefixCacheInsert, BehindALeaseOnSomethingElseIsRefused) {
  TestCache cache(4);
  TestCache stranger(4);
  cache.put(tokens(8));
  const Lease lease = *cache->paths().lock(*cache->paths().match({tokens(8)}));
  const Slots slots = cache.slots_of(tokens(8)) + cache.take(4);
  const auto refusal = [&](TestCache& of, std::size_t n, std::size_t owned, const char* ns) {
    const std::vector<Token> key = tokens(n);
    const auto result = of->paths().insert({key, ns}, std::span(slots).first(n),
                                           {.owned_by_tree = owned, .held = &lease});
    return result.ok() ? "" : result.error().message;
  };
  EXPECT_EQ(refusal(cache, 12, 4, ""),
            "insert: the lease holds 8 tokens; expected the first 4 of a key of 12");
  EXPECT_EQ(refusal(cache, 7, 8, ""),
            "insert: the lease holds 8 tokens; expected the first 8 of a key of 7");
  EXPECT_EQ(refusal(cache, 12, 8, "other"),
            "insert: the lease is in namespace '', the key in 'other'");
  EXPECT_EQ(refusal(stranger, 12, 8, ""), "insert: the lease is of another cache");
  EXPECT_EQ(refusal(cache, 12, 8, ""), "");
}

TEST(PrefixCacheInsert, BehindALeaseThatHoldsNothing) {
  TestCache cache(2);
  const Lease none;
  const Inserted inserted = *cache->paths().insert({tokens(4)}, cache.take(4), {.held = &none});
  EXPECT_EQ(inserted.length, 4u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheInsert, TheTreesOwnSlotsMayComeBackUnannounced) {
  TestCache cache(2);
  cache.put(tokens(4));
  const Slots slots = cache.slots_of(tokens(4));
  const Inserted inserted = *cache->paths().insert({tokens(4)}, slots);
  EXPECT_EQ(inserted.freed, 0u);
  EXPECT_EQ(cache.slots_of(tokens(4)), slots);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheInsert, AnInsertInsideANodeSplitsIt) {
  TestCache cache;
  cache.put(tokens(6));
  ASSERT_EQ(cache->inspect().num_nodes(), 2u);  // the namespace and one edge
  cache.put(tokens(4));
  EXPECT_EQ(cache->inspect().num_nodes(), 3u);
  EXPECT_EQ(cache->inspect().sizes().total, 6u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheInsert, CanFillThePoolCompletely) {
  TestCache cache(4, {}, 64);
  cache.put(tokens(64));
  EXPECT_EQ(cache->inspect().sizes().total, 64u);
  EXPECT_EQ(cache.allocator->available(), 0u);
  EXPECT_TRUE(cache.closes());
}

// ---- Priorities and hits.

TEST(PrefixCachePriority, IsRaisedAlongTheWholePath) {
  TestCache cache(1, {}, 1024, "priority");
  cache.put(tokens(2), {}, {.priority = 1});
  cache.put(tokens(4), {}, {.priority = 1});
  cache.put(tokens(2, 50), {}, {.priority = 3});
  cache.put(tokens(6), {}, {.priority = 5});  // raises the two edges above it
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(2, 50)), 0u);
  EXPECT_EQ(cache.probe(tokens(6)), 6u);
}

TEST(PrefixCachePriority, IsNeverLowered) {
  TestCache cache(1, {}, 1024, "priority");
  cache.put(tokens(2), {}, {.priority = 5});
  cache.put(tokens(2), {}, {.priority = -5});
  cache.put(tokens(2, 50), {}, {.priority = 3});
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(2)), 2u);
}

TEST(PrefixCachePriority, BelowZeroGoesFirst) {
  TestCache cache(1, {}, 1024, "priority");
  cache.put(tokens(2));
  cache.put(tokens(2, 50), {}, {.priority = -1});
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(2)), 2u);
  EXPECT_EQ(cache.probe(tokens(2, 50)), 0u);
}

TEST(PrefixCachePriority, ASplitGivesItToBothHalves) {
  TestCache cache(1, {}, 1024, "priority");
  cache.put(tokens(4), {}, {.priority = 5});
  cache.match(tokens(2));
  cache.put(tokens(4, 50), {}, {.priority = 3});
  cache->evict(6);
  EXPECT_EQ(cache.probe(tokens(4)), 2u);
  EXPECT_EQ(cache.probe(tokens(4, 50)), 0u);
}

TEST(PrefixCacheHits, ChunkedInsertsDoNotCount) {
  TestCache cache(1, {}, 1024, "lfu");
  cache.put(tokens(2));
  cache.put(tokens(2));
  for (int i = 0; i < 5; ++i) cache.put(tokens(2, 50), {}, {.chunked = true});
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(2)), 2u);
  EXPECT_EQ(cache.probe(tokens(2, 50)), 0u);
}

TEST(PrefixCacheHits, MatchesDoNotCount) {
  TestCache cache(1, {}, 1024, "lfu");
  cache.put(tokens(2));
  cache.put(tokens(2));
  cache.put(tokens(2, 50));
  for (int i = 0; i < 5; ++i) cache.match(tokens(2, 50));
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(2, 50)), 0u);
}

// ---- Disabled: nothing is kept.

TEST(PrefixCacheDisabled, InsertGivesTheSlotsBack) {
  TestCache cache(4, {.disabled = true});
  const Inserted inserted = cache.put(tokens(8));
  EXPECT_EQ(inserted.length, 0u);
  EXPECT_EQ(inserted.freed, 8u);
  EXPECT_EQ(cache->inspect().sizes(), Sizes{});
  EXPECT_EQ(cache->inspect().num_nodes(), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheDisabled, LocksNothing) {
  TestCache cache(1, {.disabled = true});
  cache.put(tokens(4));
  const Lease lease = cache.hold(tokens(4));
  EXPECT_FALSE(lease);
  EXPECT_EQ(cache->evict(4).tokens, 0u);
}

// ---- Over an engine's own slots.

struct SinkCache {
  explicit SinkCache(std::size_t page_size = 1, std::size_t max_slots = 64)
      : cache(*PrefixCache::create(
            {}, EngineSlots{.max_slots = max_slots,
                            .page_size = page_size,
                            .free = [this](std::span<const SlotId> slots) {
                              batches.emplace_back(slots.begin(), slots.end());
                              std::sort(batches.back().begin(), batches.back().end());
                            }})) {}
  PrefixCache* operator->() const { return cache.get(); }

  std::vector<Slots> batches;
  std::unique_ptr<PrefixCache> cache;
};

TEST(PrefixCacheSink, GetsAllDuplicatesInOneBatch) {
  SinkCache cache;
  (void)cache->paths().insert({tokens(4)}, slot_range(10, 14)).value();
  EXPECT_TRUE(cache.batches.empty());
  (void)cache->paths().insert({tokens(6)}, slot_range(20, 26)).value();
  ASSERT_EQ(cache.batches.size(), 1u);
  EXPECT_EQ(cache.batches[0], slot_range(20, 24));
  EXPECT_TRUE(cache->check().ok());
}

TEST(PrefixCacheSink, GetsAllVictimsOfAnEvictionInOneBatch) {
  SinkCache cache(4);
  (void)cache->paths().insert({tokens(8)}, slot_range(8, 16)).value();
  (void)cache->paths().insert({tokens(8, 50)}, slot_range(16, 24)).value();
  EXPECT_EQ(cache->evict(12).tokens, 12u);
  ASSERT_EQ(cache.batches.size(), 1u);
  EXPECT_EQ(cache.batches[0], slot_range(8, 16) + slot_range(20, 24));
}

TEST(PrefixCacheSink, GetsDuplicatesAndTailOfARequestInOneBatch) {
  SinkCache cache(4);
  (void)cache->paths().insert({tokens(4)}, slot_range(4, 8)).value();
  Request request = *cache->start(tokens(10), {.recompute = SIZE_MAX});
  ASSERT_TRUE(cache->give_slots(request, slot_range(8, 18)).ok());
  ASSERT_TRUE(cache->finish(request).ok());
  ASSERT_EQ(cache.batches.size(), 1u);
  EXPECT_EQ(cache.batches[0], slot_range(8, 12) + slot_range(16, 18));
  EXPECT_EQ(cache->inspect().sizes().total, 8u);
}

TEST(PrefixCacheSink, GetsEverythingByTheEnd) {
  std::vector<Slots> batches;
  {
    SinkCache cache;
    (void)cache->paths().insert({tokens(4)}, slot_range(1, 5)).value();
    (void)cache->paths().insert({tokens(4, 50)}, slot_range(5, 9)).value();
    cache.cache.reset();
    batches = cache.batches;
  }
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0], slot_range(1, 9));
}

TEST(PrefixCacheSink, GivesEachSlotBackOnce) {
  SinkCache cache;
  (void)cache->paths().insert({tokens(4)}, slot_range(1, 5)).value();
  (void)cache->paths().insert({tokens(4)}, slot_range(5, 9)).value();
  (void)cache->paths().insert({tokens(2)}, slot_range(9, 11)).value();
  ASSERT_TRUE(cache->reset().ok());
  Slots all;
  for (const Slots& batch : cache.batches) all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, slot_range(1, 11));
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
}

TEST(PrefixCacheSink, HasNothingToAllocateFrom) {
  SinkCache cache;
  Request request = *cache->start(tokens(4));
  EXPECT_TRUE(fails(cache->allocate(request), ErrorCode::unavailable, "engine's own slots"));
}

TEST(PrefixCacheSink, SlotsThatAreTheTreesOrDoNotExistAreNotARequestsOwn) {
  SinkCache cache(4);
  (void)cache->paths().insert({tokens(4)}, slot_range(4, 8)).value();
  Request request = *cache->start(tokens(8, 50));
  for (const std::int64_t first : {-1, 0, 4, 1 << 30})
    EXPECT_FALSE(cache->give_slots(request, slot_range(first, first + 4)).ok()) << first;
  EXPECT_TRUE(request.slots().empty());
  EXPECT_TRUE(fails(cache->give_slots(request, slot_range(4, 8)), ErrorCode::invalid_argument,
                    "give_slots: slot 4 at position 0 is the tree's"));
}

}  // namespace
}  // namespace pando::testing
