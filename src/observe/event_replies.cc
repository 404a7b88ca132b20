// SPDX-License-Identifier: Apache-2.0
// Requests to the replay socket and their answers; see the header.
#include "observe/event_replies.h"

#include <algorithm>
#include <utility>

#include "pando/event_publisher.h"

namespace pando {
namespace {

constexpr std::size_t kMaxAnswers = 64;       // at a time
constexpr std::size_t kRequestsPerTurn = 16;  // then live events have their turn
constexpr std::size_t kBatchesPerTurn = 64;
constexpr std::chrono::seconds kPatience{30};
constexpr std::size_t kSequenceBytes = 8;

std::uint64_t sequence_of(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<std::uint8_t>(byte);
  return value;
}

}  // namespace

std::string sequence_bytes(std::uint64_t sequence) {
  std::string bytes(kSequenceBytes, '\0');
  for (std::size_t i = kSequenceBytes; i-- > 0; sequence >>= 8)
    bytes[i] = static_cast<char>(sequence & 0xff);
  return bytes;
}

void EventReplies::remember(const NumberedBatch& batch) {
  buffer_.push_back(batch);
  buffered_bytes_ += batch.payload->size();
  while (!buffer_.empty() &&
         (buffer_.size() > limits_.max_batches || buffered_bytes_ > limits_.max_bytes)) {
    buffered_bytes_ -= buffer_.front().payload->size();
    buffer_.pop_front();
  }
}

std::vector<NumberedBatch> EventReplies::since(std::uint64_t start) const {
  const auto from = std::lower_bound(
      buffer_.begin(), buffer_.end(), start,
      [](const NumberedBatch& batch, std::uint64_t s) { return batch.sequence < s; });
  return {from, buffer_.end()};
}

void EventReplies::serve() {
  for (std::size_t i = 0; i < kRequestsPerTurn; ++i) {
    std::optional<std::vector<std::string>> frames = socket_->receive();
    if (!frames) break;
    take(std::move(*frames));
  }
  std::erase_if(answers_, [this](Answer& answer) { return advance(answer); });
}

// [client, (empty,) request]. Whatever the request is, an end marker answers it.
void EventReplies::take(std::vector<std::string> frames) {
  if (frames.size() < 2) return;
  const std::string request = std::move(frames.back());
  frames.pop_back();
  Answer answer{std::move(frames), {}, 0, 0, std::chrono::steady_clock::now()};
  std::erase_if(answers_, [&](const Answer& old) {  // it has lost interest
    return old.envelope.front() == answer.envelope.front();
  });
  if (answers_.size() >= kMaxAnswers) {
    ++counts_.refused;
    return;
  }
  if (request == kSnapshotRequest) {
    ++counts_.snapshots;
    answer.batches = make_snapshot_();
  } else if (request.size() == kSequenceBytes) {
    ++counts_.replays;
    answer.batches = since(sequence_of(request));
  } else {
    ++counts_.refused;
  }
  admit(answer);
  answers_.push_back(std::move(answer));
}

void EventReplies::admit(Answer& answer) {
  for (const NumberedBatch& batch : answer.batches) answer.size_bytes += batch.payload->size();
  std::size_t waiting = 0;
  for (const Answer& other : answers_) waiting += other.size_bytes;
  if (waiting == 0 || waiting + answer.size_bytes <= limits_.max_bytes) return;
  ++counts_.refused;
  answer.batches.clear();
  answer.size_bytes = 0;
}

bool EventReplies::advance(Answer& answer) {
  static const std::string kEnd = sequence_bytes(~std::uint64_t{0});
  std::vector<std::string_view> frames(answer.envelope.begin(), answer.envelope.end());
  frames.resize(frames.size() + 2);
  for (std::size_t i = 0; i < kBatchesPerTurn; ++i) {
    const bool at_end = answer.next == answer.batches.size();
    const std::string number = at_end ? kEnd : sequence_bytes(answer.batches[answer.next].sequence);
    frames[frames.size() - 2] = number;
    frames.back() = at_end ? std::string_view{} : *answer.batches[answer.next].payload;
    if (const int error = socket_->send(frames); error != 0) {
      const auto waited = std::chrono::steady_clock::now() - answer.last_progress;
      return error != EAGAIN || waited > kPatience;
    }
    if (at_end) return true;
    answer.batches[answer.next++].payload.reset();
    answer.last_progress = std::chrono::steady_clock::now();
  }
  return false;
}

}  // namespace pando
