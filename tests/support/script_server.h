// SPDX-License-Identifier: Apache-2.0
// A server that says what a test wants: for each lot of bytes that a client sends it answers with
// what the script gives, or closes where that gives nothing. It serves one client at a time, from a
// thread of its own, on which the script runs.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace pando::testing {

class ScriptServer {
 public:
  /// Gets the number of the lot, over all clients, and its bytes.
  using Script = std::function<std::optional<std::string>(int, const std::string&)>;

  explicit ScriptServer(Script script) : script_(std::move(script)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0) listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptServer() {
    ended_ = true;
    thread_.join();
    close(listener_);
  }
  ScriptServer(const ScriptServer&) = delete;
  ScriptServer& operator=(const ScriptServer&) = delete;

  const std::string& address() const { return address_; }
  int num_clients() const { return num_clients_; }

 private:
  bool readable(int fd) const {
    pollfd polled{fd, POLLIN, 0};
    while (!ended_)
      if (poll(&polled, 1, 10) > 0) return true;
    return false;
  }

  void run() {
    while (readable(listener_)) {
      const int client = accept(listener_, nullptr, nullptr);
      ++num_clients_;
      serve(client);
      close(client);
    }
  }

  void serve(int client) {
    char bytes[65536];
    while (readable(client)) {
      const ssize_t size = recv(client, bytes, sizeof(bytes), 0);
      if (size <= 0) return;
      const auto answer = script_(num_lots_++, {bytes, static_cast<std::size_t>(size)});
      if (!answer) return;
      if (send(client, answer->data(), answer->size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  Script script_;
  int listener_ = 0;
  std::string address_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> num_clients_ = 0;
  int num_lots_ = 0;
  std::thread thread_;
};

}  // namespace pando::testing
