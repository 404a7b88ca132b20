// SPDX-License-Identifier: Apache-2.0
// ReplyReader: lines are found in a small buffer; a body is first taken from what the buffer has of
// it, then read in place, with the buffer behind it for the replies that follow.
#include "store/redis/reply_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"

namespace pando::redis {
namespace {

// Large enough for many small replies at once; of a large body at most this much is copied.
constexpr std::size_t kBufferBytes = 32 << 10;
// Pieces per read, well below the kernel's 1024.
constexpr std::size_t kMaxPieces = 512;
// Beyond what a server can be configured to send.
constexpr std::int64_t kMaxBodyBytes = std::int64_t{1} << 40;

Error nonsense(std::string_view line) {
  std::string shown;
  for (const char c : line.substr(0, 40))
    shown += c >= ' ' && c <= '~' ? fmt::format("{}", c)
                                  : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return make_error(ErrorCode::io_error, "answers \"{}\", expected a RESP2 reply to a page", shown);
}

}  // namespace

ReplyReader::ReplyReader() : buffer_(std::make_unique_for_overwrite<char[]>(kBufferBytes)) {}

// ---- Bytes in.

std::span<const iovec> ReplyReader::room() {
  if (begin_ > 0) {  // what is left is part of a line
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  room_.clear();
  if (state_ == State::body && wanted_ > 0) {
    const std::size_t num_left = body_.size() - next_piece_;
    const auto first = body_.begin() + static_cast<std::ptrdiff_t>(next_piece_);
    room_.assign(first, first + static_cast<std::ptrdiff_t>(std::min(num_left, kMaxPieces)));
    if (num_left > kMaxPieces) return room_;
  }
  PANDO_CHECK(end_ < kBufferBytes, "a reply's line of {} bytes was not refused", kBufferBytes);
  room_.push_back({buffer_.get() + end_, kBufferBytes - end_});
  return room_;
}

void ReplyReader::received(std::size_t num_bytes) {
  if (state_ == State::body && wanted_ > 0) {
    const std::size_t direct =
        static_cast<std::size_t>(std::min<std::uint64_t>(num_bytes, wanted_));
    advance_body(direct);
    num_bytes -= direct;
  }
  end_ += num_bytes;
}

void ReplyReader::advance_body(std::size_t num_bytes) {
  body_left_ -= num_bytes;
  wanted_ -= num_bytes;
  while (next_piece_ < body_.size() && num_bytes >= body_[next_piece_].iov_len)
    num_bytes -= body_[next_piece_++].iov_len;
  if (num_bytes == 0) return;
  iovec& piece = body_[next_piece_];
  piece.iov_base = static_cast<std::byte*>(piece.iov_base) + num_bytes;
  piece.iov_len -= num_bytes;
}

// ---- Replies out.

Result<std::optional<Reply>> ReplyReader::next() {
  PANDO_CHECK(state_ != State::undecided, "a bulk was neither filled nor skipped");
  if (state_ == State::line) return next_line();
  if (state_ == State::body) {
    take_body_from_buffer();
    if (body_left_ > 0) return std::optional<Reply>();
    state_ = State::end_of_body;
  }
  if (buffered().size() < 2) return std::optional<Reply>();
  if (buffered().substr(0, 2) != "\r\n") return nonsense(buffered());
  begin_ += 2;
  state_ = State::line;
  return std::optional(Reply{.kind = Reply::Kind::body});
}

Result<std::optional<Reply>> ReplyReader::next_line() {
  const std::string_view bytes = buffered();
  const std::size_t end = bytes.find('\n');
  if (end == std::string_view::npos) {
    // Said at the first byte, or a server that never ends a line would be waited for.
    constexpr std::string_view kTypes = "+-:$";
    const bool known = bytes.empty() || kTypes.find(bytes.front()) != std::string_view::npos;
    if (!known || bytes.size() == kBufferBytes) return nonsense(bytes);
    return std::optional<Reply>();
  }
  if (end < 2 || bytes[end - 1] != '\r') return nonsense(bytes.substr(0, end));
  begin_ += end + 1;
  Result<Reply> reply = parse_line(bytes.substr(0, end - 1));
  if (!reply) return reply.error();
  return std::optional(*reply);
}

Result<Reply> ReplyReader::parse_line(std::string_view line) {
  const std::string_view rest = line.substr(1);
  if (line.front() == '+') return Reply{.kind = Reply::Kind::status, .text = rest};
  if (line.front() == '-') return Reply{.kind = Reply::Kind::error, .text = rest};
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || end != rest.data() + rest.size()) return nonsense(line);
  if (line.front() == ':') return Reply{.kind = Reply::Kind::integer, .value = value};
  if (line.front() != '$' || value < -1 || value > kMaxBodyBytes) return nonsense(line);
  if (value == -1) return Reply{.kind = Reply::Kind::nil};
  state_ = State::undecided;
  body_left_ = static_cast<std::uint64_t>(value);
  return Reply{.kind = Reply::Kind::bulk, .size_bytes = body_left_};
}

// ---- Bodies.

void ReplyReader::fill(std::span<const std::span<std::byte>> pieces) {
  PANDO_CHECK(state_ == State::undecided, "fill() without a bulk");
  body_.clear();
  next_piece_ = 0;
  wanted_ = 0;
  for (const std::span<std::byte>& piece : pieces) {
    if (piece.empty()) continue;
    body_.push_back({piece.data(), piece.size()});
    wanted_ += piece.size();
  }
  PANDO_CHECK(wanted_ <= body_left_, "a body of {} bytes into pieces of {}", body_left_, wanted_);
  state_ = State::body;
}

void ReplyReader::skip() {
  PANDO_CHECK(state_ == State::undecided, "skip() without a bulk");
  wanted_ = 0;
  state_ = State::body;
}

void ReplyReader::take_body_from_buffer() {
  std::size_t left = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - begin_, wanted_));
  while (left > 0) {
    const iovec piece = body_[next_piece_];
    const std::size_t size = std::min(left, piece.iov_len);
    std::memcpy(piece.iov_base, buffer_.get() + begin_, size);
    begin_ += size;
    left -= size;
    advance_body(size);
  }
  if (wanted_ > 0) return;
  const auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - begin_, body_left_));
  begin_ += skipped;
  body_left_ -= skipped;
}

}  // namespace pando::redis
