// SPDX-License-Identifier: Apache-2.0
// Sockets that never block for longer than is left of the deadline. The server is asked to close,
// so that an answer ends where the connection does; what its headers say is checked against that.
#include "tools/http_get.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <optional>

#include "base/check.h"
#include "store/file/fd.h"

namespace pando::tools {
namespace {

using Clock = std::chrono::steady_clock;

class Connection {
 public:
  Connection(const Url& url, const HttpLimits& limits)
      : name_(fmt::format("{}:{}", url.host, url.port)), end_(Clock::now() + limits.timeout) {}
  ~Connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Status open(const Url& url) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
        error != 0)
      return make_error(ErrorCode::io_error, "{}: {}", name_, ::gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
    Status last = make_error(ErrorCode::io_error, "{}: no address", name_);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      last = connect_to(*at);
      if (last || last.error().code != ErrorCode::io_error) return last;
    }
    return last;
  }

  Status send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n >= 0) {
        text.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno != EAGAIN && errno != EINTR) {
        return failed(errno);
      } else if (Status s = wait(POLLOUT); !s) {
        return s;
      }
    }
    return {};
  }

  Result<std::string> receive_all(std::size_t max_bytes) {
    std::string answer;
    while (true) {
      char buffer[16384];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n == 0) return answer;
      if (n > 0) {
        answer.append(buffer, static_cast<std::size_t>(n));
        if (answer.size() > max_bytes)
          return make_error(ErrorCode::io_error, "{}: the answer has more than {} bytes", name_,
                            max_bytes);
      } else if (errno != EAGAIN && errno != EINTR) {
        return failed(errno);
      } else if (Status s = wait(POLLIN); !s) {
        return s.error();
      }
    }
  }

 private:
  Error failed(int number) const {
    return make_error(ErrorCode::io_error, "{}: {}", name_, errno_text(number));
  }

  Status connect_to(const addrinfo& address) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return failed(errno);
    if (::connect(fd_, address.ai_addr, address.ai_addrlen) == 0) return {};
    if (errno != EINPROGRESS) return failed(errno);
    if (Status s = wait(POLLOUT); !s) return s;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    return error == 0 ? Status() : Status(failed(error));
  }

  Status wait(short events) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
    pollfd waited{fd_, events, 0};
    const int n = left <= 0 ? 0 : ::poll(&waited, 1, static_cast<int>(left));
    if (n > 0) return {};
    if (n == 0) return make_error(ErrorCode::timed_out, "{}: no answer in time", name_);
    if (errno == EINTR) return make_error(ErrorCode::cancelled, "{}: interrupted", name_);
    return failed(errno);
  }

  const std::string name_;
  const Clock::time_point end_;
  int fd_ = -1;
};

Error bad_answer(std::string_view what) {
  return make_error(ErrorCode::io_error, "not an answer of HTTP: {}", what);
}

/// The value of a header, if it is there; names know no case.
std::optional<std::string> header(std::string_view headers, std::string_view name) {
  for (std::size_t at = 0; at < headers.size();) {
    const std::size_t end = std::min(headers.find("\r\n", at), headers.size());
    const std::string_view line = headers.substr(at, end - at);
    at = end + 2;
    const auto same = [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) ==
             std::tolower(static_cast<unsigned char>(b));
    };
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    if (!std::equal(name.begin(), name.end(), line.begin(), same)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    if (begin == line.npos) return "";
    return std::string(line.substr(begin, line.find_last_not_of(" \t") + 1 - begin));
  }
  return std::nullopt;
}

std::optional<std::size_t> parse_number(std::string_view text, int base) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value, base);
  if (error != std::errc() || end == text.begin()) return std::nullopt;
  return value;
}

Result<std::string> unchunk(std::string_view rest) {
  std::string body;
  while (true) {
    const std::size_t line = rest.find("\r\n");
    if (line == rest.npos) return bad_answer("it ends before a chunk");
    const std::optional<std::size_t> size = parse_number(rest.substr(0, line), 16);
    if (!size) return bad_answer("a chunk has no size");
    rest.remove_prefix(line + 2);
    if (*size == 0) return body;
    if (rest.size() < 2 || *size > rest.size() - 2 || rest.substr(*size, 2) != "\r\n")
      return bad_answer("it ends inside a chunk");
    body += rest.substr(0, *size);
    rest.remove_prefix(*size + 2);
  }
}

}  // namespace

Result<Url> parse_url(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  const Error bad = make_error(ErrorCode::invalid_argument,
                               "'{}': expected http://HOST:PORT/PATH, without TLS", text);
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  if (rest.find("://") != rest.npos) return bad;
  Url url;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  if (slash + 1 < rest.size()) url.path = rest.substr(slash);
  std::string_view host = rest.substr(0, slash);
  std::string_view port;
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == host.npos) return bad;
    port = host.substr(end + 1);
    host = host.substr(1, end - 1);
  } else if (const std::size_t colon = host.find(':'); colon != host.npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  if (!port.empty()) {
    const std::optional<std::size_t> number = parse_number(port.substr(1), 10);
    if (port.front() != ':' || !number || *number == 0 || *number > 65535) return bad;
    url.port = std::to_string(*number);
  }
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) { return c > ' '; });
  if (host.empty() || !is_plain) return bad;
  url.host = host;
  return url;
}

Result<std::string> http_body(std::string_view answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  const std::size_t line = answer.find("\r\n");
  if (!answer.starts_with("HTTP/1.") || end == answer.npos || line < 12)
    return bad_answer("no headers");
  const std::string_view status = answer.substr(9, line - 9);
  if (!status.starts_with("200"))
    return make_error(ErrorCode::io_error, "the server says {}", status);
  const std::string_view headers = answer.substr(line + 2, end - line);
  const std::string_view rest = answer.substr(end + 4);
  if (const auto coding = header(headers, "Transfer-Encoding"); coding && *coding != "identity") {
    if (*coding != "chunked") return bad_answer("its transfer encoding is " + *coding);
    return unchunk(rest);
  }
  if (const auto length = header(headers, "Content-Length")) {
    const std::optional<std::size_t> size = parse_number(*length, 10);
    if (!size) return bad_answer("its length is no number");
    if (rest.size() < *size) return bad_answer("it is shorter than it says");
    return std::string(rest.substr(0, *size));
  }
  return std::string(rest);
}

Result<std::string> http_get(const Url& url, const HttpLimits& limits) {
  Connection connection(url, limits);
  if (Status opened = connection.open(url); !opened) return opened.error();
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  const std::string request = fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}{}{}:{}\r\nAccept: text/plain;version=0.0.4\r\n"
      "User-Agent: pando/" PANDO_VERSION "\r\nConnection: close\r\n\r\n",
      url.path, is_ipv6 ? "[" : "", url.host, is_ipv6 ? "]" : "", url.port);
  if (Status sent = connection.send(request); !sent) return sent.error();
  const Result<std::string> answer = connection.receive_all(limits.max_bytes);
  if (!answer) return answer.error();
  return http_body(*answer);
}

}  // namespace pando::tools
