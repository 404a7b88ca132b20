// SPDX-License-Identifier: Apache-2.0
// Priorities of token ranges, and what is refused of them.
#include "pando/retention.h"

#include <gtest/gtest.h>

#include "pando/paths.h"
#include "support/cache_fixture.h"
#include "support/retention_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kPage = 4;

InsertOptions retained(std::span<const RetentionRange> ranges) { return {.retention = ranges}; }

TEST(Retention, AHigherPriorityIsEvictedLater) {
  ClockedCache cache(kPage);
  const RetentionRange keep{.priority = 50};
  cache.put(tokens(8, 100), {}, retained({&keep, 1}));
  cache.put(tokens(8, 200));
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(8, 100)), 8u);
  EXPECT_EQ(cache.probe(tokens(8, 200)), 0u);
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(8, 100)), 0u);
}

TEST(Retention, BelowZeroIsEvictedBeforeAllThatHasNone) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 200));
  const RetentionRange drop{.priority = -1};
  cache.put(tokens(8, 100), {}, retained({&drop, 1}));
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(8, 100)), 0u);
  EXPECT_EQ(cache.probe(tokens(8, 200)), 8u);
}

TEST(Retention, EqualPrioritiesGoByThePolicy) {
  ClockedCache cache(kPage);
  const RetentionRange keep{.priority = 5};
  for (const Token start : {100, 200, 300}) cache.put(tokens(4, start), {}, retained({&keep, 1}));
  cache.match(tokens(4, 100));
  cache->evict(4);
  EXPECT_EQ(cache.probe(tokens(4, 200)), 0u);
  EXPECT_EQ(cache.probe(tokens(4, 100)), 4u);
}

TEST(Retention, OnlyTheRangeIsKept) {
  ClockedCache cache(kPage);
  const RetentionRange keep{.from = 0, .to = 8, .priority = 1};
  cache.put(tokens(16, 100), {}, retained({&keep, 1}));
  cache.put(tokens(8, 200));
  cache->evict(16);
  EXPECT_EQ(cache.probe(tokens(16, 100)), 8u);
  EXPECT_EQ(cache.probe(tokens(8, 200)), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Retention, FallsBackWhenItsDurationEnds) {
  ClockedCache cache(kPage);
  const RetentionRange keep{.priority = 9, .duration = seconds(10)};
  cache.put(tokens(4, 100), {}, retained({&keep, 1}));
  cache.put(tokens(4, 200));
  cache.pass(seconds(10) - milliseconds(1));
  cache->evict(4);
  EXPECT_EQ(cache.probe(tokens(4, 100)), 4u);
  cache.put(tokens(4, 200));
  cache.pass(milliseconds(1));
  cache->evict(4);
  EXPECT_EQ(cache.probe(tokens(4, 100)), 0u);
}

TEST(Retention, TheHighestThatLastsApplies) {
  ClockedCache cache(kPage);
  const RetentionRange high{.priority = 9, .duration = seconds(1)};
  const RetentionRange low{.priority = 5, .duration = seconds(60)};
  cache.put(tokens(4, 100), {}, retained({&low, 1}));
  cache.put(tokens(4, 100), {}, retained({&high, 1}));
  const RetentionRange middle{.priority = 7};
  cache.put(tokens(4, 200), {}, retained({&middle, 1}));
  cache.put(tokens(4, 300), {}, retained({&low, 1}));
  cache.pass(seconds(2));  // 5, 7, 5
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(4, 200)), 4u);
  EXPECT_TRUE(cache.closes());
}

TEST(Retention, SplitsKeepItOnBothHalves) {
  ClockedCache cache(kPage);
  const RetentionRange keep{.priority = 3, .duration = seconds(5)};
  cache.put(tokens(16, 100), {}, retained({&keep, 1}));
  cache.put(tokens(8, 100) + tokens(4, 900));  // splits
  cache.put(tokens(4, 500));
  cache->evict(8);  // the one that branched off, and the last
  EXPECT_EQ(cache.probe(tokens(16, 100)), 16u);
  cache.pass(seconds(5));
  cache.put(tokens(4, 500));
  cache->evict(16);
  EXPECT_EQ(cache.probe(tokens(16, 100)), 0u);
  EXPECT_EQ(cache.probe(tokens(4, 500)), 4u);
}

TEST(Retention, EndsInsideAPageAreMovedOutwardsAndCounted) {
  ClockedCache cache(kPage);
  const RetentionRange ranges[] = {{.from = 3, .to = 5, .priority = 1}, {.from = 4, .to = 8}};
  const Inserted inserted = cache.put(tokens(12, 100), {}, retained(ranges));
  EXPECT_EQ(inserted.widened_ranges, 1u);
  cache.put(tokens(4, 200));
  cache->evict(8);  // the third page, and the other
  EXPECT_EQ(cache.probe(tokens(12, 100)), 8u);
}

TEST(Retention, OfARequestIsGivenWithWhatItInserts) {
  ClockedCache cache(kPage);
  Running running(tokens(10, 100));
  running.options.retention = {{.from = 0, .to = 6, .priority = 4},
                               {.from = 10, .priority = -5}};  // what it is going to decode
  ASSERT_TRUE(running.start(cache).ok());
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_EQ(running.request.widened_ranges(), 2u);
  cache.put(tokens(4, 200));
  cache->evict(4);
  EXPECT_EQ(cache.probe(tokens(10, 100)), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(Retention, WorksWithWindowsAndSnapshots) {
  CacheOptions options;
  options.window = kPage;
  const auto slots =
      *WindowAllocator::create({.full_tokens = 256, .window_tokens = 256, .page_size = kPage});
  const auto cache = *PrefixCache::create(options, *slots);
  const RetentionRange keep{.priority = 1};
  const auto put = [&](const Tokens& key, std::span<const RetentionRange> ranges) {
    Slots at(key.size());
    slots->alloc(at).value();
    ASSERT_TRUE(cache->paths().insert({key}, at, {.retention = ranges}).ok());
  };
  put(tokens(8, 100), {&keep, 1});
  put(tokens(8, 200), {});
  cache->evict({.window_tokens = 8});
  EXPECT_EQ(cache->paths().probe({tokens(8, 100)}), 8u);
  EXPECT_EQ(cache->paths().probe({tokens(8, 200)}), 0u);
  EXPECT_TRUE(cache->check().ok());
}

TEST(Retention, BadRangesAreRefusedAndChangeNothing) {
  ClockedCache cache(kPage);
  const Tokens key = tokens(8, 100);
  const Slots slots = cache.take(8);
  const Snapshot before(cache);
  const auto refused = [&](const RetentionRange& range, std::string_view message) {
    return fails(cache->paths().insert({key}, slots, retained({&range, 1})),
                 ErrorCode::invalid_argument, message);
  };
  EXPECT_TRUE(refused({.from = 8}, "insert: tokens [8, 8) are to be retained of a request of 8"));
  EXPECT_TRUE(refused({.from = 0, .to = 9}, "tokens [0, 9) are to be retained of a request of 8"));
  EXPECT_TRUE(refused({.from = 4, .to = 4}, "tokens [4, 4)"));
  EXPECT_TRUE(refused({.from = 6, .to = 2}, "tokens [6, 2)"));
  EXPECT_TRUE(refused({.priority = 101}, "priority 101; expected -100 to 100"));
  EXPECT_TRUE(refused({.duration = milliseconds(-5)}, "for -5 ms; expected more than 0"));
  EXPECT_TRUE(refused({.duration = milliseconds(0)}, "for 0 ms; expected more than 0"));
  EXPECT_EQ(Snapshot(cache), before);
  cache.allocator->free(slots);
  Running running(tokens(8, 100));
  running.options.retention = {{.from = 0, .to = 9}};
  EXPECT_TRUE(fails(running.start(cache), ErrorCode::invalid_argument,
                    "start: tokens [0, 9) are to be retained of a request of 8"));
  running.options.retention = {{.priority = 1000}};
  EXPECT_TRUE(fails(running.start(cache), ErrorCode::invalid_argument,
                    "start: tokens from 0 on are to have priority 1000"));
  EXPECT_TRUE(cache.closes());
}

TEST(Retention, IdsOfAnotherCacheAreRefused) {
  ClockedCache one(kPage), two(kPage);
  one.put(tokens(8, 100));
  two.put(tokens(8, 100));
  const PinId pin = one->retention().pin({tokens(8, 100)})->id;
  (void)*two->retention().pin({tokens(8, 100)});
  EXPECT_FALSE(two->retention().unpin(pin).ok());
  const SessionId session = *one->retention().open_session();
  (void)*two->retention().open_session();
  EXPECT_FALSE(two->retention().touch(session).ok());
}

TEST(Retention, BadOptionsAreRefused) {
  const auto refused = [](const RetentionOptions& options, std::string_view message) {
    return fails(options.validate(), ErrorCode::invalid_argument, message);
  };
  RetentionOptions options;
  options.max_pinned_share = 1.5;
  EXPECT_TRUE(refused(options, "max_pinned_share is 1.5; expected a share from 0 to 1"));
  options = {};
  options.session_priority = 1000;
  EXPECT_TRUE(refused(options, "session_priority is 1000; expected -100 to 100"));
  options = {};
  options.tenants = {{.name = "a"}, {.name = "a"}};
  EXPECT_TRUE(refused(options, "tenant 'a' is listed twice"));
}

}  // namespace
}  // namespace pando::testing
