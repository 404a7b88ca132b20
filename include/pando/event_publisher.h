// SPDX-License-Identifier: Apache-2.0
// EventPublisher: KV events on the wire, as routers of SGLang and vLLM read them, over ZeroMQ.
// Built as pando::events (PANDO_EVENTS). docs/formats.md has the bytes.
//
// A cache's owner calls publish(cache.take_events()); that moves the events into a bounded queue
// and returns. A thread of the publisher numbers, encodes and sends them, answers who missed some
// (replay) and who comes late: it keeps a mirror of what is cached, from the events alone, and
// gives it away with the number at which live events go on (snapshot). Slow subscribers lose
// messages, see the gap in the numbers, and ask again; they never hold up the thread, nor the
// cache.
//
// publish() and restate() belong to one thread at a time; the rest may come from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"
#include "pando/result.h"

namespace pando {

/// Whose event stream it is.
enum class EventDialect { sglang, vllm };

/// Options of an EventPublisher.
struct EventPublisherOptions {
  EventDialect dialect = EventDialect::sglang;  ///< whose event stream it is
  std::string topic = {};                       ///< what subscribers filter by; empty: none
  /// In every batch; added to the ports of endpoints that name one.
  std::uint16_t data_parallel_rank = 0;
  /// A port of "*": any that is free.
  std::string endpoint = "tcp://127.0.0.1:*";         ///< "*": any free port
  std::string replay_endpoint = "tcp://127.0.0.1:*";  ///< of replay and snapshot; empty: neither
  bool snapshots = true;                              ///< keep a mirror of what is cached
  /// Events that wait for the thread. What does not fit is dropped, see publish().
  std::size_t max_queued_bytes = std::size_t{256} << 20;
  /// Batches that can be asked for again.
  std::size_t max_replay_batches = 10'000;
  /// Bytes of batches that can be asked for again.
  std::size_t max_replay_bytes = std::size_t{256} << 20;
  /// Batches that wait for one subscriber; what comes then, it loses.
  std::size_t max_unsent_batches = 100'000;

  Status validate() const;
};

/// Totals of an EventPublisher.
struct EventPublisherStats {
  std::uint64_t next_sequence = 0;      ///< number of the next batch
  std::uint64_t published_batches = 0;  ///< batches that were sent
  std::uint64_t published_events = 0;   ///< events in them
  std::uint64_t dropped_batches = 0;    ///< batches for which the queue had no room
  std::uint64_t replays = 0;            ///< requests for batches that were answered
  std::uint64_t snapshots = 0;          ///< requests for snapshots that were answered
  std::uint64_t refused_requests = 0;   ///< requests not understood, or too many at a time
  std::uint64_t queued_bytes = 0;       ///< bytes of events that wait to be sent now
  std::uint64_t mirrored_blocks = 0;    ///< blocks in the mirror now
};

/// KV events over ZeroMQ, as routers of SGLang and vLLM read them.
class EventPublisher {
 public:
  /// An error if an endpoint cannot be had.
  static Result<std::unique_ptr<EventPublisher>> create(const EventPublisherOptions& options = {});
  /// Sends what is queued; waits half a second at most for subscribers to take it.
  ~EventPublisher();
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;

  /// One batch with one sequence number; none if there are no events. Never waits.
  ///
  /// False: the queue was full, and the batch is dropped. Its number is left out, so that
  /// subscribers see a gap, and AllBlocksCleared follows: nobody believes in blocks that may have
  /// gone. What the cache still has is told again by restate().
  bool publish(std::vector<KvEvent> events);
  /// Takes the place of all that is queued: everything is cleared, and this is what there is, as
  /// PrefixCache::events_of_all() says. Always accepted. (A BlockCache does not know what came
  /// before its host blocks: there routers learn of blocks as they are stored again.)
  void restate(std::vector<KvEvent> events);
  void flush();  ///< blocks until all that was published before is sent

  const std::string& endpoint() const;         ///< as it was taken, with its port
  const std::string& replay_endpoint() const;  ///< as it was taken, with its port; empty: none
  EventPublisherStats stats() const;           ///< totals since it was made

 private:
  struct Impl;
  explicit EventPublisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What a client sends to the replay endpoint for a snapshot.
inline constexpr std::string_view kSnapshotRequest = "pando-snapshot-v1";

}  // namespace pando
