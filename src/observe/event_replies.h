// SPDX-License-Identifier: Apache-2.0
// The replay socket of an EventPublisher: a bounded buffer of what was published, and the answers
// that are on their way to clients. A client that does not read is tried again later, and given up
// after a while; nobody waits for it. Belongs to the publisher's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "observe/zmq_socket.h"

namespace pando {

/// A batch as it goes over the wire.
struct NumberedBatch {
  std::uint64_t sequence = 0;
  std::shared_ptr<const std::string> payload;
};

/// A number as eight bytes, the most significant first.
std::string sequence_bytes(std::uint64_t sequence);

class EventReplies {
 public:
  using MakeSnapshot = std::function<std::vector<NumberedBatch>()>;
  struct Limits {
    std::size_t max_batches = 0;
    std::size_t max_bytes = 0;
  };
  struct Counts {
    std::uint64_t replays = 0, snapshots = 0, refused = 0;
  };

  /// `socket` is a ROUTER that fails to send to those who are gone or full.
  EventReplies(std::unique_ptr<ZmqSocket> socket, Limits limits, MakeSnapshot make_snapshot)
      : socket_(std::move(socket)), limits_(limits), make_snapshot_(std::move(make_snapshot)) {}

  void* socket() const { return socket_->get(); }
  /// Was published; can be asked for until newer ones take its place.
  void remember(const NumberedBatch& batch);
  /// Takes requests that are there, and sends what clients have room for.
  void serve();
  /// Whether serve() should be called soon though no request comes.
  bool is_busy() const { return !answers_.empty(); }
  const Counts& counts() const { return counts_; }

 private:
  struct Answer {
    std::vector<std::string> envelope;  // the client, and what else stood before its request
    std::vector<NumberedBatch> batches;
    std::size_t next = 0;        // the end marker follows the last
    std::size_t size_bytes = 0;  // of all
    std::chrono::steady_clock::time_point last_progress;
  };
  void take(std::vector<std::string> frames);
  /// Unless others wait for so much already: then the end alone, and the client asks again.
  void admit(Answer& answer);
  std::vector<NumberedBatch> since(std::uint64_t start) const;
  /// False while there is more to send.
  bool advance(Answer& answer);

  std::unique_ptr<ZmqSocket> socket_;
  const Limits limits_;
  const MakeSnapshot make_snapshot_;
  std::deque<NumberedBatch> buffer_;
  std::size_t buffered_bytes_ = 0;
  std::deque<Answer> answers_;
  Counts counts_;
};

}  // namespace pando
