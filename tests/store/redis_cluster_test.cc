// SPDX-License-Identifier: Apache-2.0
// The Redis backend against a real cluster of three masters with a replica each, shared by the
// cases in their order: the last one kills a master.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "pando/store_backends.h"
#include "store/redis/key_slot.h"
#include "support/redis_pages.h"
#include "support/redis_server.h"
#include "support/script_server.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;
using Kind = StoreBatch::Kind;

constexpr std::size_t kNumMasters = 3;

class RedisClusterStore : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (have_redis()) cluster_ = std::make_unique<RedisCluster>(kNumMasters, 1);
  }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override {
    PANDO_REQUIRE_REDIS();
    options_.servers = {cluster_->server(0).address()};
    options_.cluster = true;
    store_ = make_redis_store(options_).value();
    ASSERT_TRUE(store_->clear().ok());
  }

  void put(const Pages& pages) {
    const auto batch = call(*store_, Kind::put, pages);
    ASSERT_EQ(batch->num_leading(), pages.size()) << message(*batch);
  }
  void expect_back(const Pages& pages, const std::string& name) {
    Pages read(name, pages.size(), pages.list().front().size_bytes(), 3, 99);
    const auto batch = call(*store_, Kind::get, read);
    EXPECT_EQ(batch->num_leading(), pages.size()) << message(*batch);
    EXPECT_TRUE(read.same_bytes(pages));
  }
  static std::uint16_t slot_of(const std::string& key) {
    return redis::key_slot(fmt::format("pando:{}", key));
  }

  // Opens the slot for moving; its keys still are where they were.
  void begin_move(std::uint16_t slot, std::size_t from, std::size_t to) {
    const std::string number = std::to_string(slot);
    ASSERT_EQ(cluster_->server(to).command(
                  {"CLUSTER", "SETSLOT", number, "IMPORTING", cluster_->id(from)}),
              "OK");
    ASSERT_EQ(cluster_->server(from).command(
                  {"CLUSTER", "SETSLOT", number, "MIGRATING", cluster_->id(to)}),
              "OK");
  }
  void move_key(const std::string& key, std::size_t from, std::size_t to) {
    ASSERT_EQ(cluster_->server(from).command({"MIGRATE", "127.0.0.1",
                                              std::to_string(cluster_->server(to).port()),
                                              fmt::format("pando:{}", key), "0", "5000"}),
              "OK");
  }
  void end_move(std::uint16_t slot, std::size_t from, std::size_t to) {
    for (const std::size_t i : {to, from})
      ASSERT_EQ(cluster_->server(i).command(
                    {"CLUSTER", "SETSLOT", std::to_string(slot), "NODE", cluster_->id(to)}),
                "OK");
  }

  static inline std::unique_ptr<RedisCluster> cluster_;
  RedisStoreOptions options_;
  std::unique_ptr<StoreBackend> store_;
};

TEST_F(RedisClusterStore, SpreadsPagesOverAllMastersAndFindsThem) {
  const Pages pages("p", 300, 20000, 2);
  put(pages);
  expect_back(pages, "p");
  for (std::size_t i = 0; i < kNumMasters; ++i)
    EXPECT_GT(std::stoi(cluster_->server(i).command({"DBSIZE"})), 50);
  EXPECT_EQ(call(*store_, Kind::exists, Pages("p", 310, 0))->num_leading(), 300u);
  std::set<std::string> keys;
  EXPECT_TRUE(store_
                  ->list([&](const StoredPage& page) {
                    EXPECT_EQ(page.size_bytes, 20000u);
                    return keys.insert(page.key).second;
                  })
                  .ok());
  EXPECT_EQ(keys.size(), 300u);
  EXPECT_EQ(call(*store_, Kind::remove, Pages("p", 100, 0))->num_leading(), 100u);
  EXPECT_EQ(count(*call(*store_, Kind::exists, pages), PageOutcome::missing), 100u);
  ASSERT_TRUE(store_->clear().ok());
  for (std::size_t i = 0; i < kNumMasters; ++i)
    EXPECT_EQ(cluster_->server(i).command({"DBSIZE"}), "0");
}

TEST_F(RedisClusterStore, AnyNodeWillDoToBeginWithAndDeadOnesDoNot) {
  options_.servers = {"127.0.0.1:1", cluster_->server(kNumMasters).address()};
  store_ = make_redis_store(options_).value();
  const Pages pages("p", 30, 1000);
  put(pages);
  expect_back(pages, "p");
}

TEST_F(RedisClusterStore, SaysWhyWhenThereIsNoCluster) {
  RedisServer single;
  options_.servers = {single.address()};
  const auto read = call(*make_redis_store(options_).value(), Kind::get, Pages("p", 2, 10));
  EXPECT_EQ(count(*read, PageOutcome::failed), 2u);
  EXPECT_NE(message(*read).find(single.address() + ": CLUSTER SLOTS: ERR"), std::string::npos)
      << message(*read);
}

TEST_F(RedisClusterStore, DamagedPagesGoFromTheirServer) {
  put(Pages("p", 30, 1000));
  for (int i = 0; i < 30; ++i) {
    const std::string key = fmt::format("p{}", i);
    cluster_->server(cluster_->owner(fmt::format("pando:{}", key)))
        .command({"SETRANGE", fmt::format("pando:{}", key), "500", "?!?"});
  }
  EXPECT_EQ(count(*call(*store_, Kind::get, Pages("p", 30, 1000)), PageOutcome::damaged), 30u);
  EXPECT_EQ(count(*call(*store_, Kind::get, Pages("p", 30, 1000)), PageOutcome::missing), 30u);
  EXPECT_EQ(store_->stats().damaged_pages, 30u);
}

TEST_F(RedisClusterStore, FollowsAKeyWhileItsSlotMovesAndAfterwards) {
  const Pages pages("p", 20, 50000);
  put(pages);
  const std::uint16_t slot = slot_of("p7");
  const std::size_t from = cluster_->owner("pando:p7");
  const std::size_t to = (from + 1) % kNumMasters;

  begin_move(slot, from, to);
  expect_back(pages, "p");  // still where it was
  move_key("p7", from, to);
  expect_back(pages, "p");  // ASK
  // One that is in neither place is asked for, and put, where the slot goes.
  EXPECT_EQ(count(*call(*store_, Kind::remove, Pages("p", 8, 0)), PageOutcome::done), 8u);
  EXPECT_EQ(count(*call(*store_, Kind::get, Pages("p", 8, 50000)), PageOutcome::missing), 8u);
  put(pages);
  expect_back(pages, "p");
  EXPECT_EQ(cluster_->server(to).command({"CLUSTER", "COUNTKEYSINSLOT", std::to_string(slot)}),
            "1");

  end_move(slot, from, to);
  expect_back(pages, "p");  // MOVED
  EXPECT_EQ(call(*store_, Kind::exists, pages)->num_leading(), 20u);
  EXPECT_EQ(store_->stats().reconnects, 0u);
}

TEST_F(RedisClusterStore, ManySlotsMayMoveWhileCallsRun) {
  const Pages pages("p", 200, 5000);
  put(pages);
  std::atomic<bool> moved = false;
  std::thread mover([&] {
    moved =
        run_program({"/usr/bin/redis-cli", "--cluster", "reshard", cluster_->server(0).address(),
                     "--cluster-from", cluster_->id(0), "--cluster-to", cluster_->id(1),
                     "--cluster-slots", "300", "--cluster-yes"});
  });
  for (int round = 0; round < 200 && !moved; ++round) expect_back(pages, "p");
  mover.join();
  EXPECT_TRUE(moved);
  expect_back(pages, "p");
}

TEST_F(RedisClusterStore, CallsOfSeveralThreadsShareTheMap) {
  store_ = make_redis_store(options_).value();  // without a map yet
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = fmt::format("t{}-", t);
      const Pages pages(name, 30, 10000);
      put(pages);
      expect_back(pages, name);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RedisClusterStore, EndlessRedirectionsEnd) {
  std::string address;
  std::uint16_t port = 0;
  ScriptServer server([&](int, const std::string& bytes) {
    if (bytes.find("SLOTS") == std::string::npos) return fmt::format("-MOVED 1 {}\r\n", address);
    return fmt::format("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", port);
  });
  address = server.address();
  port = static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1)));
  options_.servers = {address};
  const auto read = call(*make_redis_store(options_).value(), Kind::get, Pages("p", 1, 10), 5s);
  EXPECT_EQ(read->outcome(0), PageOutcome::failed);
  EXPECT_NE(message(*read).find("redirections, the last to " + address), std::string::npos)
      << message(*read);
}

TEST_F(RedisClusterStore, AMasterThatDiesIsReplacedAndWhatItHadIsFoundAgain) {
  const Pages pages("p", 300, 20000);
  put(pages);
  const auto replicated = [&] {
    int total = 0;
    for (std::size_t i = 0; i < 2 * kNumMasters; ++i)
      total += std::stoi(cluster_->server(i).command({"DBSIZE"}));
    return total == 600;
  };
  ASSERT_TRUE(eventually(replicated));
  cluster_->kill(1);
  Pages read("p", 300, 20000, 1, 99);
  const auto first = call(*store_, Kind::get, read, 100ms);
  EXPECT_LT(first->num_leading(), 300u);
  EXPECT_EQ(count(*first, PageOutcome::damaged) + count(*first, PageOutcome::missing), 0u);
  // Until the replica takes over, pages of the dead master fail; no page is ever missing.
  const bool found = eventually([&] {
    const auto batch = call(*store_, Kind::get, read, 2s);
    EXPECT_EQ(count(*batch, PageOutcome::missing), 0u);
    return batch->num_leading() == 300;
  });
  EXPECT_TRUE(found);
  EXPECT_TRUE(read.same_bytes(pages));
  EXPECT_EQ(call(*store_, Kind::put, pages)->num_leading(), 300u);
}

}  // namespace
}  // namespace pando::testing
