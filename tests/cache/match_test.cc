// SPDX-License-Identifier: Apache-2.0
// PrefixCache::match and probe: how long a match is, which slots it gives, why it ends, what it
// changes; partly matching pages; namespaces.
#include <gtest/gtest.h>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

class MatchPages : public ::testing::TestWithParam<std::size_t> {};

TEST_P(MatchPages, FindsWholePagesAndTheirSlots) {
  const std::size_t page = GetParam();
  TestCache cache(page, {}, 8 * page);
  const Tokens key = tokens(3 * page);
  const Slots slots = cache.take(key.size());
  (void)cache->paths().insert({key}, slots).value();

  EXPECT_EQ(cache.slots_of(key), slots);
  EXPECT_EQ(cache.match(key).length, 3 * page);
  EXPECT_EQ(cache.match(key + tokens(page, 900'000)).length, 3 * page);
  EXPECT_EQ(cache.match(tokens(2 * page)).length, 2 * page);
  EXPECT_TRUE(cache.closes());
}

TEST_P(MatchPages, RoundsAKeyDownToAPage) {
  const std::size_t page = GetParam();
  TestCache cache(page, {}, 8 * page);
  cache.put(tokens(3 * page));
  EXPECT_EQ(cache.match(tokens(3 * page - 1)).length, (3 * page - 1) / page * page);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MatchPages, ::testing::Values(1, 2, 16, 64, 128, 4096));

TEST(PrefixCacheMatch, WritesSlotsAcrossNodes) {
  TestCache cache(2);
  const Slots first = cache.take(4);
  (void)cache->paths().insert({tokens(4)}, first).value();
  Slots second = first;
  for (const SlotId slot : cache.take(4)) second.push_back(slot);
  (void)cache->paths().insert({tokens(8)}, second, {.owned_by_tree = 4}).value();

  EXPECT_EQ(cache.slots_of(tokens(8)), second);
  EXPECT_EQ(cache.slots_of(tokens(6)), Slots(second.begin(), second.begin() + 6));
}

TEST(PrefixCacheMatch, LeavesTheRestOfTheBufferAlone) {
  TestCache cache;
  cache.put(tokens(2));
  Slots out(4, SlotId{-7});
  ASSERT_EQ(cache->paths().match({tokens(4)}, out)->length, 2u);
  EXPECT_EQ(out[2], SlotId{-7});
  EXPECT_EQ(out[3], SlotId{-7});
}

TEST(PrefixCacheMatch, NodeNamesTheEndOfTheMatch) {
  TestCache cache;
  const Inserted inserted = cache.put(tokens(4));
  EXPECT_EQ(cache.match(tokens(4)).node, inserted.node);
  EXPECT_NE(cache.match(tokens(2)).node, inserted.node);
  EXPECT_FALSE(cache.match(tokens(2, 50)).node);
}

TEST(PrefixCacheMatch, DifferentTokensWithOneFirstPageShareIt) {
  TestCache cache(4);
  cache.put(tokens(4) + tokens(4, 100));
  cache.put(tokens(4) + tokens(4, 200));
  EXPECT_EQ(cache->inspect().sizes().total, 12u);
  EXPECT_EQ(cache.match(tokens(4) + tokens(4, 200)).length, 8u);
  EXPECT_EQ(cache.match(tokens(4) + tokens(4, 300)).length, 4u);
}

// ---- Why a match ends.

TEST(PrefixCacheMatchEnd, WholeKey) {
  TestCache cache(4);
  cache.put(tokens(8));
  EXPECT_EQ(cache.match(tokens(8)).end, MatchEnd::whole_key);
  EXPECT_EQ(cache.match(tokens(4)).end, MatchEnd::whole_key);
}

TEST(PrefixCacheMatchEnd, NoSuchChild) {
  TestCache cache(4);
  cache.put(tokens(8));
  EXPECT_EQ(cache.match(tokens(4) + tokens(4, 50)).end, MatchEnd::no_such_child);
  EXPECT_EQ(cache.match(tokens(12)).end, MatchEnd::no_such_child);
  EXPECT_EQ(cache.match(tokens(8, 50)).end, MatchEnd::no_such_child);
}

TEST(PrefixCacheMatchEnd, PageBoundary) {
  TestCache cache(4);
  cache.put(tokens(8));
  EXPECT_EQ(cache.match(tokens(7)).end, MatchEnd::page_boundary);
  EXPECT_EQ(cache.match(tokens(3)).end, MatchEnd::page_boundary);
  EXPECT_EQ(cache.match(tokens(3)).length, 0u);
}

TEST(PrefixCacheMatchEnd, NamespaceUnknown) {
  TestCache cache;
  EXPECT_EQ(cache.match(tokens(3)).end, MatchEnd::namespace_unknown);
  cache.put(tokens(3));
  EXPECT_EQ(cache.match(tokens(3), "other").end, MatchEnd::namespace_unknown);
}

TEST(PrefixCacheMatchEnd, NamespaceUnknownAgainOnceItsLastPageIsEvicted) {
  TestCache cache;
  cache.put(tokens(3), "a");
  EXPECT_EQ(cache->evict(3).tokens, 3u);
  EXPECT_EQ(cache.match(tokens(3), "a").end, MatchEnd::namespace_unknown);
  EXPECT_EQ(cache->inspect().num_nodes(), 0u);
}

TEST(PrefixCacheMatchEnd, Disabled) {
  TestCache cache(1, {.disabled = true});
  EXPECT_EQ(cache.match(tokens(3)).end, MatchEnd::disabled);
}

TEST(PrefixCacheMatchEnd, HasReadableNames) {
  EXPECT_EQ(to_string(MatchEnd::whole_key), "whole key");
  EXPECT_EQ(to_string(MatchEnd::no_such_child), "no such child");
  EXPECT_EQ(to_string(MatchEnd::page_boundary), "page boundary");
  EXPECT_EQ(to_string(MatchEnd::namespace_unknown), "namespace unknown");
  EXPECT_EQ(to_string(MatchEnd::disabled), "disabled");
}

// ---- Bigram keys: n tokens are n - 1 units.

TEST(PrefixCacheBigram, LengthIsOneLessThanTheTokens) {
  TestCache cache(1, {.bigram = true});
  EXPECT_EQ(cache.put(tokens(5)).length, 4u);
  const Match match = cache.match(tokens(5));
  EXPECT_EQ(match.length, 4u);
  EXPECT_EQ(match.end, MatchEnd::whole_key);
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheBigram, AUnitAgreesOnlyWithBothItsTokens) {
  TestCache cache(1, {.bigram = true});
  cache.put({1, 2, 3, 4, 5});
  EXPECT_EQ(cache.match({1, 2, 3, 9, 5}).length, 2u);
  EXPECT_EQ(cache.match({1, 9}).length, 0u);
}

TEST(PrefixCacheBigram, APageReadsOneTokenMore) {
  TestCache cache(4, {.bigram = true});
  EXPECT_EQ(cache.put(tokens(9)).length, 8u);
  EXPECT_EQ(cache.match(tokens(8)).length, 4u);
  EXPECT_EQ(cache.match(tokens(9)).length, 8u);
  EXPECT_EQ(cache.match(tokens(8) + Tokens{77}).length, 4u);
}

TEST(PrefixCacheBigram, ASingleTokenIsNoUnit) {
  TestCache cache(1, {.bigram = true});
  cache.put(tokens(3));
  EXPECT_EQ(cache.match(tokens(1)).length, 0u);
}

// ---- Namespaces.

TEST(PrefixCacheNamespace, EqualTokensNeverShare) {
  TestCache cache(4);
  const std::string adapter_1 = make_namespace({.lora = "1"});
  const std::string adapter_2 = make_namespace({.lora = "2"});
  cache.put(tokens(8), adapter_1);
  EXPECT_EQ(cache.probe(tokens(8), adapter_2), 0u);
  EXPECT_EQ(cache.probe(tokens(8)), 0u);

  EXPECT_EQ(cache.put(tokens(8), adapter_2).existing, 0u);
  EXPECT_EQ(cache.put(tokens(8)).existing, 0u);
  EXPECT_EQ(cache->inspect().sizes().total, 24u);
  EXPECT_NE(cache.slots_of(tokens(8), adapter_1), cache.slots_of(tokens(8), adapter_2));
}

TEST(PrefixCacheNamespace, PartialMatchesStayInside) {
  TestCache cache(4);
  cache.put(tokens(8), "a");
  cache.put(tokens(4, 50), "b");
  const Match match = cache.match(tokens(3), "b");
  EXPECT_EQ(match.length, 0u);
  EXPECT_EQ(match.partial_length, 0u);
}

TEST(PrefixCacheNamespace, NamesAreBytesNotText) {
  TestCache cache;
  const std::string_view with_zero("a\0b", 3);
  cache.put(tokens(3), with_zero);
  EXPECT_EQ(cache.probe(tokens(3), with_zero), 3u);
  EXPECT_EQ(cache.probe(tokens(3), "a"), 0u);
}

// ---- Partly matching pages.

TEST(PrefixCachePartial, CountsFurtherTokensInsideTheNextPage) {
  TestCache cache(4);
  const Slots slots = cache.take(8);
  (void)cache->paths().insert({tokens(8)}, slots).value();
  const Match match = cache.match({1, 2, 3, 4, 5, 6, 99, 100});
  EXPECT_EQ(match.length, 4u);
  EXPECT_EQ(match.partial_length, 2u);
  EXPECT_EQ(match.partial_slot, slots[4]);
  EXPECT_TRUE(match.partial_node);
}

TEST(PrefixCachePartial, CountsTheUnalignedEndOfAKey) {
  TestCache cache(4);
  const Slots slots = cache.take(8);
  (void)cache->paths().insert({tokens(8)}, slots).value();
  const Match match = cache.match(tokens(7));
  EXPECT_EQ(match.length, 4u);
  EXPECT_EQ(match.partial_length, 3u);
  EXPECT_EQ(match.partial_slot, slots[4]);
}

TEST(PrefixCachePartial, PicksTheChildThatAgreesLongest) {
  TestCache cache(4);
  cache.put({1, 9, 9, 9});
  cache.put({1, 2, 3, 9});
  cache.put({1, 2, 9, 9});
  const Match match = cache.match({1, 2, 3, 4});
  EXPECT_EQ(match.partial_length, 3u);
  EXPECT_EQ(match.partial_slot, cache.slots_of({1, 2, 3, 9})[0]);
}

TEST(PrefixCachePartial, BigramNeedsBothTokensOfAUnit) {
  TestCache cache(4, {.bigram = true});
  cache.put(tokens(5));
  EXPECT_EQ(cache.match({1, 2, 3, 99, 99}).partial_length, 2u);
  EXPECT_EQ(cache.match({1, 99, 99, 99, 99}).partial_length, 0u);
}

TEST(PrefixCachePartial, NothingAfterTheWholeKey) {
  TestCache cache(4);
  cache.put(tokens(8));
  const Match match = cache.match(tokens(4));
  EXPECT_EQ(match.partial_length, 0u);
  EXPECT_FALSE(match.partial_node);
}

TEST(PrefixCachePartial, CanBeSwitchedOff) {
  TestCache cache(4, {.partial_pages = false});
  cache.put(tokens(8));
  const Match match = cache.match(tokens(7));
  EXPECT_EQ(match.length, 4u);
  EXPECT_EQ(match.partial_length, 0u);
  EXPECT_FALSE(match.partial_node);
}

// ---- Probe.

TEST(PrefixCacheProbe, GivesTheLengthOfAMatch) {
  TestCache cache(4);
  cache.put(tokens(8));
  cache.put(tokens(4) + tokens(4, 50));
  for (const Tokens& key : {tokens(8), tokens(7), tokens(3), tokens(12), tokens(4, 50), Tokens{}})
    EXPECT_EQ(cache.probe(key), key.empty() ? 0 : cache.match(key).length);
}

TEST(PrefixCacheProbe, ChangesNothing) {
  TestCache cache(2);
  cache.put(tokens(8));
  cache.put(tokens(4, 50));
  const std::string before = cache->inspect().dump();
  EXPECT_EQ(cache.probe(tokens(4)), 4u);
  EXPECT_EQ(cache.probe(tokens(5)), 4u);
  EXPECT_EQ(cache.probe(tokens(4), "unknown"), 0u);
  EXPECT_EQ(cache->inspect().dump(), before);
}

TEST(PrefixCacheProbe, DoesNotKeepAlive) {
  TestCache cache;
  cache.put(tokens(4));
  cache.put(tokens(4, 50));
  EXPECT_EQ(cache.probe(tokens(4)), 4u);
  cache->evict(4);
  EXPECT_EQ(cache.probe(tokens(4)), 0u);
  EXPECT_EQ(cache.probe(tokens(4, 50)), 4u);
}

TEST(PrefixCacheProbe, AnswersABatch) {
  TestCache cache;
  cache.put(tokens(4));
  cache.put(tokens(2), "ns");
  const Tokens a = tokens(4), b = tokens(3), c = tokens(3, 70);
  const Key keys[] = {{a}, {b, "ns"}, {c}, {{}}};
  std::size_t lengths[4] = {9, 9, 9, 9};
  cache->paths().probe(keys, lengths);
  EXPECT_EQ(std::vector<std::size_t>(lengths, lengths + 4), (std::vector<std::size_t>{4, 2, 0, 0}));
}

TEST(PrefixCacheProbe, FindsNothingInADisabledCache) {
  TestCache cache(1, {.disabled = true});
  cache.put(tokens(4));
  EXPECT_EQ(cache.probe(tokens(4)), 0u);
}

}  // namespace
}  // namespace pando::testing
