// SPDX-License-Identifier: Apache-2.0
// Pins: what they hold, on which tier, for how long, and how much may be pinned.
#include <gtest/gtest.h>

#include "pando/paths.h"
#include "support/cache_fixture.h"
#include "support/retention_fixture.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kPage = 4;

TEST(Pin, HoldsAPathWithoutARequest) {
  ClockedCache cache(kPage);
  cache.put(tokens(16, 100));
  const Pinned pinned = *cache->retention().pin({tokens(16, 100)});
  EXPECT_EQ(pinned.length, 16u);
  EXPECT_EQ(cache->evict(1000).tokens, 0u);
  EXPECT_EQ(cache->retention().pinned_tokens(), 16u);
  ASSERT_TRUE(cache->retention().unpin(pinned.id).ok());
  EXPECT_EQ(cache->retention().pinned_tokens(), 0u);
  EXPECT_EQ(cache->evict(1000).tokens, 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Pin, HoldsWhatIsThereOfTheKey) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100));
  EXPECT_EQ(cache->retention().pin({tokens(30, 100)})->length, 8u);
  EXPECT_TRUE(fails(cache->retention().pin({tokens(8, 500)}), ErrorCode::invalid_argument,
                    "pin: nothing of this key of 8 tokens is on the device"));
}

TEST(Pin, IsCounted) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100));
  const PinId first = cache->retention().pin({tokens(8, 100)})->id;
  const PinId second = cache->retention().pin({tokens(8, 100)})->id;
  EXPECT_EQ(cache->retention().pinned_tokens(), 8u);  // both hold the same
  ASSERT_TRUE(cache->retention().unpin(first).ok());
  EXPECT_EQ(cache->evict(1000).tokens, 0u);
  EXPECT_TRUE(
      fails(cache->retention().unpin(first), ErrorCode::stale_handle, "unpin: there is no pin "));
  ASSERT_TRUE(cache->retention().unpin(second).ok());
  EXPECT_EQ(cache->evict(1000).tokens, 8u);
}

TEST(Pin, IsListed) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100), "a");
  cache.put(tokens(12, 100), "b");
  (void)*cache->retention().pin({tokens(8, 100), "a"});
  (void)*cache->retention().pin({tokens(12, 100), "b"}, {.kind = PinKind::soft, .ttl = seconds(3)});
  cache.pass(seconds(1));
  const std::vector<Pin> pins = cache->retention().pins();
  ASSERT_EQ(pins.size(), 2u);
  EXPECT_EQ(pins[0].ns, "a");
  EXPECT_EQ(pins[0].length, 8u);
  EXPECT_EQ(pins[0].remaining, std::nullopt);
  EXPECT_EQ(pins[1].kind, PinKind::soft);
  EXPECT_TRUE(pins[1].on_device);  // there is nowhere else
  EXPECT_EQ(pins[1].remaining, seconds(2));
}

TEST(Pin, EndsWithItsTimeToLive) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100));
  (void)*cache->retention().pin({tokens(8, 100)}, {.ttl = seconds(5)});
  cache.pass(milliseconds(4999));
  EXPECT_EQ(cache->evict(1000).tokens, 0u);
  cache.pass(milliseconds(1));
  EXPECT_TRUE(cache->retention().pins().empty());
  EXPECT_EQ(cache->evict(1000).tokens, 8u);
}

TEST(Pin, EndsWhenRoomIsMadeToo) {
  ClockedCache cache(kPage, {}, 16);
  cache.put(tokens(8, 100));
  (void)*cache->retention().pin({tokens(8, 100)}, {.ttl = seconds(5)});
  cache.advance(seconds(5));
  Running running(tokens(16, 500));
  ASSERT_TRUE(running.start(cache).ok());
  EXPECT_TRUE(running.allocate(cache).ok());
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(Pin, SurvivesSplits) {
  ClockedCache cache(kPage);
  cache.put(tokens(16, 100));
  const PinId id = cache->retention().pin({tokens(16, 100)})->id;
  cache.put(tokens(8, 100) + tokens(8, 900));
  EXPECT_EQ(cache->retention().pins()[0].length, 16u);
  EXPECT_EQ(cache->evict(1000).tokens, 8u);
  EXPECT_EQ(cache.probe(tokens(16, 100)), 16u);
  EXPECT_TRUE(cache->retention().unpin(id).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(Pin, BeyondTheShareIsRefused) {
  RetentionOptions retention;
  retention.max_pinned_share = 0.25;
  ClockedCache cache(kPage, retention, 64);
  cache.put(tokens(12, 100));
  cache.put(tokens(8, 100) + tokens(8, 900));
  (void)*cache->retention().pin({tokens(12, 100)});
  const Snapshot before(cache);
  EXPECT_TRUE(fails(cache->retention().pin({tokens(8, 100) + tokens(8, 900)}),
                    ErrorCode::out_of_capacity,
                    "pin: 8 tokens more beside 12 that are pinned on the device; at most 16 may "
                    "be, which is max_pinned_share 0.25 of 64"));
  EXPECT_EQ(Snapshot(cache), before);
  (void)*cache->retention().pin({tokens(8, 100)});  // adds nothing
}

TEST(Pin, RefusesATimeThatIsOver) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100));
  EXPECT_TRUE(fails(cache->retention().pin({tokens(8, 100)}, {.ttl = seconds(-1)}),
                    ErrorCode::invalid_argument, "pin: a ttl of -1000 ms; expected more than 0"));
}

TEST(Pin, EndsWithReset) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100));
  (void)*cache->retention().pin({tokens(8, 100)});
  ASSERT_TRUE(cache->reset().ok());
  EXPECT_TRUE(cache->retention().pins().empty());
  EXPECT_EQ(cache->retention().pinned_tokens(), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Pin, HardStaysOnTheDevice) {
  TieredCache cache;
  cache.put(tokens(16, 100));
  poll_until_idle(*cache.cache);
  (void)*cache->retention().pin({tokens(16, 100)});
  cache->evict(64);
  cache->tiers().evict_host(1000);
  EXPECT_EQ(cache->paths().probe({tokens(16, 100)}), 16u);
}

TEST(Pin, SoftMayLeaveTheDeviceOnceTheHostHasIt) {
  TieredCache cache;
  cache.put(tokens(16, 100));
  poll_until_idle(*cache.cache);
  (void)*cache->retention().pin({tokens(16, 100)}, {.kind = PinKind::soft});
  EXPECT_FALSE(cache->retention().pins()[0].on_device);
  EXPECT_EQ(cache->evict(64).demoted_tokens, 16u);
  cache->tiers().evict_host(1000);
  const Match found = cache.match(tokens(16, 100));
  EXPECT_EQ(found.length, 0u);
  EXPECT_EQ(found.host_length, 16u);
  EXPECT_EQ(cache.load(tokens(16, 100)).size(), 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Pin, SoftIsBackedUpWhateverTheWritePolicy) {
  TieredCache cache({.write_policy = WritePolicy::write_back});
  cache.put(tokens(16, 100));
  (void)*cache->retention().pin({tokens(16, 100)}, {.kind = PinKind::soft});
  EXPECT_TRUE(cache->retention().pins()[0].on_device);
  EXPECT_EQ(cache->evict(64).tokens, 0u);
  poll_until_idle(*cache.cache);
  EXPECT_FALSE(cache->retention().pins()[0].on_device);
  EXPECT_EQ(cache->evict(64).demoted_tokens, 16u);
  EXPECT_EQ(cache.match(tokens(16, 100)).host_length, 16u);
  ASSERT_TRUE(cache->retention().unpin(cache->retention().pins()[0].id).ok());
  EXPECT_EQ(cache->tiers().evict_host(1000), 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Pin, SoftStaysOnTheDeviceWhereTheHostHasNoRoom) {
  TierSetup setup;
  setup.write_policy = WritePolicy::write_back;
  setup.host_tokens = 8;
  TieredCache cache(setup);
  cache.put(tokens(16, 100));
  (void)*cache->retention().pin({tokens(16, 100)}, {.kind = PinKind::soft});
  poll_until_idle(*cache.cache);
  EXPECT_TRUE(cache->retention().pins()[0].on_device);
  EXPECT_EQ(cache->evict(64).tokens, 0u);
}

TEST(Pin, HoldsWindowAndSnapshot) {
  TierSetup setup;
  setup.page_size = kPage;
  setup.cache.window = kPage;
  setup.cache.state.emplace();
  for (const PinKind kind : {PinKind::hard, PinKind::soft}) {
    TieredCache cache(setup);
    cache.put(tokens(16, 100));
    poll_until_idle(*cache.cache);
    (void)*cache->retention().pin({tokens(16, 100)}, {.kind = kind});
    cache->evict({.tokens = 64, .window_tokens = 64, .snapshots = 8});
    cache->tiers().evict_host(1000);
    const Match found = cache.match(tokens(16, 100));
    EXPECT_EQ(found.length + found.host_length, 16u);
    EXPECT_EQ(found.length, kind == PinKind::hard ? 16u : 0u);
    EXPECT_TRUE(cache.closes());
  }
}

}  // namespace
}  // namespace pando::testing
