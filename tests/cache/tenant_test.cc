// SPDX-License-Identifier: Apache-2.0
// Tenants: floors that nobody else takes, caps beyond which one gives first, and what is counted.
#include <gtest/gtest.h>

#include "base/random.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"
#include "support/retention_fixture.h"
#include "support/step_copier.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kPage = 4;

const std::string kA = make_namespace({.tenant = "a"});
const std::string kB = make_namespace({.tenant = "b"});

RetentionOptions shares(std::size_t a_floor, std::size_t a_cap, std::size_t b_floor = 0) {
  RetentionOptions retention;
  retention.tenants = {{.name = "a", .device_floor = a_floor, .device_cap = a_cap},
                       {.name = "b", .device_floor = b_floor}};
  return retention;
}

std::size_t device_tokens(const TestCache& cache, std::string_view tenant) {
  return cache->retention().tenant_usage(tenant)->device_tokens;
}

TEST(Tenant, IsWhoseNamespaceItIs) {
  ClockedCache cache(kPage, shares(0, 64));
  cache.put(tokens(8, 100), kA);
  cache.put(tokens(8, 100), make_namespace({.lora = "x", .tenant = "a"}));
  cache.put(tokens(4, 100), kB);
  cache.put(tokens(12, 100));                                    // nobody's
  cache.put(tokens(4, 100), make_namespace({.tenant = "who"}));  // not known
  cache.put(tokens(4, 100), "anything");
  EXPECT_EQ(device_tokens(cache, "a"), 16u);
  EXPECT_EQ(device_tokens(cache, "b"), 4u);
  EXPECT_EQ(device_tokens(cache, ""), 20u);
  ASSERT_TRUE(cache->retention().assign_namespace("anything", "b").ok());
  EXPECT_EQ(device_tokens(cache, "b"), 8u);
  EXPECT_EQ(device_tokens(cache, ""), 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, MadeLaterGetsWhatIsItsAlready) {
  ClockedCache cache(kPage);
  cache.put(tokens(8, 100), kA);
  ASSERT_TRUE(cache->retention().set_tenant({.name = "a", .device_floor = 16}).ok());
  EXPECT_EQ(device_tokens(cache, "a"), 8u);
  EXPECT_EQ(cache->evict(1000).tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, NobodyElseTakesFromItsFloor) {
  ClockedCache cache(kPage, shares(16, 256));
  cache.put(tokens(16, 100), kA);
  cache.put(tokens(8, 200), kA);
  cache.put(tokens(16, 300), kB);
  EXPECT_EQ(cache->evict({.tokens = 1000, .ns = kB}).tokens, 24u);
  EXPECT_EQ(device_tokens(cache, "a"), 16u);
  EXPECT_EQ(cache->evict(1000).tokens, 0u);  // for nobody in particular
  EXPECT_EQ(cache->evict({.tokens = 1000, .ns = kA}).tokens, 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, BelowItsFloorTakesFromOthersFirst) {
  ClockedCache cache(kPage, shares(16, 256));
  cache.put(tokens(8, 100), kA);
  cache.put(tokens(8, 200), kB);
  EXPECT_EQ(cache->evict({.tokens = 8, .ns = kA}).tokens, 8u);
  EXPECT_EQ(device_tokens(cache, "a"), 8u);  // though it was the older one
  EXPECT_EQ(device_tokens(cache, "b"), 0u);
}

TEST(Tenant, AnUnusedFloorIsLent) {
  ClockedCache cache(kPage, shares(32, 64), 64);
  cache.put(tokens(64, 100), kB);
  EXPECT_EQ(device_tokens(cache, "b"), 64u);
  Running running(tokens(32, 500), kA);
  ASSERT_TRUE(running.start(cache).ok());
  ASSERT_TRUE(running.allocate(cache).ok());  // and taken back
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_EQ(device_tokens(cache, "a"), 32u);
  EXPECT_EQ(device_tokens(cache, "b"), 32u);
}

TEST(Tenant, BeyondItsCapGivesItsOwnOldest) {
  ClockedCache cache(kPage, shares(0, 16));
  cache.put(tokens(8, 900), kB);
  cache.put(tokens(8, 100), kA);
  cache.put(tokens(8, 200), kA);
  cache.put(tokens(8, 300), kA);
  EXPECT_EQ(device_tokens(cache, "a"), 16u);
  EXPECT_EQ(cache.probe(tokens(8, 100), kA), 0u);
  EXPECT_EQ(cache.probe(tokens(8, 300), kA), 8u);
  EXPECT_EQ(cache.probe(tokens(8, 900), kB), 8u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, ALowerCapTakesEffectAtOnce) {
  ClockedCache cache(kPage, shares(0, 64));
  cache.put(tokens(16, 100), kA);
  cache.put(tokens(16, 200), kA);
  ASSERT_TRUE(cache->retention().set_tenant({.name = "a", .device_cap = 16}).ok());
  EXPECT_EQ(device_tokens(cache, "a"), 16u);
  EXPECT_EQ(cache.probe(tokens(16, 200), kA), 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, WhatWasInsertedJustNowStays) {
  ClockedCache cache(kPage, shares(0, 8));
  const Inserted inserted = cache.put(tokens(24, 100), kA);
  EXPECT_TRUE(cache->paths().lock(inserted.match()).ok());
  EXPECT_EQ(device_tokens(cache, "a"), 24u);
  cache.put(tokens(8, 900), kB);
  cache.match(tokens(24, 100), kA);
  EXPECT_EQ(cache->evict({.tokens = 16, .ns = kB}).tokens, 16u);  // from the one above its cap
  EXPECT_EQ(device_tokens(cache, "a"), 8u);
  EXPECT_EQ(device_tokens(cache, "b"), 8u);
}

TEST(Tenant, AllocationForOneAtItsCapTakesFromItself) {
  ClockedCache cache(kPage, shares(0, 32), 64);
  cache.put(tokens(32, 900), kB);
  cache.put(tokens(32, 100), kA);
  Running running(tokens(16, 500), kA);
  ASSERT_TRUE(running.start(cache).ok());
  ASSERT_TRUE(running.allocate(cache).ok());
  EXPECT_EQ(device_tokens(cache, "a"), 16u);
  EXPECT_EQ(device_tokens(cache, "b"), 32u);
  ASSERT_TRUE(running.finish(cache).ok());
}

TEST(Tenant, AllocationThatWouldTouchAFloorFails) {
  ClockedCache cache(kPage, shares(48, 64), 64);
  cache.put(tokens(48, 100), kA);
  Running running(tokens(24, 500), kB);
  ASSERT_TRUE(running.start(cache).ok());
  EXPECT_TRUE(fails(running.allocate(cache), ErrorCode::out_of_capacity,
                    "needs 24 tokens in whole pages; 16 are free and 0 evictable"));
  ASSERT_TRUE(running.abandon(cache).ok());
  EXPECT_EQ(device_tokens(cache, "a"), 48u);
}

TEST(Tenant, SharedPrefixesHaveAnOwnerWithLimitsOfItsOwn) {
  RetentionOptions retention = shares(0, 64);
  retention.tenants.push_back({.name = "", .device_floor = 16, .device_cap = 24});
  ClockedCache cache(kPage, retention);
  cache.put(tokens(16, 100));
  cache.put(tokens(16, 200), kA);
  EXPECT_EQ(cache->evict({.tokens = 1000, .ns = kA}).tokens, 16u);
  EXPECT_EQ(device_tokens(cache, ""), 16u);
  cache.put(tokens(16, 300));
  EXPECT_EQ(device_tokens(cache, ""), 24u);
}

TEST(Tenant, HasSharesOfTheHostToo) {
  TierSetup setup;
  setup.host_tokens = 64;
  setup.cache.retention.tenants = {{.name = "a", .host_floor = 16}, {.name = "b", .host_cap = 32}};
  TieredCache cache(setup);
  const auto put = [&](Token start, const std::string& ns) {
    cache.put(tokens(16, start), ns);
    poll_until_idle(*cache.cache);
    cache->evict({.tokens = 64, .ns = kA});
    cache->evict({.tokens = 64, .ns = kB});
  };
  put(100, kA);
  for (const Token start : {200, 300, 400, 500, 600}) put(start, kB);
  EXPECT_EQ(cache->retention().tenant_usage("b")->host_tokens, 32u);
  EXPECT_EQ(cache->retention().tenant_usage("a")->host_tokens, 16u);
  cache->tiers().evict_host(1000);
  EXPECT_EQ(cache->retention().tenant_usage("a")->host_tokens, 16u);
  EXPECT_EQ(cache->retention().tenant_usage("b")->host_tokens, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, AtItsHostCapGivesItsOwn) {
  TierSetup setup;
  setup.host_tokens = 128;
  setup.cache.retention.tenants = {{.name = "b", .host_cap = 16}};
  TieredCache cache(setup);
  const auto put = [&](Token start, const std::string& ns) {
    cache.put(tokens(16, start), ns);
    poll_until_idle(*cache.cache);
    cache->evict({.tokens = 64, .ns = ns});
  };
  put(100, "");  // the oldest of all
  put(200, kB);
  put(300, kB);
  EXPECT_EQ(cache.match(tokens(16, 100)).host_length, 16u);
  EXPECT_EQ(cache.match(tokens(16, 200), kB).host_length, 0u);
  EXPECT_EQ(cache.match(tokens(16, 300), kB).host_length, 16u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, BadLimitsAreRefusedAndChangeNothing) {
  ClockedCache cache(kPage, shares(16, 64), 64);
  EXPECT_TRUE(fails(cache->retention().set_tenant({.name = "b", .device_floor = 52}),
                    ErrorCode::invalid_argument,
                    "floors add up to 68 device tokens; expected at most the 64 there are"));
  EXPECT_TRUE(
      fails(cache->retention().set_tenant({.name = "b", .device_floor = 20, .device_cap = 10}),
            ErrorCode::invalid_argument,
            "tenant 'b': a floor of 20 device tokens is above its cap of 10"));
  EXPECT_TRUE(fails(cache->retention().set_tenant({.name = "b", .host_floor = 8}),
                    ErrorCode::invalid_argument,
                    "tenant 'b': a share of host tokens in a cache that has none"));
  EXPECT_TRUE(fails(cache->retention().assign_namespace("x", "nobody"), ErrorCode::invalid_argument,
                    "assign_namespace: unknown tenant 'nobody'; there are: '' 'a' 'b'"));
  EXPECT_TRUE(fails(cache->retention().tenant_usage("nobody"), ErrorCode::invalid_argument,
                    "unknown tenant 'nobody'"));
  EXPECT_EQ(cache->retention().tenant_usage("b")->limits.device_floor, 0u);

  CacheOptions options;
  options.retention = shares(200, 256, 100);
  const auto slots = *PagedAllocator::create({.capacity_tokens = 256, .page_size = kPage});
  EXPECT_TRUE(fails(PrefixCache::create(options, *slots), ErrorCode::invalid_argument,
                    "floors add up to 300 device tokens; expected at most the 256 there are"));
}

// ---- A flood -----------------------------------------------------------------------------------

/// Chats of a tenant: each turn repeats what was said and adds to it; a few go on at a time.
class Chats {
 public:
  Tokens next() {
    Tokens& chat = chats_[random_.below(chats_.size())];
    if (chat.size() > 160 || chat.empty()) chat = tokens(12, 1);  // the system prompt
    for (std::size_t i = 0; i < 12; ++i) chat.push_back(static_cast<Token>(random_.below(50000)));
    return chat;
  }

 private:
  Random random_{7};
  std::vector<Tokens> chats_ = std::vector<Tokens>(24);
};

std::size_t serve(TestCache& cache, const Tokens& prompt, std::string_view ns) {
  Running running(prompt, ns);
  const std::size_t cached = running.start(cache)->length;
  running.allocate(cache).value();
  running.finish(cache).value();
  return cached;
}

double hit_ratio(TestCache& cache, bool flooded) {
  Chats chats;
  Random random(3);
  std::size_t hits = 0;
  std::size_t sum = 0;
  for (int i = 0; i < 4000; ++i) {
    const Tokens prompt = chats.next();
    hits += serve(cache, prompt, kA);
    sum += prompt.size();
    for (int k = 0; flooded && k < 4; ++k) {
      Tokens unique(100);
      for (Token& token : unique) token = static_cast<Token>(random.below(1 << 30));
      serve(cache, unique, kB);
    }
  }
  EXPECT_TRUE(cache.closes());
  return static_cast<double>(hits) / static_cast<double>(sum);
}

TEST(Tenant, AFloodByAnotherCostsLittle) {
  constexpr std::size_t kFloor = 1200;
  for (const std::string_view policy : {"lru", "hazard"}) {
    TestCache alone(kPage, {}, kFloor, policy);
    TestCache flooded(kPage, {.retention = shares(kFloor, SIZE_MAX)}, 4 * kFloor, policy);
    TestCache unprotected(kPage, {}, 4 * kFloor, policy);
    const double by_itself = hit_ratio(alone, false);
    EXPECT_GT(by_itself, 0.3) << policy;
    EXPECT_GE(hit_ratio(flooded, true), by_itself - 0.02) << policy;
    if (policy != "lru") continue;
    EXPECT_LT(hit_ratio(unprotected, true), by_itself - 0.1);
  }
}

TEST(Tenant, AHostCapCountsNobodyElsesPagesInFlight) {
  StepCopier copier;
  TierSetup setup;
  setup.copier = &copier;
  setup.device_tokens = 256;
  setup.host_tokens = 256;
  setup.cache.retention.tenants = {{.name = "capped", .host_cap = 100}};
  TieredCache cache(setup);
  cache->retention().assign_namespace("capped", "capped").value();
  for (Token i = 0; i < 5; ++i) cache.put(tokens(10, 100 * i), "capped");
  copier.run_all();
  cache.settle();
  cache->evict(SIZE_MAX);
  ASSERT_EQ(cache->retention().tenant_usage("capped")->host_tokens, 50u);
  cache.put(tokens(80, 1000), "other");  // under way
  cache.put(tokens(10, 2000), "capped");
  copier.run_all();
  cache.settle();
  EXPECT_EQ(cache->retention().tenant_usage("capped")->host_tokens, 60u);
  EXPECT_TRUE(cache.closes());
}

TEST(Tenant, AHostCapCountsOnesOwnPagesInFlight) {
  StepCopier copier;
  TierSetup setup;
  setup.copier = &copier;
  setup.device_tokens = 256;
  setup.cache.retention.tenants = {{.name = "capped", .host_cap = 20}};
  TieredCache cache(setup);
  cache->retention().assign_namespace("capped", "capped").value();
  for (Token i = 0; i < 3; ++i) cache.put(tokens(10, 100 * i), "capped");
  copier.run_all();
  cache.settle();
  EXPECT_EQ(cache->retention().tenant_usage("capped")->host_tokens, 20u)
      << "the third found no room";
  EXPECT_TRUE(cache.closes());
}

}  // namespace
}  // namespace pando::testing
