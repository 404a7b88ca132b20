// SPDX-License-Identifier: Apache-2.0
// Node: idle connections, the back-off, and control commands. The mutex is never held while waiting
// for the server.
#include "store/redis/node.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace pando::redis {

std::chrono::milliseconds backoff_delay(const RedisStoreOptions& options, unsigned num_failures,
                                        Random& random) {
  const std::int64_t most = options.max_backoff.count();
  std::int64_t least = options.min_backoff.count();
  for (unsigned n = 1; n < num_failures && least < most; ++n) least *= 2;
  least = std::min(least, std::max(options.min_backoff.count(), most / 2));
  const auto jitter = static_cast<std::int64_t>(
      random.below(static_cast<std::uint64_t>(std::min(least, std::int64_t{1} << 31)) + 1));
  return std::chrono::milliseconds(std::min(most, least + jitter));
}

Node::Node(Address address, const RedisStoreOptions& options,
           std::atomic<std::uint64_t>& reconnects)
    : address_(std::move(address)),
      name_(address_.text()),
      options_(options),
      reconnects_(reconnects),
      random_(std::hash<std::string>()(name_),
              static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())) {}

// ---- Connections.

std::unique_ptr<Connection> Node::take_idle() {
  const std::lock_guard lock(mutex_);
  while (!idle_.empty()) {
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->quiet()) return connection;
    is_lost_ = true;
  }
  return nullptr;
}

Result<std::unique_ptr<Connection>> Node::take() {
  if (std::unique_ptr<Connection> idle = take_idle()) return idle;
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (now < next_try_) {
      return make_error(ErrorCode::io_error, "{}; it is tried again in {} ms", last_error_,
                        std::chrono::ceil<std::chrono::milliseconds>(next_try_ - now).count());
    }
  }
  Result<std::unique_ptr<Connection>> made =
      Connection::start(address_, {options_.username, options_.password}, options_.connect_timeout);
  if (!made) failed(made.error());
  return made;
}

void Node::give_back(std::unique_ptr<Connection> connection) {
  if (!connection->ready()) return;
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(connection));
}

// ---- How the server does.

void Node::answered(Connection& connection) {
  if (connection.answered()) return;
  connection.set_answered();
  const std::lock_guard lock(mutex_);
  if (is_lost_) reconnects_.fetch_add(1, std::memory_order_relaxed);
  is_lost_ = false;
  num_failures_ = 0;
  next_try_ = {};
}

void Node::lost() {
  const std::lock_guard lock(mutex_);
  is_lost_ = true;
}

void Node::failed(const Error& error) {
  const std::lock_guard lock(mutex_);
  is_lost_ = true;
  idle_.clear();
  // Several calls may fail by one and the same outage: it is counted once per time of waiting.
  if (Clock::now() < next_try_) return;
  ++num_failures_;
  next_try_ = Clock::now() + backoff_delay(options_, num_failures_, random_);
  last_error_ = error.message;
}

// ---- Control commands.

Result<std::vector<ControlReply>> Node::ask(std::span<const Command> commands,
                                            const Patience& patience) {
  bool may_retry = false;
  Result<std::vector<ControlReply>> replies = ask_once(commands, patience, may_retry);
  if (!replies && may_retry) return ask_once(commands, patience, may_retry);
  return replies;
}

Result<std::vector<ControlReply>> Node::ask_once(std::span<const Command> commands,
                                                 const Patience& patience, bool& may_retry) {
  Result<std::unique_ptr<Connection>> taken = take();
  if (!taken) return taken.error();
  std::unique_ptr<Connection> connection = *std::move(taken);
  const bool is_new = !connection->answered();
  Status ready = connection->wait_ready(patience);
  Result<std::vector<ControlReply>> replies =
      ready ? connection->ask(commands, patience)
            : Result<std::vector<ControlReply>>(ready.error());
  if (replies) {
    answered(*connection);
    give_back(std::move(connection));
    return replies;
  }
  may_retry = false;
  if (patience.batch != nullptr && patience.batch->stopped()) return replies;
  may_retry = !is_new && replies.error().code != ErrorCode::timed_out;
  if (may_retry) {
    lost();
  } else {
    failed(replies.error());
  }
  return replies;
}

}  // namespace pando::redis
