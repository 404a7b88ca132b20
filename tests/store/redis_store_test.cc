// SPDX-License-Identifier: Apache-2.0
// The Redis backend against one real server: what is put is found, byte for byte, until it is
// removed or has expired; what is not ours is damaged or left alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "pando/store_backends.h"
#include "store/redis/page_value.h"
#include "support/redis_pages.h"
#include "support/redis_server.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;
using Kind = StoreBatch::Kind;

class RedisStore : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (have_redis()) server_ = std::make_unique<RedisServer>();
  }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    PANDO_REQUIRE_REDIS();
    server_->command({"FLUSHALL"});
    options_.servers = {server_->address()};
    open();
  }

  void open() { store_ = make_redis_store(options_).value(); }
  void put(const Pages& pages) {
    const auto batch = call(*store_, Kind::put, pages);
    ASSERT_EQ(count(*batch, PageOutcome::done), pages.size()) << message(*batch);
  }
  void expect_back(const Pages& pages) {
    Pages read = pages_like(pages);
    const auto batch = call(*store_, Kind::get, read);
    EXPECT_EQ(count(*batch, PageOutcome::done), pages.size()) << message(*batch);
    EXPECT_EQ(batch->num_leading(), pages.size());
    EXPECT_TRUE(read.same_bytes(pages));
  }
  static Pages pages_like(const Pages& pages, std::size_t num_pieces = 2) {
    return Pages("p", pages.size(), pages.list().front().size_bytes(), num_pieces, 99);
  }

  static inline std::unique_ptr<RedisServer> server_;
  RedisStoreOptions options_;
  std::unique_ptr<StoreBackend> store_;
};

TEST_F(RedisStore, FindsWhatWasPutAndMissesTheRest) {
  const Pages pages("p", 20, 1000);
  put(pages);
  expect_back(pages);
  Pages more("p", 25, 1000);
  const auto found = call(*store_, Kind::exists, more);
  EXPECT_EQ(found->num_leading(), 20u);
  EXPECT_EQ(count(*found, PageOutcome::missing), 5u);
  more.wipe();
  const auto read = call(*store_, Kind::get, more);
  EXPECT_EQ(count(*read, PageOutcome::done), 20u);
  EXPECT_EQ(count(*read, PageOutcome::missing), 5u);
  EXPECT_TRUE(read->status().ok());
  EXPECT_EQ(store_->name(), "redis");
}

TEST_F(RedisStore, PagesOfEverySizeAndCutComeBack) {
  for (const std::size_t size : {0u, 1u, 31u, 4096u, 100000u, 3000000u}) {
    for (const std::size_t num_pieces : {1u, 3u, 2000u}) {
      SCOPED_TRACE(::testing::Message() << size << " bytes in " << num_pieces << " pieces");
      const Pages pages("p", 5, size, num_pieces, size);
      put(pages);
      expect_back(pages);
    }
  }
}

TEST_F(RedisStore, APipelineMuchLargerThanTheSocketsDoesNotLockUp) {
  options_.pipeline_bytes = std::size_t{1} << 30;
  open();
  const Pages pages("p", 64, 1 << 20);
  put(pages);
  expect_back(pages);
}

TEST_F(RedisStore, APageLargerThanThePipelineStillGoes) {
  options_.pipeline_bytes = 1;
  open();
  const Pages pages("p", 3, 200000);
  put(pages);
  expect_back(pages);
}

TEST_F(RedisStore, PutAgainOverwrites) {
  put(Pages("p", 3, 500, 1, 1));
  const Pages second("p", 3, 500, 1, 2);
  put(second);
  expect_back(second);
}

TEST_F(RedisStore, RemoveTakesAwayAndIsDoneForWhatNeverWas) {
  put(Pages("p", 4, 100));
  EXPECT_EQ(count(*call(*store_, Kind::remove, Pages("p", 6, 0)), PageOutcome::done), 6u);
  EXPECT_EQ(count(*call(*store_, Kind::exists, Pages("p", 6, 0)), PageOutcome::missing), 6u);
  EXPECT_EQ(server_->command({"DBSIZE"}), "0");
}

TEST_F(RedisStore, ClearTakesWhatBeginsWithThePrefixAndNothingElse) {
  options_.key_prefix = "a*[b]?\\:";
  open();
  put(Pages("p", 2500, 10));
  server_->command({"SET", "aXb?\\:other", "stays"});
  server_->command({"SET", "other", "stays"});
  ASSERT_TRUE(store_->clear().ok());
  EXPECT_EQ(server_->command({"DBSIZE"}), "2");
}

TEST_F(RedisStore, ListNamesEveryPageOnceWithItsSize) {
  put(Pages("p", 2500, 10));
  server_->command({"SET", "other", "not ours"});
  server_->command({"SET", "pando:short", "too short for a page"});
  server_->command({"LPUSH", "pando:list", "no string"});
  std::set<std::string> keys;
  std::size_t num_visits = 0;
  ASSERT_TRUE(store_
                  ->list([&](const StoredPage& page) {
                    EXPECT_EQ(page.size_bytes, 10u);
                    keys.insert(page.key);
                    ++num_visits;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(num_visits, 2500u);
  EXPECT_EQ(keys.size(), 2500u);
  EXPECT_TRUE(keys.contains("p2499"));
  num_visits = 0;
  ASSERT_TRUE(store_->list([&](const StoredPage&) { return ++num_visits < 10; }).ok());
  EXPECT_EQ(num_visits, 10u);
}

TEST_F(RedisStore, AValueThatIsNotWhatWasPutIsDamagedAndGoes) {
  put(Pages("p", 5, 1000));
  const std::string value = server_->get("pando:p0");
  ASSERT_EQ(value.size(), 1032u);
  std::string flipped = value, magic = value;
  flipped[500] = static_cast<char>(flipped[500] ^ 1);
  magic[0] = 'X';
  server_->command({"SET", "pando:p0", flipped});
  server_->command({"SET", "pando:p1", value});  // another page's
  server_->command({"SET", "pando:p2", value.substr(0, 700)});
  server_->command({"SET", "pando:p3", magic});
  server_->command({"SET", "pando:p4", "tiny"});
  const auto read = call(*store_, Kind::get, Pages("p", 5, 1000));
  EXPECT_EQ(count(*read, PageOutcome::damaged), 5u) << message(*read);
  EXPECT_EQ(store_->stats().damaged_pages, 5u);
  EXPECT_EQ(server_->command({"DBSIZE"}), "0");
  const auto again = call(*store_, Kind::get, Pages("p", 5, 1000));
  EXPECT_EQ(count(*again, PageOutcome::missing), 5u);
}

TEST_F(RedisStore, AGetOfAnotherSizeIsAMissAndCostsNobodyThePage) {
  const Pages pages("p", 5, 1000);
  put(pages);
  for (const std::size_t size_bytes : {1, 999, 1001, 100'000}) {
    const auto read = call(*store_, Kind::get, Pages("p", 5, size_bytes));
    EXPECT_EQ(count(*read, PageOutcome::missing), 5u) << message(*read);
  }
  EXPECT_EQ(store_->stats().damaged_pages, 0u);
  EXPECT_EQ(count(*call(*store_, Kind::get, Pages("p", 5, 1000)), PageOutcome::done), 5u);
}

TEST_F(RedisStore, AKeyOfAnotherTypeFailsWithTheServersWords) {
  server_->command({"LPUSH", "pando:p0", "x"});
  const auto read = call(*store_, Kind::get, Pages("p", 2, 1000));
  EXPECT_EQ(read->outcome(0), PageOutcome::failed);
  EXPECT_EQ(read->outcome(1), PageOutcome::missing);
  EXPECT_NE(message(*read).find(server_->address() + ": WRONGTYPE"), std::string::npos)
      << message(*read);
}

TEST_F(RedisStore, PagesExpireUnlessTheyAreRead) {
  options_.ttl = 60s;
  open();
  put(Pages("p", 2, 100));
  server_->command({"PEXPIRE", "pando:p0", "5000"});
  server_->command({"PEXPIRE", "pando:p1", "5000"});
  expect_back(Pages("p", 1, 100));
  EXPECT_GT(std::stoi(server_->command({"PTTL", "pando:p0"})), 50000);
  EXPECT_LE(std::stoi(server_->command({"PTTL", "pando:p1"})), 5000);
  server_->command({"PEXPIRE", "pando:p0", "0"});
  EXPECT_EQ(call(*store_, Kind::get, Pages("p", 1, 100))->outcome(0), PageOutcome::missing);
}

TEST_F(RedisStore, AServerWithoutGetexRenewsToo) {
  RedisServer old({"--rename-command", "GETEX", ""});
  options_.servers = {old.address()};
  options_.ttl = 60s;
  open();
  const Pages pages("p", 50, 20000);
  put(pages);
  old.command({"PEXPIRE", "pando:p49", "5000"});
  expect_back(pages);
  expect_back(pages);
  EXPECT_GT(std::stoi(old.command({"PTTL", "pando:p49"})), 50000);
}

TEST_F(RedisStore, WorksOverAUnixSocket) {
  options_.servers = {"unix:" + server_->unix_path()};
  open();
  const Pages pages("p", 10, 300000);
  put(pages);
  expect_back(pages);
}

TEST_F(RedisStore, CallsOfSeveralThreadsHaveTheirOwnConnectionsAndKeepThem) {
  const std::uint64_t before = server_->info("total_connections_received");
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const std::string name = fmt::format("t{}-", t);
        for (int i = 0; i < 10; ++i) {
          const Pages pages(name, 8, 50000, 2, static_cast<std::uint64_t>(i));
          Pages read(name, 8, 50000, 3, 1000);
          EXPECT_EQ(call(*store_, Kind::put, pages)->num_leading(), 8u);
          EXPECT_EQ(call(*store_, Kind::get, read)->num_leading(), 8u);
          EXPECT_TRUE(read.same_bytes(pages));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Four, and one or two of the test's own.
  EXPECT_LE(server_->info("total_connections_received") - before, 6u);
  EXPECT_EQ(store_->stats().reconnects, 0u);
}

TEST_F(RedisStore, ABatchWithoutPagesIsDone) {
  EXPECT_TRUE(call(*store_, Kind::get, Pages("p", 0, 0))->status().ok());
}

}  // namespace
}  // namespace pando::testing
