// SPDX-License-Identifier: Apache-2.0
// A tiny HTTP server on loopback for tests: answers each connection with what a function gives for
// it, word for word, and closes. On a free port; its thread ends with the object.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

namespace pando::testing {

inline std::string http_ok(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

class HttpServer {
 public:
  /// Called with the number of the connection, from 0, and the request. An empty answer: the server
  /// says nothing and keeps the connection open until it ends.
  using Answer = std::function<std::string(std::size_t number, const std::string& request)>;

  explicit HttpServer(Answer answer, std::uint16_t port = 0) : answer_(std::move(answer)) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    socklen_t size = sizeof address;
    if (::bind(listening_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listening_, 8) != 0 ||
        ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no server on loopback");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    ending_ = true;
    thread_.join();
    ::close(listening_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const { return port_; }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  std::size_t num_served() const { return served_; }

 private:
  bool readable(int fd) const {
    while (!ending_) {
      pollfd waited{fd, POLLIN, 0};
      if (::poll(&waited, 1, 20) > 0) return true;
    }
    return false;
  }

  void serve() {
    while (readable(listening_)) {
      const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos && readable(fd)) {
        const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        request.append(buffer, static_cast<std::size_t>(n));
      }
      const std::string answer = answer_(served_, request);
      if (answer.empty()) readable(fd);  // until the other side closes, or the end
      std::size_t sent = 0;
      while (sent < answer.size()) {
        const ssize_t n = ::send(fd, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += static_cast<std::size_t>(n);
      }
      ::close(fd);
      ++served_;
    }
  }

  const Answer answer_;
  int listening_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> ending_ = false;
  std::atomic<std::size_t> served_ = 0;
  std::thread thread_;
};

}  // namespace pando::testing
