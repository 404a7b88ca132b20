// SPDX-License-Identifier: Apache-2.0
// SendQueue. Texts that follow each other join, so that many small commands are one segment.
#include "store/redis/send_queue.h"

#include <algorithm>

#include "base/check.h"

namespace pando::redis {
namespace {

constexpr std::size_t kMaxPieces = 512;          // per system call; the kernel takes 1024
constexpr std::size_t kMaxTextBytes = 64 << 10;  // of a segment, or joining would copy too much

}  // namespace

void SendQueue::add_text(std::string_view text) {
  if (text.empty()) return;
  size_bytes_ += text.size();
  const bool joins = !segments_.empty() && !segments_.back().text.empty() &&
                     segments_.back().text.size() + text.size() <= kMaxTextBytes;
  if (joins) {
    segments_.back().text += text;
  } else {
    segments_.push_back({.text = std::string(text)});
  }
}

void SendQueue::add_piece(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  size_bytes_ += piece.size();
  segments_.push_back({.piece = piece});
}

std::span<const iovec> SendQueue::front() {
  front_.clear();
  for (const Segment& segment : segments_) {
    if (front_.size() == kMaxPieces) break;
    std::span<const std::byte> bytes = segment.bytes();
    if (front_.empty()) bytes = bytes.subspan(first_sent_);
    front_.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
  }
  return front_;
}

void SendQueue::sent(std::size_t num_bytes) {
  PANDO_CHECK(num_bytes <= size_bytes_, "{} bytes sent of {}", num_bytes, size_bytes_);
  size_bytes_ -= num_bytes;
  first_sent_ += num_bytes;
  while (!segments_.empty() && first_sent_ >= segments_.front().bytes().size()) {
    first_sent_ -= segments_.front().bytes().size();
    segments_.pop_front();
  }
}

}  // namespace pando::redis
