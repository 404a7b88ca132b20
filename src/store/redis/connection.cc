// SPDX-License-Identifier: Apache-2.0
// Connection: the handshake as a small state machine over hiredis's non-blocking connect, and
// control commands over its reader. Bytes are sent by sendmsg with MSG_NOSIGNAL, not by hiredis:
// its write() ends a process that does not ignore SIGPIPE when the server has gone.
#include "store/redis/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace pando::redis {
namespace {

void append_command(std::string& out, const Command& command) {
  std::vector<const char*> args;
  std::vector<std::size_t> sizes;
  for (const std::string& arg : command) {
    args.push_back(arg.data());
    sizes.push_back(arg.size());
  }
  char* text = nullptr;
  const int size =
      redisFormatCommandArgv(&text, static_cast<int>(args.size()), args.data(), sizes.data());
  PANDO_CHECK(size > 0, "no memory for a command to a Redis server");
  out.append(text, static_cast<std::size_t>(size));
  redisFreeCommand(text);
}

bool would_block(int number) {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

}  // namespace

// ---- Handshake.

Result<std::unique_ptr<Connection>> Connection::start(const Address& address, const Login& login,
                                                      std::chrono::milliseconds timeout) {
  std::unique_ptr<redisContext, FreeContext> context(
      address.is_unix() ? redisConnectUnixNonBlock(address.path.c_str())
                        : redisConnectNonBlock(address.host.c_str(), address.port));
  PANDO_CHECK(context != nullptr, "no memory for a connection to {}", address.text());
  std::unique_ptr<Connection> connection(
      new Connection(std::move(context), address, login, timeout));
  if (connection->context_->err != 0) return connection->error(connection->context_->errstr);
  // Not for programs that the process starts; and a peer that vanished is noticed some day. Where
  // either cannot be had, the connection works all the same.
  const int on = 1;
  (void)fcntl(connection->fd(), F_SETFD, FD_CLOEXEC);
  (void)setsockopt(connection->fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  return connection;
}

Connection::Connection(std::unique_ptr<redisContext, FreeContext> context, const Address& address,
                       const Login& login, std::chrono::milliseconds timeout)
    : context_(std::move(context)),
      name_(address.text()),
      login_(login),
      timeout_(timeout),
      handshake_end_(Clock::now() + timeout) {}

Error Connection::error(std::string_view what) const {
  return make_error(ErrorCode::io_error, "{}: {}", name_, what);
}
Error Connection::errno_error(int number) const {
  return error(std::generic_category().message(number));
}

Error Connection::no_progress(std::chrono::milliseconds timeout) const {
  return make_error(ErrorCode::timed_out, "{}: no progress for {} ms", name_, timeout.count());
}

short Connection::wants() const {
  if (stage_ == Stage::connecting || !text_.empty()) return POLLOUT;
  return stage_ == Stage::authenticating ? POLLIN : short{0};
}

Status Connection::step() {
  if (Clock::now() >= handshake_end_) {
    return make_error(ErrorCode::timed_out, "{}: no connection within {} ms ({})", name_,
                      timeout_.count(),
                      stage_ == Stage::connecting ? "connecting" : "waiting for AUTH");
  }
  pollfd poll_on{fd(), wants(), 0};
  if (poll(&poll_on, 1, 0) <= 0) return {};
  if (stage_ == Stage::connecting) return finish_connect();
  if (!text_.empty()) return send_text();
  Result<std::optional<ControlReply>> reply = read_reply();
  if (!reply) return reply.error();
  if (!*reply) return {};
  const redisReply& answer = ***reply;
  if (answer.type != REDIS_REPLY_STATUS)
    return error(fmt::format("AUTH refused: {}", answer.str == nullptr
                                                     ? "no reason given"
                                                     : std::string_view(answer.str, answer.len)));
  stage_ = Stage::ready;
  return {};
}

Status Connection::finish_connect() {
  int number = 0;
  socklen_t size = sizeof(number);
  if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &number, &size) != 0) number = errno;
  if (number != 0) return errno_error(number);
  if (login_.password.empty()) {
    stage_ = Stage::ready;
    return {};
  }
  Command auth = {"AUTH"};
  if (!login_.username.empty()) auth.push_back(login_.username);
  auth.push_back(login_.password);
  append_command(text_, auth);
  stage_ = Stage::authenticating;
  return send_text();
}

Status Connection::wait_ready(const Patience& patience) {
  while (!ready()) {
    if (patience.batch != nullptr && patience.batch->stopped())
      return error("called off while connecting");
    pollfd poll_on{fd(), wants(), 0};
    poll(&poll_on, 1, static_cast<int>(kPollInterval.count()));
    if (Status status = step(); !status) return status;
  }
  return {};
}

// ---- Bytes.

Result<std::size_t> Connection::send(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t size = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (size >= 0) return static_cast<std::size_t>(size);
  if (would_block(errno)) return std::size_t{0};
  return errno_error(errno);
}

Result<std::size_t> Connection::receive(std::span<const iovec> room) {
  const ssize_t size = readv(fd(), room.data(), static_cast<int>(room.size()));
  if (size > 0) return static_cast<std::size_t>(size);
  if (size == 0) return error("the server closed the connection");
  if (would_block(errno)) return std::size_t{0};
  return errno_error(errno);
}

bool Connection::quiet() const {
  char byte = 0;
  return recv(fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && would_block(errno);
}

// ---- Control commands.

Status Connection::send_text() {
  const iovec piece{text_.data(), text_.size()};
  Result<std::size_t> sent = send({&piece, 1});
  if (!sent) return sent.error();
  text_.erase(0, *sent);
  return {};
}

Result<std::optional<ControlReply>> Connection::read_reply() {
  void* reply = nullptr;
  if (redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK) return error(context_->errstr);
  if (reply == nullptr) {
    if (redisBufferRead(context_.get()) != REDIS_OK ||
        redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK)
      return error(context_->errstr);
  }
  if (reply == nullptr) return std::optional<ControlReply>();
  return std::optional(ControlReply(static_cast<redisReply*>(reply)));
}

Result<std::vector<ControlReply>> Connection::ask(std::span<const Command> commands,
                                                  const Patience& patience) {
  PANDO_CHECK(ready() && text_.empty(), "a control command to {} before it is ready", name_);
  for (const Command& command : commands) append_command(text_, command);
  std::vector<ControlReply> replies;
  Clock::time_point last_progress = Clock::now();
  while (replies.size() < commands.size()) {
    if (patience.batch != nullptr && patience.batch->stopped())
      return error("called off while waiting for a reply");
    if (Clock::now() - last_progress >= patience.io_timeout)
      return no_progress(patience.io_timeout);
    pollfd poll_on{fd(), static_cast<short>(text_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
    if (poll(&poll_on, 1, static_cast<int>(kPollInterval.count())) <= 0) continue;
    last_progress = Clock::now();
    if (!text_.empty()) {
      if (Status sent = send_text(); !sent) return sent.error();
    }
    if ((poll_on.revents & ~POLLOUT) == 0) continue;
    for (bool more = true; more && replies.size() < commands.size();) {
      Result<std::optional<ControlReply>> reply = read_reply();
      if (!reply) return reply.error();
      more = reply->has_value();
      if (more) replies.push_back(*std::move(*reply));
    }
  }
  return replies;
}

}  // namespace pando::redis
