// SPDX-License-Identifier: Apache-2.0
// One server and the connections to it that nobody uses just now. A call takes a connection, has it
// for itself, and gives it back only when every reply has been read; one that was stopped mid-reply
// is dropped instead, which closes it.
//
// A server that cannot be reached, or does not answer, is left alone for a while that doubles from
// min_backoff to max_backoff, with jitter so that clients do not return in step; calls fail at once
// meanwhile. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "pando/result.h"
#include "pando/store_backends.h"
#include "store/redis/connection.h"

namespace pando::redis {

/// Between min_backoff and max_backoff, about min_backoff * 2^(n - 1) after the n-th failure.
std::chrono::milliseconds backoff_delay(const RedisStoreOptions& options, unsigned num_failures,
                                        Random& random);

class Node {
 public:
  /// The options and the counter outlive the node.
  Node(Address address, const RedisStoreOptions& options, std::atomic<std::uint64_t>& reconnects);

  const Address& address() const { return address_; }
  const std::string& name() const { return name_; }

  /// One that is ready, or a new one in its handshake. An error while the server is left alone.
  Result<std::unique_ptr<Connection>> take();
  /// Only with no reply outstanding.
  void give_back(std::unique_ptr<Connection> connection);

  /// What became of a connection, from whoever used it.
  void answered(Connection& connection);  ///< the server works
  void lost();                            ///< it ended, but had worked: try again at once
  void failed(const Error& error);        ///< it never worked, or hangs: leave the server alone

  /// Control commands on a connection of their own; once more on a new one if it had died.
  Result<std::vector<ControlReply>> ask(std::span<const Command> commands,
                                        const Patience& patience);

 private:
  std::unique_ptr<Connection> take_idle();
  Result<std::vector<ControlReply>> ask_once(std::span<const Command> commands,
                                             const Patience& patience, bool& may_retry);

  const Address address_;
  const std::string name_;
  const RedisStoreOptions& options_;
  std::atomic<std::uint64_t>& reconnects_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;  // the last used at the back
  bool is_lost_ = false;                           // since it last answered
  unsigned num_failures_ = 0;                      // likewise
  Clock::time_point next_try_ = {};
  std::string last_error_;
  Random random_;
};

}  // namespace pando::redis
