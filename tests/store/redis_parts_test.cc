// SPDX-License-Identifier: Apache-2.0
// The small parts of the Redis backend that need no server: slots, addresses, error replies, the
// prefix of a value, commands as text, back-off, options.
#include <gtest/gtest.h>

#include <string>

#include "pando/store_backends.h"
#include "store/redis/address.h"
#include "store/redis/key_slot.h"
#include "store/redis/node.h"
#include "store/redis/page_commands.h"
#include "store/redis/page_value.h"
#include "store/redis/server_error.h"

namespace pando::redis {
namespace {

TEST(RedisSlot, Crc16HasThePublishedCheckValue) { EXPECT_EQ(crc16("123456789"), 0x31c3); }

TEST(RedisSlot, KeysHaveTheSlotsThatRedisGivesThem) {  // CLUSTER KEYSLOT of Redis 7.0
  EXPECT_EQ(key_slot("foo"), 12182);
  EXPECT_EQ(key_slot("somekey"), 11058);
  EXPECT_EQ(key_slot("foo{hash_tag}"), 2515);
  EXPECT_EQ(key_slot("bar{hash_tag}"), 2515);
  EXPECT_EQ(key_slot(""), 0);
}

TEST(RedisSlot, OnlyTheFirstTagThatIsNotEmptyCounts) {
  EXPECT_EQ(key_slot("{user1000}.following"), key_slot("user1000"));
  EXPECT_EQ(key_slot("foo{}{bar}"), crc16("foo{}{bar}") % kNumSlots);
  EXPECT_EQ(key_slot("foo{{bar}}zap"), key_slot("{bar"));
  EXPECT_EQ(key_slot("foo{bar}{zap}"), key_slot("bar"));
  EXPECT_EQ(key_slot("foo{bar"), crc16("foo{bar") % kNumSlots);
}

TEST(RedisAddress, IsReadAndWritten) {
  EXPECT_EQ(parse_address("localhost:6379")->host, "localhost");
  EXPECT_EQ(parse_address("localhost:6379")->port, 6379);
  EXPECT_EQ(parse_address("unix:/run/redis.sock")->path, "/run/redis.sock");
  EXPECT_EQ(parse_address("[::1]:7000")->host, "::1");
  EXPECT_EQ(*parse_address("[::1]:7000"), *parse_address("::1:7000"));
  for (const std::string text : {"10.0.0.1:1", "unix:/a b", "[fe80::1]:65535"})
    EXPECT_EQ(parse_address(text)->text(), text);
}

TEST(RedisAddress, RefusesWhatIsNone) {
  for (const std::string text : {"", "localhost", ":6379", "a:", "a:0", "a:65536", "a:12x", "a:-1",
                                 "unix:", "unix:relative"}) {
    const Result<Address> address = parse_address(text);
    ASSERT_FALSE(address) << text;
    EXPECT_NE(address.error().message.find("expected \"host:port\""), std::string::npos);
  }
}

TEST(RedisServerError, TellsRedirectionsFromFailures) {
  using Kind = ServerError::Kind;
  const Address from{.host = "10.0.0.9", .port = 7000};
  const ServerError moved = classify_error("MOVED 3999 127.0.0.1:6381", from);
  EXPECT_EQ(moved.kind, Kind::moved);
  EXPECT_EQ(moved.slot, 3999);
  EXPECT_EQ(moved.address->text(), "127.0.0.1:6381");
  EXPECT_EQ(classify_error("ASK 1 ::1:6381", from).address->host, "::1");
  EXPECT_EQ(classify_error("ASK 1 :6381", from).address->text(), "10.0.0.9:6381");
  EXPECT_EQ(classify_error("LOADING Redis is loading the dataset", from).kind, Kind::try_again);
  EXPECT_EQ(classify_error("CLUSTERDOWN Hash slot not served", from).kind, Kind::try_again);
  EXPECT_EQ(classify_error("ERR unknown command 'GETEX', with", from).kind, Kind::unknown_command);
  for (const char* text : {"", "OOM command not allowed", "ERR", "MOVED", "MOVED 16384 a:1",
                           "MOVED 1", "MOVED x a:1", "ASK 1 nowhere", "NOAUTH Authentication"})
    EXPECT_EQ(classify_error(text, from).kind, Kind::fatal) << text;
}

TEST(RedisValue, PrefixIsTheFormatAndComesBack) {
  const PageTag tag{0x0102030405060708, 0x1112131415161718, 0x2122232425262728};
  const Prefix prefix = encode_prefix(tag);
  const std::string text(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  EXPECT_EQ(text, std::string("PNDO\x01\0\0\0"
                              "\x08\x07\x06\x05\x04\x03\x02\x01"
                              "\x18\x17\x16\x15\x14\x13\x12\x11"
                              "\x28\x27\x26\x25\x24\x23\x22\x21",
                              32));
  EXPECT_EQ(decode_prefix(prefix), tag);
}

TEST(RedisValue, RefusesOtherMagicAndOtherVersions) {
  Prefix prefix = encode_prefix({1, 2, 3});
  prefix[0] = std::byte{'p'};
  EXPECT_FALSE(decode_prefix(prefix));
  prefix = encode_prefix({1, 2, 3});
  prefix[4] = std::byte{2};
  EXPECT_FALSE(decode_prefix(prefix));
}

std::string text_of(SendQueue& queue) {
  std::string text;
  while (!queue.empty()) {
    const iovec first = queue.front().front();
    const std::size_t size = std::min<std::size_t>(first.iov_len, 3);
    text.append(static_cast<const char*>(first.iov_base), size);
    queue.sent(size);
  }
  return text;
}

TEST(RedisCommands, ATimeToLiveIsSetByWritesAndRenewedByReads) {
  using std::chrono::milliseconds;
  std::vector<std::byte> bytes = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
  const StorePage page{.key = "k", .pieces = {std::span(bytes).first(1), std::span(bytes).last(2)}};
  const Prefix prefix = encode_prefix({3, 4, 5});
  const std::string head(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  SendQueue out;
  PageCommands plain("p:", {});
  plain.add_put(out, page, {3, 4, 5});
  EXPECT_EQ(text_of(out), "*3\r\n$3\r\nSET\r\n$3\r\np:k\r\n$35\r\n" + head + "abc\r\n");
  plain.add_get(out, page);
  EXPECT_FALSE(plain.add_renew(out, page));
  EXPECT_EQ(text_of(out), "*2\r\n$3\r\nGET\r\n$3\r\np:k\r\n");

  PageCommands timed("p:", milliseconds(1500));
  timed.add_put(out, page, {3, 4, 5});
  EXPECT_EQ(text_of(out),
            "*5\r\n$3\r\nSET\r\n$3\r\np:k\r\n$35\r\n" + head + "abc\r\n$2\r\nPX\r\n$4\r\n1500\r\n");
  timed.add_get(out, page);
  EXPECT_FALSE(timed.add_renew(out, page));
  EXPECT_EQ(text_of(out), "*4\r\n$5\r\nGETEX\r\n$3\r\np:k\r\n$2\r\nPX\r\n$4\r\n1500\r\n");
  timed.forget_getex();
  timed.add_get(out, page);
  EXPECT_TRUE(timed.add_renew(out, page));
  EXPECT_EQ(text_of(out),
            "*2\r\n$3\r\nGET\r\n$3\r\np:k\r\n*3\r\n$7\r\nPEXPIRE\r\n$3\r\np:k\r\n$4\r\n1500\r\n");
}

TEST(RedisBackoff, DoublesBetweenItsBounds) {
  RedisStoreOptions options;
  options.min_backoff = std::chrono::milliseconds(50);
  options.max_backoff = std::chrono::milliseconds(2000);
  Random random(1);
  for (unsigned failures = 1; failures < 100; ++failures) {
    const auto delay = backoff_delay(options, failures, random);
    EXPECT_GE(delay, options.min_backoff);
    EXPECT_LE(delay, options.max_backoff);
    EXPECT_LE(delay, std::chrono::milliseconds(failures == 1 ? 100 : 2000));
    EXPECT_GE(delay, std::chrono::milliseconds(failures > 6 ? 1000 : 50));
  }
}

TEST(RedisOptions, AreValidatedWithAReason) {
  const auto refused = [](auto change) {
    RedisStoreOptions options;
    change(options);
    const auto store = make_redis_store(options);
    return store ? std::string("accepted") : store.error().message;
  };
  EXPECT_EQ(refused([](auto&) {}), "accepted");
  const auto expect = [&](auto change, std::string_view part) {
    EXPECT_NE(refused(change).find(part), std::string::npos) << refused(change);
  };
  expect([](auto& o) { o.servers = {}; }, "no servers");
  expect([](auto& o) { o.servers = {"a:1", "b:1"}; }, "2 servers");
  expect([](auto& o) { o.servers = {"here"}; }, "\"here\"");
  expect([](auto& o) { o.username = "me"; }, "needs a password");
  expect([](auto& o) { o.key_prefix = ""; }, "key_prefix");
  expect([](auto& o) { o.ttl = std::chrono::milliseconds(0); }, "ttl");
  expect([](auto& o) { o.max_backoff = std::chrono::milliseconds(1); }, "max_backoff");
  expect([](auto& o) { o.pipeline_bytes = 0; }, "pipeline_bytes");
}

}  // namespace
}  // namespace pando::redis
