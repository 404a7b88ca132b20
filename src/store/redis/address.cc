// SPDX-License-Identifier: Apache-2.0
// Addresses from text and back.
#include "store/redis/address.h"

#include <charconv>

#include "base/check.h"

namespace pando::redis {

std::string Address::text() const {
  if (is_unix()) return fmt::format("unix:{}", path);
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> parse_address(std::string_view text) {
  const auto refuse = [&] {
    return make_error(ErrorCode::invalid_argument,
                      "Redis server \"{}\": expected \"host:port\" or \"unix:/path\"", text);
  };
  constexpr std::string_view kUnix = "unix:";
  if (text.substr(0, kUnix.size()) == kUnix) {
    const std::string_view path = text.substr(kUnix.size());
    if (path.empty() || path.front() != '/') return refuse();
    return Address{.path = std::string(path)};
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  const std::string_view digits = text.substr(colon + 1);
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (host.empty() || !is_number || port < 1 || port > 65535) return refuse();
  return Address{.host = std::string(host), .port = port};
}

}  // namespace pando::redis
