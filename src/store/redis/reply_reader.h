// SPDX-License-Identifier: Apache-2.0
// Reads the replies of pages: status, error, integer and bulk, in RESP2. The body of a bulk goes
// straight from the socket to where its receiver wants it; hiredis's reader would collect it in a
// buffer that grows, and copy it out again. Nested replies (arrays) belong to control commands,
// which hiredis reads (connection.h); here they are an error.
//
// The reader touches no socket: its owner reads into room(), says how much with received(), and
// calls next() until it has nothing more. Belongs to one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pando/result.h"

namespace pando::redis {

struct Reply {
  enum class Kind : std::uint8_t {
    status,   ///< text
    error,    ///< text
    integer,  ///< value
    nil,
    bulk,  ///< size_bytes; its body follows: call fill() or skip() now
    body,  ///< the body of the bulk before has arrived whole
  };
  Kind kind = Kind::nil;
  std::string_view text = {};  ///< until the next call of the reader
  std::int64_t value = 0;
  std::uint64_t size_bytes = 0;
};

class ReplyReader {
 public:
  ReplyReader();

  /// Where the next bytes from the socket go: the rest of a body that is wanted, then the buffer.
  /// Never empty. Until the next call.
  std::span<const iovec> room();
  /// The first `num_bytes` of room() have been filled.
  void received(std::size_t num_bytes);

  /// The next reply, or nothing before more bytes come. An error is for good: what the server sends
  /// is not RESP.
  Result<std::optional<Reply>> next();

  /// After a bulk. The pieces hold its size or less, and what is beyond them is skipped; they are
  /// kept until its body has arrived.
  void fill(std::span<const std::span<std::byte>> pieces);
  void skip();

  /// Nothing half-read: the next byte begins a reply.
  bool between_replies() const { return state_ == State::line && begin_ == end_; }

 private:
  enum class State : std::uint8_t { line, undecided, body, end_of_body };

  std::string_view buffered() const { return {buffer_.get() + begin_, end_ - begin_}; }
  Result<std::optional<Reply>> next_line();
  Result<Reply> parse_line(std::string_view line);
  void take_body_from_buffer();
  void advance_body(std::size_t num_bytes);

  std::unique_ptr<char[]> buffer_;  // buffered bytes are [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  State state_ = State::line;
  std::uint64_t body_left_ = 0;  // bytes of the body that are still to come
  std::uint64_t wanted_ = 0;     // the first of these that go to body_
  std::vector<iovec> body_;      // where they go, from next_piece_ on
  std::size_t next_piece_ = 0;
  std::vector<iovec> room_;
};

}  // namespace pando::redis
