// SPDX-License-Identifier: Apache-2.0
// What a PrefixCache tells of itself: sizes, slots, the readable dump, and that all of it depends
// on the calls alone.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

TEST(PrefixCacheSizes, AddUpAfterEveryStep) {
  TestCache cache(2);
  EXPECT_EQ(cache->inspect().sizes(), Sizes{});
  cache.put(tokens(6));
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 6, .protected_tokens = 0, .total = 6}));
  Lease lease = cache.hold(tokens(4));
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 2, .protected_tokens = 4, .total = 6}));
  cache->evict(1);
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 0, .protected_tokens = 4, .total = 4}));
  lease.release();
  EXPECT_EQ(cache->inspect().sizes(), (Sizes{.evictable = 4, .protected_tokens = 0, .total = 4}));
}

TEST(PrefixCacheAllSlots, ComePathByPathInTokenOrder) {
  TestCache cache(2);
  const Slots later = cache.take(4);
  const Slots earlier = cache.take(2);
  const Slots elsewhere = cache.take(2);
  (void)cache->paths().insert({tokens(2, 1) + tokens(2, 50)}, later).value();
  const Tokens sibling = tokens(2, 1) + tokens(2, 20);
  const Slots sibling_slots{later[0], later[1], earlier[0], earlier[1]};
  (void)cache->paths().insert({sibling}, sibling_slots, {.owned_by_tree = 2}).value();
  (void)cache->paths().insert({tokens(2), "ns"}, elsewhere).value();

  const Slots expected =
      Slots{later[0], later[1]} + earlier + Slots{later[2], later[3]} + elsewhere;
  EXPECT_EQ(cache->inspect().all_slots(), expected);
}

TEST(PrefixCacheAllSlots, AreNoneInAnEmptyCache) {
  TestCache cache;
  EXPECT_TRUE(cache->inspect().all_slots().empty());
}

TEST(PrefixCacheDump, ShowsOneNodeALine) {
  TestCache cache(2);
  cache.put(tokens(2) + tokens(2, 50));
  cache.put(tokens(2) + tokens(2, 20), {}, {.priority = 7});
  const Lease lease = cache.hold(tokens(2) + tokens(2, 20));
  EXPECT_EQ(cache->inspect().dump(),
            "namespace \"\"\n"
            "  [0, 2) tokens 1 2 pages 1 locks 1 hits 2 priority 7 used 3\n"
            "    [2, 4) tokens 20 21 pages 4 locks 1 hits 1 priority 7 used 3\n"
            "    [2, 4) tokens 50 51 pages 2 locks 0 hits 1 priority 0 used 1 evictable\n"
            "6 tokens, 2 evictable, 4 protected, 4 nodes\n");
}

TEST(PrefixCacheDump, ListsNamespacesByNameAndCutsLongEdges) {
  TestCache cache;
  cache.put(tokens(20), "b");
  cache.put(tokens(1), "a");
  EXPECT_EQ(cache->inspect().dump(),
            "namespace \"a\"\n"
            "  [0, 1) tokens 1 pages 21 locks 0 hits 1 priority 0 used 2 evictable\n"
            "namespace \"b\"\n"
            "  [0, 20) tokens 1 2 3 4 5 6 7 8 ... pages 1 2 3 4 5 6 7 8 ... locks 0 hits 1 "
            "priority 0 used 1 evictable\n"
            "21 tokens, 21 evictable, 0 protected, 4 nodes\n");
}

TEST(PrefixCacheDump, DoesNotDependOnTheHashSeed) {
  const auto run = [](std::optional<std::uint64_t> seed) {
    TestCache cache(2, {.hash_seed = seed}, 256);
    for (Token i = 0; i < 60; ++i) {
      if (cache.allocator->available() < 16) cache->evict(16);
      cache.put(tokens(4, i % 7) + tokens(12, 100 * (i % 11)), i % 3 == 0 ? "ns" : "");
      cache.match(tokens(6, i % 5));
    }
    EXPECT_TRUE(cache.closes());
    return cache->inspect().dump();
  };
  const std::string first = run(1);
  EXPECT_EQ(first, run(2));
  EXPECT_EQ(first, run(std::nullopt));
}

TEST(PrefixCacheStats, CountTokens) {
  TestCache cache;
  cache.put(tokens(6));
  cache.put(tokens(4) + tokens(2, 50));
  cache->evict(3);
  const CacheStats stats = cache->inspect().stats();
  EXPECT_EQ(stats.inserted_tokens, 8u);
  EXPECT_EQ(stats.duplicate_tokens, 4u);
  EXPECT_EQ(stats.evicted_tokens, 3u);
  EXPECT_EQ(stats.evicted_nodes, 1u);
}

TEST(PrefixCacheOptions, AreKept) {
  TestCache cache(8, {.bigram = true});
  EXPECT_EQ(cache->page_size(), 8u);
  EXPECT_TRUE(cache->options().bigram);
}

}  // namespace
}  // namespace pando::testing
