// SPDX-License-Identifier: Apache-2.0
// Sessions: protected while in use, forgotten when closed.
#include <gtest/gtest.h>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/retention_fixture.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kPage = 4;

TEST(Session, InUseIsEvictedAfterTheRest) {
  ClockedCache cache(kPage);
  const SessionId id = *cache->retention().open_session({.idle_after = seconds(60)});
  cache.put(tokens(8, 100), {}, {.session = id});
  cache.put(tokens(8, 200));
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(8, 100)), 8u);
  EXPECT_EQ(cache.probe(tokens(8, 200)), 0u);
}

TEST(Session, IdleDecaysToNormalAndComesBackWithUse) {
  ClockedCache cache(kPage);
  const SessionId id = *cache->retention().open_session({.idle_after = seconds(60)});
  cache.put(tokens(8, 100), {}, {.session = id});
  cache.pass(seconds(59));
  ASSERT_TRUE(cache->retention().touch(id).ok());
  cache.pass(seconds(59));
  EXPECT_TRUE(cache->retention().sessions()[0].active);
  cache.pass(seconds(1));
  EXPECT_FALSE(cache->retention().sessions()[0].active);
  ASSERT_TRUE(cache->retention().touch(id).ok());
  EXPECT_TRUE(cache->retention().sessions()[0].active);
  cache.put(tokens(8, 200));
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(8, 100)), 8u);
  cache.put(tokens(8, 200));
  cache.pass(seconds(60));
  cache->evict(8);
  EXPECT_EQ(cache.probe(tokens(8, 100)), 0u);
}

TEST(Session, ClosingReleasesWhatOnlyItHasUsed) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100));  // a system prompt, used by somebody without a session
  const SessionId id = *cache->retention().open_session();
  cache.put(tokens(16, 100), {}, {.session = id});
  cache.put(tokens(24, 100), {}, {.session = id});
  EXPECT_EQ(cache->retention().sessions()[0].tokens, 24u);
  ASSERT_TRUE(cache->retention().close_session(id).ok());
  EXPECT_EQ(cache.probe(tokens(24, 100)), 8u);
  EXPECT_EQ(cache->inspect().stats().evicted_tokens, 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Session, WhatOthersUseStays) {
  ClockedCache cache(kPage);
  const SessionId first = *cache->retention().open_session();
  const SessionId second = *cache->retention().open_session();
  cache.put(tokens(16, 100), {}, {.session = first});
  cache.put(tokens(16, 100) + tokens(8, 900), {}, {.session = second});
  ASSERT_TRUE(cache->retention().close_session(first).ok());
  EXPECT_EQ(cache.probe(tokens(16, 100)), 16u);
  ASSERT_TRUE(cache->retention().close_session(second).ok());
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
}

TEST(Session, AMatchBySomebodyElseMakesItShared) {
  ClockedCache cache(kPage);
  const SessionId id = *cache->retention().open_session();
  cache.put(tokens(16, 100), {}, {.session = id});
  cache.match(tokens(8, 100));
  ASSERT_TRUE(cache->retention().close_session(id).ok());
  EXPECT_EQ(cache.probe(tokens(16, 100)), 8u);
}

TEST(Session, BranchesAreReleasedTogether) {
  ClockedCache cache(kPage);
  const SessionId id = *cache->retention().open_session();
  cache.put(tokens(8, 100) + tokens(8, 200), {}, {.session = id});
  cache.put(tokens(8, 100) + tokens(8, 300), {}, {.session = id});
  ASSERT_TRUE(cache->retention().close_session(id).ok());
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
}

TEST(Session, PinnedPartsStay) {
  ClockedCache cache(kPage);
  const SessionId id = *cache->retention().open_session();
  cache.put(tokens(16, 100), {}, {.session = id});
  (void)*cache->retention().pin({tokens(8, 100)});
  ASSERT_TRUE(cache->retention().close_session(id).ok());
  EXPECT_EQ(cache.probe(tokens(16, 100)), 8u);
}

TEST(Session, WhatARequestHoldsGoesWhenItIsDone) {
  ClockedCache cache(kPage);
  const SessionId id = *cache->retention().open_session();
  Running running(tokens(16, 100));
  running.options.session = id;
  ASSERT_TRUE(running.start(cache).ok());
  ASSERT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.checkpoint(cache).ok());
  ASSERT_TRUE(cache->retention().close_session(id).ok());
  EXPECT_EQ(cache.probe(tokens(16, 100)), 16u);
  ASSERT_TRUE(running.abandon(cache).ok());
  cache->poll();
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Session, ClosingReleasesTheHostToo) {
  TieredCache cache;
  const SessionId id = *cache->retention().open_session();
  Running running(tokens(16, 100));
  running.options.session = id;
  ASSERT_TRUE(running.start(cache).ok());
  ASSERT_TRUE(running.allocate(cache).ok());
  cache.compute(tokens(16, 100), running.slots(), 0, 16);
  ASSERT_TRUE(running.finish(cache).ok());
  ASSERT_TRUE(cache->retention().close_session(id).ok());  // the copy to the host is under way
  poll_until_idle(*cache.cache);
  cache->poll();
  EXPECT_EQ(cache->inspect().sizes().total, 0u);
  EXPECT_EQ(cache->inspect().host_sizes().total, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Session, UnknownOnesAreRefused) {
  ClockedCache cache(kPage);
  const SessionId id = *cache->retention().open_session();
  ASSERT_TRUE(cache->retention().close_session(id).ok());
  const std::string message = "there is no session " + std::to_string(id.value) +
                              "; it has been closed, or never was opened";
  EXPECT_TRUE(fails(cache->retention().close_session(id), ErrorCode::stale_handle, message));
  EXPECT_TRUE(fails(cache->retention().touch(id), ErrorCode::stale_handle, message));
  EXPECT_TRUE(
      fails(cache->retention().touch({}), ErrorCode::stale_handle, "there is no session 0"));
  Running running(tokens(16, 100));
  running.options.session = id;
  EXPECT_TRUE(fails(running.start(cache), ErrorCode::stale_handle, message));
  const Slots slots = cache.take(8);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(8, 100)}, slots, {.session = id}),
                    ErrorCode::stale_handle, message));
  EXPECT_TRUE(fails(cache->retention().open_session({.idle_after = seconds(0)}),
                    ErrorCode::invalid_argument, "idle_after is 0 ms; expected more than 0"));
}

}  // namespace
}  // namespace pando::testing
