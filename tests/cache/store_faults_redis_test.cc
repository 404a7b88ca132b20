// SPDX-License-Identifier: Apache-2.0
// A cache over Redis servers that die, come back, hang, or hand over to a replica, while requests
// go on: each is over in time, no row is ever wrong, and what is there again is used again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "support/redis_server.h"
#include "support/request_loop.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;
using Clock = RequestLoop::Clock;

// Of one call to the store. A request makes two, one after the other.
constexpr auto kCallTimeout = 1000ms;
constexpr auto kRequestLimit = 2 * kCallTimeout + 10s;
constexpr auto kForEver = 60s;

struct Attach {
  const char* policy = "wait_complete";
  std::chrono::milliseconds timeout = kCallTimeout;
  bool cluster = false;
};

class StoreFaultsRedis : public ::testing::Test {
 protected:
  explicit StoreFaultsRedis(const TierSetup& setup = loop_setup()) : cache_(setup) {}
  void SetUp() override { PANDO_REQUIRE_REDIS(); }

  void attach(const std::string& address, const Attach& how = {}) {
    StorageOptions o;
    o.backend = "redis";
    o.options = fmt::format(
        R"({{"servers": ["{}"], "cluster": {}, "min_backoff": 0.01, "max_backoff": 0.05,
             "io_timeout": 60, "prefetch_threshold": 1, "prefetch_timeout_base": 0.05}})",
        address, how.cluster);
    o.scope.model = "test/model";
    o.queues.timeout = how.timeout;
    o.prefetch_policy = how.policy;
    cache_->tiers().attach_storage(o).value();
  }
  /// Serves rounds of keys [first, end) until the condition holds.
  bool serve_until(std::size_t first, std::size_t end, const std::function<bool()>& condition) {
    const Clock::time_point over = Clock::now() + RequestLoop::kPatience;
    do loop_.serve(first, end);
    while (!condition() && Clock::now() < over);
    return condition();
  }
  /// The same until pages are put and fetched that were not before.
  bool serve_until_used(std::size_t first, std::size_t end) {
    const TierStats before = tier();
    return serve_until(first, end, [&] {
      return tier().stored_tokens > before.stored_tokens &&
             tier().prefetched_tokens > before.prefetched_tokens;
    });
  }
  TierStats tier() const { return cache_->tiers().stats(); }
  StoreStats store() const { return cache_->tiers().storage_stats(); }

  TieredCache cache_;
  RequestLoop loop_{cache_, kRequestLimit};
};

TEST_F(StoreFaultsRedis, AServerThatDiesAndComesBackIsUsedAgain) {
  RedisServer server;
  attach(server.address());
  EXPECT_TRUE(serve_until_used(0, 12));
  EXPECT_EQ(tier().failed_puts, 0u);

  loop_.serve(RequestLoop::key(13), [&] { server.kill(); });
  EXPECT_TRUE(serve_until(12, 24, [&] {
    return loop_.settle() && tier().failed_puts > 0 && store().failed_pages > tier().failed_puts;
  })) << "puts fail, and so do reads";

  server.restart();
  EXPECT_TRUE(serve_until_used(24, 36));
  EXPECT_GT(store().backend.reconnects, 0u);
  loop_.expect_store_works(100);
  loop_.expect_nothing_leaks();
}

class StoreFaultsRedisKills : public StoreFaultsRedis,
                              public ::testing::WithParamInterface<LoopCase> {
 protected:
  StoreFaultsRedisKills() : StoreFaultsRedis(GetParam().setup) {}
};

INSTANTIATE_TEST_SUITE_P(Every, StoreFaultsRedisKills, ::testing::ValuesIn(loop_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(StoreFaultsRedisKills, OverAndOverCostMissesOnly) {
  RedisServer server;
  attach(server.address());
  for (std::size_t round = 0; round < 10; ++round) {
    loop_.serve(0, 12);
    loop_.serve(RequestLoop::key(round), [&] { server.kill(); });
    loop_.serve(20, 23);
    server.restart();
  }
  EXPECT_GT(store().failed_pages, 0u);
  EXPECT_TRUE(serve_until_used(24, 36));
  EXPECT_GT(store().backend.reconnects, 0u);
  loop_.expect_store_works(100);
  loop_.expect_nothing_leaks();
}

TEST_F(StoreFaultsRedis, AServerThatHangsIsNotWaitedForAndCanBeDetachedFrom) {
  RedisServer server;
  attach(server.address(), {.policy = "timeout", .timeout = kForEver});
  loop_.store(0, 8);
  loop_.forget();
  const std::uint64_t revoked = tier().revoked_prefetches;
  const std::uint64_t cancelled = store().cancelled_calls;
  server.freeze();
  EXPECT_EQ(loop_.serve(0, 12), 0u);
  EXPECT_GT(tier().revoked_prefetches, revoked) << "nobody had answered";
  EXPECT_GT(store().cancelled_calls, cancelled);
  EXPECT_EQ(store().timed_out_calls, 0u);

  (void)cache_->prefetch({RequestLoop::key(200)});
  EXPECT_FALSE(cache_->poll().idle);
  const Clock::time_point before = Clock::now();
  cache_->tiers().detach_storage().value();
  EXPECT_LT(Clock::now() - before, kForEver / 2);
  EXPECT_TRUE(cache_.closes());
  loop_.serve(0, 8);

  server.thaw();
  attach(server.address());
  loop_.expect_store_works(100);
  loop_.expect_nothing_leaks();
}

TEST_F(StoreFaultsRedis, AServerThatHangsForAWhileIsUsedAgain) {
  RedisServer server;
  attach(server.address(), {.policy = "timeout"});
  loop_.store(0, 4);
  loop_.serve(RequestLoop::key(5), [&] { server.freeze(); });
  EXPECT_TRUE(serve_until(5, 12, [&] { return tier().failed_puts > 0; }));
  EXPECT_GT(store().timed_out_calls, 0u);
  server.thaw();
  EXPECT_TRUE(serve_until_used(12, 24));
  loop_.expect_nothing_leaks();
}

TEST_F(StoreFaultsRedis, AMasterOfAClusterThatDiesIsReplaced) {
  constexpr std::size_t kKeys = 16, kPages = kKeys / 4 * 2 + kKeys * 6;
  RedisCluster cluster(3, 1);
  attach(cluster.server(0).address(), {.cluster = true});
  loop_.store(0, kKeys);
  EXPECT_EQ(tier().failed_puts, 0u);
  const auto replicated = [&] {
    std::size_t total = 0;
    for (std::size_t i = 0; i < cluster.size(); ++i)
      total += std::stoul(cluster.server(i).command({"DBSIZE"}));
    return total == 2 * kPages;
  };
  ASSERT_TRUE(eventually(replicated));

  loop_.forget();
  loop_.serve(RequestLoop::key(0), [&] { cluster.kill(1); });
  EXPECT_TRUE(serve_until(0, kKeys, [&] { return store().failed_pages > 0; }));

  // Once the replica has taken over, every key as a whole.
  const auto all_hit = [&] {
    std::size_t fetched = 0;
    for (std::size_t i = 0; i < kKeys; ++i) {
      loop_.forget();
      fetched += loop_.serve(RequestLoop::key(i));
    }
    return fetched == kKeys * RequestLoop::kKeyTokens;
  };
  EXPECT_TRUE(eventually(all_hit, RequestLoop::kPatience));
  const std::uint64_t failed = tier().failed_puts;
  loop_.expect_store_works(100);
  EXPECT_EQ(tier().failed_puts, failed);
  loop_.expect_nothing_leaks();
}

}  // namespace
}  // namespace pando::testing
