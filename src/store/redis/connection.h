// SPDX-License-Identifier: Apache-2.0
// One connection to a server, never blocking. hiredis connects, writes control commands and reads
// their replies; pages go past it, through send() and receive(), without a copy.
//
// A connection begins in the handshake (connect, AUTH): step() whenever wants() is there, until
// ready(). Then either control commands or pages are under way, never both. After any error it is
// of no more use. Belongs to one thread at a time. Messages begin with the server's address.
#pragma once

#include <hiredis/hiredis.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pando/result.h"
#include "pando/store.h"
#include "store/redis/address.h"

namespace pando::redis {

using Clock = std::chrono::steady_clock;

/// Cancellation and deadlines are looked at this often, whatever is waited for.
inline constexpr std::chrono::milliseconds kPollInterval(20);

/// How long to wait for a server.
struct Patience {
  const StoreBatch* batch = nullptr;     ///< until it is stopped, if there is one
  std::chrono::milliseconds io_timeout;  ///< without any progress
};

struct Login {
  std::string username = {};
  std::string password = {};  ///< empty: no AUTH
};

/// Of a control command, in hiredis's form.
struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using ControlReply = std::unique_ptr<redisReply, FreeReply>;
using Command = std::vector<std::string>;

class Connection {
 public:
  /// Begins the handshake, which fails after `timeout`. Looking up a name may block.
  static Result<std::unique_ptr<Connection>> start(const Address& address, const Login& login,
                                                   std::chrono::milliseconds timeout);

  bool ready() const { return stage_ == Stage::ready; }
  int fd() const { return context_->fd; }
  /// Events of poll() that the handshake waits for.
  short wants() const;
  Status step();
  Status wait_ready(const Patience& patience);

  /// How many bytes went; 0: none can go now.
  Result<std::size_t> send(std::span<const iovec> pieces);
  /// How many bytes came; 0: none are there now. That the server has closed is an error.
  Result<std::size_t> receive(std::span<const iovec> room);

  /// Sends all, then returns their replies, errors among them.
  Result<std::vector<ControlReply>> ask(std::span<const Command> commands,
                                        const Patience& patience);

  /// What to say when the server has done nothing for so long; its code is timed_out.
  Error no_progress(std::chrono::milliseconds timeout) const;
  /// Of one that nobody uses: the server has neither closed it nor sent what nobody asked for.
  bool quiet() const;
  /// The server has answered something other than the handshake.
  bool answered() const { return answered_; }
  void set_answered() { answered_ = true; }

 private:
  enum class Stage : std::uint8_t { connecting, authenticating, ready };
  struct FreeContext {
    void operator()(redisContext* context) const { redisFree(context); }
  };

  Connection(std::unique_ptr<redisContext, FreeContext> context, const Address& address,
             const Login& login, std::chrono::milliseconds timeout);
  Error error(std::string_view what) const;
  Error errno_error(int number) const;
  Status finish_connect();
  Status send_text();
  Result<std::optional<ControlReply>> read_reply();

  std::unique_ptr<redisContext, FreeContext> context_;
  std::string name_;
  Login login_;
  std::chrono::milliseconds timeout_;
  Clock::time_point handshake_end_;
  Stage stage_ = Stage::connecting;
  std::string text_ = {};  // control commands that are to be sent
  bool answered_ = false;
};

}  // namespace pando::redis
