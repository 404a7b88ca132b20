// SPDX-License-Identifier: Apache-2.0
// The few calls of libzmq's C interface that the publisher needs, with owners. Expected failures
// are values; nothing throws. A socket belongs to one thread at a time and goes before its context.
#pragma once

#include <zmq.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pando {

class ZmqContext {
 public:
  ZmqContext() : context_(zmq_ctx_new()) { PANDO_CHECK(context_ != nullptr, "zmq_ctx_new"); }
  ~ZmqContext() {
    while (zmq_ctx_term(context_) != 0 && errno == EINTR) {
    }
  }
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* get() const { return context_; }

 private:
  void* context_;
};

class ZmqSocket {
 public:
  ZmqSocket(ZmqContext& context, int type) : socket_(zmq_socket(context.get(), type)) {
    PANDO_CHECK(socket_ != nullptr, "zmq_socket: {}", zmq_strerror(errno));
  }
  ~ZmqSocket() { zmq_close(socket_); }
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void set(int option, int value) { set_bytes(option, &value, sizeof value); }
  void set(int option, std::int64_t value) { set_bytes(option, &value, sizeof value); }

  /// The endpoint as it was taken.
  Result<std::string> bind(const std::string& endpoint) {
    if (zmq_bind(socket_, endpoint.c_str()) != 0)
      return make_error(ErrorCode::io_error, "events: cannot bind {}: {}", endpoint,
                        zmq_strerror(errno));
    char taken[512];
    std::size_t size = sizeof taken;
    if (zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, taken, &size) != 0)
      return make_error(ErrorCode::io_error, "events: {}", zmq_strerror(errno));
    return std::string(taken);
  }

  /// 0 when all frames are on their way, else the error number.
  int send(const std::vector<std::string_view>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
      int rc;
      do {
        rc = zmq_send(socket_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more);
      } while (rc < 0 && errno == EINTR);
      if (rc < 0) return errno;
    }
    return 0;
  }

  /// The frames of a message that is there.
  std::optional<std::vector<std::string>> receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      int rc;
      do {
        rc = zmq_msg_recv(&part, socket_, ZMQ_DONTWAIT);
      } while (rc < 0 && errno == EINTR);
      if (rc >= 0)
        frames.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
      more = rc >= 0 ? zmq_msg_more(&part) : 0;
      zmq_msg_close(&part);
    }
    if (frames.empty()) return std::nullopt;
    return frames;
  }

  void* get() const { return socket_; }

 private:
  void set_bytes(int option, const void* value, std::size_t size) {
    PANDO_CHECK(zmq_setsockopt(socket_, option, value, size) == 0, "zmq option {}: {}", option,
                zmq_strerror(errno));
  }
  void* socket_;
};

}  // namespace pando
