// SPDX-License-Identifier: Apache-2.0
// Where a server is: "host:port", "[host]:port" or "unix:/path". The text is also its name in
// messages and among the nodes of a cluster. Values only.
#pragma once

#include <string>
#include <string_view>

#include "pando/result.h"

namespace pando::redis {

struct Address {
  std::string host = {};  ///< without brackets; empty for a Unix socket
  int port = 0;
  std::string path = {};  ///< of a Unix socket

  bool is_unix() const { return !path.empty(); }
  std::string text() const;

  friend bool operator==(const Address&, const Address&) = default;
};

/// The port is what follows the last colon, as in Redis's own redirections, which do not put
/// brackets around IPv6 addresses.
Result<Address> parse_address(std::string_view text);

}  // namespace pando::redis
