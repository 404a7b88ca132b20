// SPDX-License-Identifier: Apache-2.0
// KV events of PrefixCache: when they are recorded, what they say, how neighbours merge.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

using Hashes = std::vector<PageHash>;
using Kind = KvEvent::Kind;

Hashes hashes(const Tokens& key, std::size_t page_size, std::string_view ns = {}) {
  return *hash_pages(key, page_size, false, chain_start(ns));
}

TEST(KvEvents, AreOffByDefault) {
  TestCache cache;
  cache.put(tokens(4));
  cache->evict(4);
  EXPECT_TRUE(cache->take_events().empty());
}

TEST(KvEvents, StoredTellsPagesTokensAndWhere) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(10), "ns");
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  const KvEvent expected{.kind = Kind::stored,
                         .tier = Tier::device,
                         .hashes = hashes(tokens(8), 4, "ns"),
                         .parent = std::nullopt,
                         .tokens = tokens(8),
                         .block_size = 4,
                         .ns = "ns"};
  EXPECT_EQ(events[0], expected);
}

TEST(KvEvents, TheFirstPageOfAChainHasNoParent) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(4));
  cache.put(tokens(4), make_namespace({.salt = "pepper"}));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_FALSE(events[0].parent);
  EXPECT_FALSE(events[1].parent);
  EXPECT_EQ(block_id(events[0].hashes[0]), -3488128144981237669);
}

TEST(KvEvents, StoredNamesThePageBeforeAsParent) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(8));
  (void)cache->take_events();
  cache.put(tokens(4) + tokens(4, 50));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].parent, hashes(tokens(4), 4)[0]);
  EXPECT_EQ(events[0].hashes, Hashes{hashes(tokens(4) + tokens(4, 50), 4)[1]});
  EXPECT_EQ(events[0].tokens, tokens(4, 50));
}

TEST(KvEvents, BigramPagesCarryOneTokenMore) {
  TestCache cache(2, {.bigram = true, .events = true});
  cache.put(tokens(5));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].hashes, *hash_pages(tokens(5), 2, true));
  EXPECT_EQ(events[0].tokens, tokens(5));
}

TEST(KvEvents, NothingNewIsNotAnEvent) {
  TestCache cache(1, {.events = true});
  cache.put(tokens(4));
  (void)cache->take_events();
  cache.put(tokens(4));
  cache.put(tokens(2));
  cache.match(tokens(3));
  EXPECT_TRUE(cache->take_events().empty());
}

TEST(KvEvents, RemovedNamesThePagesThatLeft) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(12));
  (void)cache->take_events();
  cache->evict(8);
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::removed);
  EXPECT_EQ(events[0].tier, Tier::device);
  const Hashes all = hashes(tokens(12), 4);
  EXPECT_EQ(events[0].hashes, (Hashes{all[1], all[2]}));
}

TEST(KvEvents, ResetIsOneClearedEvent) {
  TestCache cache(1, {.events = true});
  cache.put(tokens(4));
  (void)cache->take_events();
  ASSERT_TRUE(cache->reset().ok());
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::cleared);
  EXPECT_TRUE(events[0].hashes.empty());
}

TEST(KvEvents, RemovalsAreRecordedAgainAfterAReset) {
  TestCache cache(1, {.events = true});
  ASSERT_TRUE(cache->reset().ok());
  cache.put(tokens(2));
  (void)cache->take_events();
  cache->evict(2);
  EXPECT_EQ(cache->take_events().size(), 1u);
}

TEST(KvEvents, AStoredRunThatContinuesTheLastIsMerged) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(4));
  cache.put(tokens(12));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].hashes, hashes(tokens(12), 4));
  EXPECT_EQ(events[0].tokens, tokens(12));
  EXPECT_FALSE(events[0].parent);
}

TEST(KvEvents, ABigramRunIsMergedWithoutRepeatingTheSharedToken) {
  TestCache cache(2, {.bigram = true, .events = true});
  cache.put(tokens(3));
  cache.put(tokens(7));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tokens, tokens(7));
  EXPECT_EQ(events[0].hashes.size(), 3u);
}

TEST(KvEvents, AStoredRunFromElsewhereIsNotMerged) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(8));
  cache.put(tokens(4) + tokens(4, 50));
  cache.put(tokens(4, 90));
  EXPECT_EQ(cache->take_events().size(), 3u);
}

TEST(KvEvents, RemovalsInARowAreMerged) {
  TestCache cache(1, {.events = true});
  cache.put(tokens(2));
  cache.put(tokens(2, 50));
  (void)cache->take_events();
  cache->evict(1);
  cache->evict(3);
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].hashes.size(), 4u);
}

TEST(KvEvents, OrderIsKeptAcrossKinds) {
  TestCache cache(1, {.events = true});
  cache.put(tokens(2));
  cache->evict(2);
  cache.put(tokens(2));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, Kind::stored);
  EXPECT_EQ(events[1].kind, Kind::removed);
  EXPECT_EQ(events[2], events[0]);
}

TEST(KvEvents, AreTakenOnce) {
  TestCache cache(1, {.events = true});
  cache.put(tokens(2));
  EXPECT_EQ(cache->take_events().size(), 1u);
  EXPECT_TRUE(cache->take_events().empty());
}

TEST(KvEvents, AdaptersHaveDifferentHashesForEqualTokens) {
  TestCache cache(4, {.events = true});
  const std::string adapter_1 = make_namespace({.lora = "1"});
  const std::string adapter_2 = make_namespace({.lora = "2"});
  cache.put(tokens(8));
  cache.put(tokens(8), adapter_1);
  cache.put(tokens(8), adapter_2);
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 3u);
  for (std::size_t page = 0; page < 2; ++page) {
    EXPECT_NE(events[0].hashes[page], events[1].hashes[page]);
    EXPECT_NE(events[0].hashes[page], events[2].hashes[page]);
    EXPECT_NE(events[1].hashes[page], events[2].hashes[page]);
  }
  EXPECT_EQ(events[1].ns, adapter_1);
}

TEST(KvEvents, HashesSurviveSplitsAndTrims) {
  TestCache cache(2, {.events = true});
  cache.put(tokens(20));
  cache.match(tokens(6));
  cache->evict(12);
  (void)cache->take_events();
  cache.put(tokens(20));
  const std::vector<KvEvent> events = cache->take_events();
  const Hashes all = hashes(tokens(20), 2);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].parent, all[3]);
  EXPECT_EQ(events[0].hashes, Hashes(all.begin() + 4, all.end()));
  EXPECT_TRUE(cache.closes());
}

TEST(KvEvents, ACheckpointAnnouncesWhatIsNew) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(4));
  (void)cache->take_events();
  Request request = *cache->start(tokens(8));
  ASSERT_TRUE(cache->allocate(request).ok());
  ASSERT_TRUE(cache->checkpoint(request, 8, /*chunked=*/true).ok());
  ASSERT_TRUE(cache->finish(request).ok());
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tokens, tokens(4, 5));
}

}  // namespace
}  // namespace pando::testing
