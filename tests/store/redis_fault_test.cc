// SPDX-License-Identifier: Apache-2.0
// The Redis backend against servers that refuse, die, hang, come back, or talk nonsense: pages fail
// with a message that names the server, calls keep to their deadlines, and nothing is ever done
// that was not.
#include <gtest/gtest.h>

#include <thread>

#include "pando/store_backends.h"
#include "support/redis_pages.h"
#include "support/redis_server.h"
#include "support/script_server.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Kind = StoreBatch::Kind;

std::unique_ptr<StoreBackend> open(const std::string& address, RedisStoreOptions options = {}) {
  options.servers = {address};
  return make_redis_store(options).value();
}

void expect_says(const StoreBatch& batch, const std::string& part) {
  EXPECT_NE(message(batch).find(part), std::string::npos) << message(batch);
}

class RedisFault : public ::testing::Test {
 protected:
  void SetUp() override { PANDO_REQUIRE_REDIS(); }
};

// ---- Who may.

TEST_F(RedisFault, TheRightPasswordIsLetInAndOthersAreTold) {
  RedisServer server({"--requirepass", "secret"});
  const Pages pages("p", 3, 100);
  EXPECT_EQ(call(*open(server.address(), {.password = "secret"}), Kind::put, pages)->num_leading(),
            3u);
  const auto none = call(*open(server.address()), Kind::get, pages);
  EXPECT_EQ(count(*none, PageOutcome::failed), 3u);
  expect_says(*none, server.address() + ": NOAUTH");
  const auto wrong_store = open(server.address(), {.password = "guess"});
  const auto wrong = call(*wrong_store, Kind::get, pages);
  EXPECT_EQ(count(*wrong, PageOutcome::failed), 3u);
  expect_says(*wrong, server.address() + ": AUTH refused: WRONGPASS");
  EXPECT_FALSE(wrong_store->clear().ok());

  server.command({"ACL", "SETUSER", "cache", "on", ">pages", "~pando:*", "+@all"}, "secret");
  const auto user = open(server.address(), {.username = "cache", .password = "pages"});
  EXPECT_EQ(call(*user, Kind::get, pages)->num_leading(), 3u);
}

TEST_F(RedisFault, AServerWithoutRoomFailsPages) {
  RedisServer server({"--maxmemory", "8mb"});
  const auto put = call(*open(server.address()), Kind::put, Pages("p", 16, 1 << 20));
  EXPECT_GT(count(*put, PageOutcome::done), 0u);
  EXPECT_GT(count(*put, PageOutcome::failed), 0u);
  EXPECT_EQ(count(*put, PageOutcome::done) + count(*put, PageOutcome::failed), 16u);
  expect_says(*put, server.address() + ": OOM");
}

// ---- Death.

TEST_F(RedisFault, ARestartBetweenCallsIsNotNoticedButCounted) {
  RedisServer server;
  const auto store = open(server.address());
  const Pages pages("p", 5, 1000);
  ASSERT_EQ(call(*store, Kind::put, pages)->num_leading(), 5u);
  server.restart();
  const auto read = call(*store, Kind::get, pages);
  EXPECT_EQ(count(*read, PageOutcome::missing), 5u) << message(*read);
  EXPECT_EQ(call(*store, Kind::put, pages)->num_leading(), 5u);
  EXPECT_EQ(store->stats().reconnects, 1u);
}

TEST_F(RedisFault, AServerThatIsGoneFailsFastUntilItIsTriedAgain) {
  RedisServer server;
  RedisStoreOptions options;
  options.min_backoff = options.max_backoff = 400ms;
  const auto store = open(server.address(), options);
  const Pages pages("p", 100, 1000);
  ASSERT_EQ(call(*store, Kind::put, pages)->num_leading(), 100u);
  server.kill();
  const auto gone = call(*store, Kind::get, pages);
  const auto failed_at = Clock::now();
  EXPECT_EQ(count(*gone, PageOutcome::failed), 100u);
  expect_says(*gone, server.address() + ": Connection refused; it is tried again in ");
  server.restart();
  const auto early = call(*store, Kind::get, pages);
  if (Clock::now() - failed_at < 350ms) {
    EXPECT_EQ(count(*early, PageOutcome::failed), 100u);
    expect_says(*early, "it is tried again in ");
  }
  EXPECT_TRUE(eventually(
      [&] { return count(*call(*store, Kind::get, pages), PageOutcome::missing) == 100; }, 5s));
  EXPECT_GE(Clock::now() - failed_at, 350ms);
  EXPECT_EQ(store->stats().reconnects, 1u);
}

TEST_F(RedisFault, AServerKilledMidCallLeavesEveryPageDoneOrFailed) {
  RedisServer server;
  const auto store = open(server.address());
  const Pages pages("p", 200, 1 << 20);
  std::thread killer([&] {
    eventually([&] { return server.command({"DBSIZE"}) != "0"; });
    server.kill();
  });
  const auto put = call(*store, Kind::put, pages);
  killer.join();
  EXPECT_GT(count(*put, PageOutcome::failed), 0u);
  EXPECT_EQ(count(*put, PageOutcome::done) + count(*put, PageOutcome::failed), 200u);
  expect_says(*put, server.address());
  server.restart();
  EXPECT_TRUE(eventually(
      [&] { return call(*store, Kind::put, Pages("p", 5, 1000))->num_leading() == 5; }, 5s));
}

TEST_F(RedisFault, AReadThatStopsHalfwayFailsAfterTheIoTimeout) {
  std::atomic<int> num_gets = 0;
  ScriptServer server([&](int, const std::string&) {
    return num_gets++ == 0 ? std::string("$-1\r\n") : "$1032\r\nPNDO" + std::string(500, 'x');
  });
  const auto store = open(server.address(), {.io_timeout = 300ms});
  ASSERT_EQ(call(*store, Kind::get, Pages("p", 1, 1000))->outcome(0), PageOutcome::missing);
  const auto read = call(*store, Kind::get, Pages("p", 1, 1000));
  EXPECT_EQ(read->outcome(0), PageOutcome::failed);
  expect_says(*read, server.address() + ": no progress for 300 ms");
  EXPECT_EQ(num_gets, 2);  // one that hangs is not sent again
}

TEST_F(RedisFault, AConnectionThatEndsMidReplyIsReplacedOnce) {
  ScriptServer server([&](int n, const std::string&) -> std::optional<std::string> {
    if (n == 1) return std::nullopt;
    return "$-1\r\n";
  });
  const auto store = open(server.address());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(call(*store, Kind::get, Pages("p", 1, 1000))->outcome(0), PageOutcome::missing) << i;
  EXPECT_EQ(server.num_clients(), 2);
  EXPECT_EQ(store->stats().reconnects, 1u);
}

// ---- Hanging.

TEST_F(RedisFault, AServerThatHangsIsLeftAtTheDeadline) {
  RedisServer server;
  const auto store = open(server.address());
  const Pages pages("p", 8, 1 << 20);
  ASSERT_EQ(call(*store, Kind::put, pages)->num_leading(), 8u);
  server.freeze();
  for (const Kind kind : {Kind::get, Kind::put, Kind::exists, Kind::remove}) {
    const auto begin = Clock::now();
    const auto batch = call(*store, kind, pages, 150ms);
    const auto spent = Clock::now() - begin;
    EXPECT_GE(spent, 150ms);
    EXPECT_LT(spent, 400ms);
    EXPECT_EQ(batch->status().error().code, ErrorCode::timed_out) << message(*batch);
    EXPECT_EQ(count(*batch, PageOutcome::pending), 8u);
  }
  server.thaw();
  Pages read("p", 8, 1 << 20, 1, 7);
  const auto again = call(*store, Kind::put, pages);
  EXPECT_EQ(again->num_leading(), 8u) << message(*again);
  EXPECT_EQ(call(*store, Kind::get, read)->num_leading(), 8u);
  EXPECT_TRUE(read.same_bytes(pages));
}

TEST_F(RedisFault, AServerThatHangsFailsAfterTheIoTimeoutAndThenFast) {
  RedisServer server;
  RedisStoreOptions options{.io_timeout = 150ms, .min_backoff = 300ms, .max_backoff = 300ms};
  const auto store = open(server.address(), options);
  const Pages pages("p", 8, 1000);
  ASSERT_EQ(call(*store, Kind::put, pages)->num_leading(), 8u);
  server.freeze();
  const auto slow = call(*store, Kind::get, pages);
  EXPECT_EQ(count(*slow, PageOutcome::failed), 8u);
  expect_says(*slow, server.address() + ": no progress for 150 ms");
  const auto begin = Clock::now();
  const auto fast = call(*store, Kind::get, pages);
  EXPECT_LT(Clock::now() - begin, 100ms);
  EXPECT_EQ(count(*fast, PageOutcome::failed), 8u);
  expect_says(*fast, "it is tried again in ");
  server.thaw();
  EXPECT_TRUE(eventually([&] { return call(*store, Kind::get, pages)->num_leading() == 8; }, 5s));
  EXPECT_EQ(store->stats().reconnects, 1u);
}

TEST_F(RedisFault, ACancelledCallReturnsSoonAndItsRepliesReachNobody) {
  RedisServer server;
  const auto store = open(server.address());
  const Pages pages("p", 8, 1 << 20);
  ASSERT_EQ(call(*store, Kind::put, pages)->num_leading(), 8u);
  server.freeze();
  Pages dropped("p", 8, 1 << 20, 1, 7);
  const auto batch = make_batch(Kind::get, dropped.list());
  Clock::time_point cancelled;
  std::thread canceller([&] {
    std::this_thread::sleep_for(60ms);  // into the wait for a server that says nothing
    cancelled = Clock::now();
    batch->cancel();
  });
  run_batch(*store, *batch);
  const auto returned = Clock::now();
  canceller.join();
  EXPECT_LT(returned - cancelled, 150ms);
  EXPECT_EQ(batch->status().error().code, ErrorCode::cancelled);
  server.thaw();
  const Pages other("q", 3, 500);
  EXPECT_EQ(count(*call(*store, Kind::get, other), PageOutcome::missing), 3u);
  EXPECT_EQ(store->stats().reconnects, 0u);
}

TEST_F(RedisFault, AServerThatCannotBeReachedIsGivenUpAfterTheConnectTimeout) {
  // A listener whose queue is full takes no more connections, and does not refuse them.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::vector<int> fillers;
  for (int i = 0; i < 4; ++i) {
    fillers.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)connect(fillers.back(), reinterpret_cast<sockaddr*>(&address), size);
  }
  const auto store =
      open("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), {.connect_timeout = 200ms});
  const auto begin = Clock::now();
  const auto read = call(*store, Kind::get, Pages("p", 3, 100));
  EXPECT_LT(Clock::now() - begin, 600ms);
  EXPECT_EQ(count(*read, PageOutcome::failed), 3u);
  expect_says(*read, "no connection within 200 ms");
  for (const int fd : fillers) close(fd);
  close(listener);
}

// ---- Nonsense.

TEST_F(RedisFault, NonsenseFailsPagesAndNamesTheServer) {
  const std::string answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                 std::string(1 << 20, '\0'),
                                 "*2\r\n:1\r\n:2\r\n",
                                 "$5\r\nabcdefgh\r\n",
                                 "$99999999999999999999\r\n",
                                 "+PONG\r\n",
                                 ":5\r\n",
                                 "-ERR go away\r\n",
                                 "-\r\n",
                                 "-MOVED 1 127.0.0.1:1\r\n",
                                 "-MOVED gibberish\r\n",
                                 "-ASK\r\n"};
  for (const std::string& answer : answers) {
    ScriptServer server([&](int, const std::string&) { return answer; });
    const auto store = open(server.address(), {.io_timeout = 200ms});
    for (const Kind kind : {Kind::get, Kind::put, Kind::exists, Kind::remove}) {
      const auto batch = call(*store, kind, Pages("p", 3, 1000), 300ms);
      const bool plausible = (kind == Kind::put && answer == "+PONG\r\n") ||
                             (kind != Kind::put && kind != Kind::get && answer == ":5\r\n");
      if (plausible) continue;
      EXPECT_EQ(batch->outcome(1) == PageOutcome::done, false);
      EXPECT_EQ(batch->outcome(2) == PageOutcome::done, false);
      expect_says(*batch, server.address());
    }
    EXPECT_FALSE(store->clear().ok());
    EXPECT_FALSE(store->list([](const StoredPage&) { return true; }).ok());
  }
}

TEST_F(RedisFault, AMovedPageOfASingleServerSaysWhatToSet) {
  ScriptServer server([](int, const std::string&) { return "-MOVED 7 127.0.0.1:1\r\n"; });
  expect_says(*call(*open(server.address()), Kind::get, Pages("p", 1, 10)),
              "expected the option cluster");
}

TEST_F(RedisFault, AServerThatIsLoadingIsAskedAgain) {
  ScriptServer server([](int n, const std::string&) {
    return n < 3 ? "-LOADING Redis is loading the dataset in memory\r\n" : "$-1\r\n";
  });
  const auto store = open(server.address(), {.min_backoff = 5ms, .max_backoff = 20ms});
  EXPECT_EQ(call(*store, Kind::get, Pages("p", 1, 10))->outcome(0), PageOutcome::missing);
}

TEST_F(RedisFault, AServerThatKeepsLoadingFailsAtTheDeadlineWithItsWords) {
  ScriptServer server([](int, const std::string&) { return "-LOADING still\r\n"; });
  const auto begin = Clock::now();
  const auto read = call(*open(server.address()), Kind::get, Pages("p", 1, 10), 300ms);
  EXPECT_LT(Clock::now() - begin, 500ms);
  EXPECT_EQ(read->outcome(0), PageOutcome::failed);
  expect_says(*read, server.address() + ": LOADING still");
}

}  // namespace
}  // namespace pando::testing
