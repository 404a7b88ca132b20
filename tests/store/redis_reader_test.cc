// SPDX-License-Identifier: Apache-2.0
// ReplyReader: the same replies however the bytes are cut, and nonsense refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "store/redis/reply_reader.h"

namespace pando::redis {
namespace {

using Bytes = std::vector<std::byte>;

std::span<std::byte> piece(Bytes& bytes, std::size_t at, std::size_t size) {
  return std::span(bytes).subspan(at, size);
}

std::string to_text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Writes down what a reader finds; bodies of up to kWanted bytes are filled into two pieces, longer
// ones skipped.
class Log {
 public:
  static constexpr std::size_t kWanted = 100000;

  /// In parts of at most `step` bytes. False: refused.
  bool feed(std::string_view bytes, std::size_t step) {
    while (!bytes.empty()) {
      std::size_t given = 0;
      for (const iovec& room : reader_.room()) {
        const std::size_t size = std::min({room.iov_len, step - given, bytes.size()});
        std::memcpy(room.iov_base, bytes.data(), size);
        bytes.remove_prefix(size);
        given += size;
      }
      reader_.received(given);
      if (!drain()) return false;
    }
    return true;
  }

  const std::string& text() const { return text_; }
  const std::string& error() const { return error_; }
  ReplyReader& reader() { return reader_; }

 private:
  bool drain() {
    for (;;) {
      Result<std::optional<Reply>> reply = reader_.next();
      if (!reply) {
        error_ = reply.error().message;
        return false;
      }
      if (!*reply) return true;
      note(**reply);
    }
  }

  void note(const Reply& reply) {
    switch (reply.kind) {
      case Reply::Kind::status:
        text_ += "status " + std::string(reply.text) + "\n";
        break;
      case Reply::Kind::error:
        text_ += "error " + std::string(reply.text) + "\n";
        break;
      case Reply::Kind::integer:
        text_ += "integer " + std::to_string(reply.value) + "\n";
        break;
      case Reply::Kind::nil:
        text_ += "nil\n";
        break;
      case Reply::Kind::bulk: {
        body_.assign(reply.size_bytes > kWanted ? 0 : reply.size_bytes, std::byte{0});
        if (reply.size_bytes > kWanted) return reader_.skip();
        const std::size_t half = body_.size() / 3;
        const std::array pieces = {piece(body_, 0, half), piece(body_, half, body_.size() - half)};
        reader_.fill(pieces);
        break;
      }
      case Reply::Kind::body:
        text_ += "body " + to_text(body_) + "\n";
        break;
    }
  }

  ReplyReader reader_;
  Bytes body_;
  std::string text_;
  std::string error_;
};

TEST(RedisReader, FindsTheSameRepliesHoweverTheBytesAreCut) {
  const std::string large(90000, 'x');
  const std::string skipped(Log::kWanted + 1, 'y');
  const std::string bytes =
      "+OK\r\n:-12\r\n$-1\r\n-ERR no such thing\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n$90000\r\n" + large +
      "\r\n:7\r\n$100001\r\n" + skipped + "\r\n+\r\n";
  const std::string expected =
      "status OK\ninteger -12\nnil\nerror ERR no such thing\nbody a\r\nbc\nbody \nbody " + large +
      "\ninteger 7\nbody \nstatus \n";
  for (const std::size_t step : {1ul, 2ul, 3ul, 7ul, 1000ul, 40000ul, bytes.size()}) {
    Log log;
    ASSERT_TRUE(log.feed(bytes, step)) << log.error();
    EXPECT_EQ(log.text(), expected) << "in steps of " << step;
    EXPECT_TRUE(log.reader().between_replies());
  }
}

TEST(RedisReader, ReadsABodyIntoMoreNeedlesThanOneReadTakes) {
  ReplyReader reader;
  const std::string head = "$3000\r\n";
  std::memcpy(reader.room().front().iov_base, head.data(), head.size());
  reader.received(head.size());
  ASSERT_EQ((**reader.next()).kind, Reply::Kind::bulk);
  Bytes bytes(3000);
  std::vector<std::span<std::byte>> pieces;
  for (std::size_t i = 0; i < bytes.size(); ++i) pieces.push_back(piece(bytes, i, 1));
  reader.fill(pieces);
  char next = 0;
  for (std::size_t given = 0; given < bytes.size();) {
    std::size_t size = 0;
    for (const iovec& room : reader.room()) {
      if (given + size == bytes.size()) break;
      *static_cast<char*>(room.iov_base) = next++;
      size += 1;
    }
    reader.received(size);
    given += size;
    EXPECT_FALSE(reader.next()->has_value());
  }
  const iovec room = reader.room().front();
  std::memcpy(room.iov_base, "\r\n", 2);
  reader.received(2);
  EXPECT_EQ((**reader.next()).kind, Reply::Kind::body);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    ASSERT_EQ(bytes[i], static_cast<std::byte>(static_cast<char>(i)));
}

TEST(RedisReader, RefusesWhatIsNotAReplyToAPage) {
  for (const std::string bytes :
       {"HTTP/1.1 400 Bad Request\r\n", "*1\r\n:1\r\n", ":12x\r\n", ":\r\n", "$-2\r\n", "$abc\r\n",
        "$99999999999999999999\r\n", "$9999999999999\r\n", "\r\n", "+no carriage return\n",
        "$2\r\nabX\n", "%1\r\n"}) {
    for (const std::size_t step : {1ul, 100ul}) {
      Log log;
      EXPECT_FALSE(log.feed(bytes, step)) << bytes;
      EXPECT_NE(log.error().find("expected a RESP2 reply"), std::string::npos) << log.error();
    }
  }
}

TEST(RedisReader, RefusesALineThatDoesNotEnd) {
  Log log;
  EXPECT_FALSE(log.feed("-" + std::string(1 << 20, 'a'), 1000));
  EXPECT_LT(log.error().size(), 200u);
}

TEST(RedisReader, ShowsBytesThatCannotBePrinted) {
  Log log;
  EXPECT_FALSE(log.feed(std::string_view("\x16\x03\x01\x00", 4), 4));
  EXPECT_NE(log.error().find("\\x16\\x03\\x01\\x00"), std::string::npos) << log.error();
}

}  // namespace
}  // namespace pando::redis
