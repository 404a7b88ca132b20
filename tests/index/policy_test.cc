// SPDX-License-Identifier: Apache-2.0
// Eviction policies: the order each built-in key makes, smallest first; unknown names; a policy of
// the user's own inside PrefixCache.
#include "pando/policy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

/// Whether `name` evicts a node with stats `first` before one with stats `second`.
bool evicts_before(std::string_view name, const NodeStats& first, const NodeStats& second) {
  const auto policy = *make_policy(name);
  return policy->key(first) < policy->key(second);
}

TEST(Policy, BuiltInsKnowTheirNames) {
  for (const std::string_view name : {"lru", "lfu", "fifo", "filo", "mru", "priority", "slru"})
    EXPECT_EQ((*make_policy(name))->name(), name);
}

TEST(Policy, UnknownNamesAreRefusedWithAListOfTheKnown) {
  EXPECT_TRUE(fails(make_policy("lur"), ErrorCode::invalid_argument,
                    "unknown eviction policy 'lur': expected one of "
                    "lru, lfu, fifo, filo, mru, priority, slru, hazard"));
  EXPECT_FALSE(make_policy("").ok());
}

TEST(Policy, LruEvictsTheLeastRecentlyUsed) {
  EXPECT_TRUE(evicts_before("lru", {.last_access = 1, .hits = 9}, {.last_access = 2}));
}

TEST(Policy, MruEvictsTheMostRecentlyUsed) {
  EXPECT_TRUE(evicts_before("mru", {.last_access = 2}, {.last_access = 1}));
}

TEST(Policy, FifoEvictsTheOldest) {
  EXPECT_TRUE(evicts_before("fifo", {.last_access = 9, .created = 1}, {.created = 2}));
}

TEST(Policy, FiloEvictsTheYoungest) {
  EXPECT_TRUE(evicts_before("filo", {.created = 2}, {.created = 1}));
}

TEST(Policy, LfuEvictsTheLeastUsedThenTheLeastRecent) {
  EXPECT_TRUE(evicts_before("lfu", {.last_access = 9, .hits = 1}, {.last_access = 1, .hits = 2}));
  EXPECT_TRUE(evicts_before("lfu", {.last_access = 1, .hits = 2}, {.last_access = 2, .hits = 2}));
}

TEST(Policy, PriorityEvictsTheLowestThenTheLeastRecent) {
  EXPECT_TRUE(evicts_before("priority", {.last_access = 9, .priority = -1},
                            {.last_access = 1, .priority = 0}));
  EXPECT_TRUE(evicts_before("priority", {.last_access = 9, .priority = INT32_MIN},
                            {.last_access = 1, .priority = INT32_MAX}));
  EXPECT_TRUE(evicts_before("priority", {.last_access = 1, .priority = 3},
                            {.last_access = 2, .priority = 3}));
}

TEST(Policy, SlruEvictsWhatWasHitOnceBeforeWhatWasHitTwice) {
  EXPECT_TRUE(evicts_before("slru", {.last_access = 9, .hits = 1}, {.last_access = 1, .hits = 2}));
  EXPECT_TRUE(evicts_before("slru", {.last_access = 1, .hits = 9}, {.last_access = 2, .hits = 2}));
  EXPECT_TRUE(evicts_before("slru", {.last_access = 1, .hits = 1}, {.last_access = 2, .hits = 0}));
}

// ---- Inside a cache. Three keys: A is made first and hit often, B is used last, C is made last.

struct Outcome {
  std::string_view policy;
  std::string_view order;  // in which the keys are evicted
};

class PolicyInCache : public ::testing::TestWithParam<Outcome> {};

TEST_P(PolicyInCache, EvictsInItsOrder) {
  TestCache cache(1, {}, 1024, GetParam().policy);
  const Tokens a = tokens(2, 10), b = tokens(2, 20), c = tokens(2, 30);
  cache.put(a, {}, {.priority = 1});
  cache.put(b, {}, {.priority = 3});
  cache.put(a, {}, {.priority = 1});
  cache.put(a, {}, {.priority = 1});
  cache.put(c, {}, {.priority = 2});
  cache.put(b, {}, {.priority = 3});
  std::string order;
  for (int i = 0; i < 3; ++i) {
    cache->evict(2);
    for (const auto& [name, key] : {std::pair('A', a), std::pair('B', b), std::pair('C', c)}) {
      if (cache.probe(key) == 0 && order.find(name) == std::string::npos) order += name;
    }
  }
  EXPECT_EQ(order, GetParam().order);
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, PolicyInCache,
                         ::testing::Values(Outcome{"lru", "ACB"}, Outcome{"mru", "BCA"},
                                           Outcome{"fifo", "ABC"}, Outcome{"filo", "CBA"},
                                           Outcome{"lfu", "CBA"}, Outcome{"priority", "ACB"},
                                           Outcome{"slru", "CAB"}),
                         [](const auto& info) { return std::string(info.param.policy); });

/// Evicts the longest edge first.
class LongestFirst final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "longest"; }
  EvictionKey key(const NodeStats& stats) const override {
    return {~std::uint64_t{stats.num_tokens}, stats.last_access};
  }
};

TEST(UserPolicy, DecidesWhatIsEvicted) {
  TestCache cache(1, {}, 1024, std::make_unique<LongestFirst>());
  cache.put(tokens(3, 10));
  cache.put(tokens(8, 20));
  cache.put(tokens(5, 30));
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(8, 20)), 0u);
  cache->evict(5);
  EXPECT_EQ(cache.probe(tokens(5, 30)), 0u);
  EXPECT_EQ(cache.probe(tokens(3, 10)), 3u);
}

TEST(UserPolicy, IsAskedAgainWhenASplitOrATrimChangesTheLength) {
  TestCache cache(1, {}, 1024, std::make_unique<LongestFirst>());
  cache.put(tokens(8, 20));
  cache.put(tokens(5, 30));
  cache.match(tokens(6, 20));  // leaves an edge of two at the end
  EXPECT_TRUE(cache.closes());
  cache->evict(4);  // trims the edge of five
  EXPECT_EQ(cache.probe(tokens(5, 30)), 1u);
  EXPECT_TRUE(cache.closes());
  cache->evict(2);
  EXPECT_EQ(cache.probe(tokens(8, 20)), 6u);
}

}  // namespace
}  // namespace pando::testing
