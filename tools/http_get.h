// SPDX-License-Identifier: Apache-2.0
// One GET over plain HTTP, for metrics endpoints: no TLS, no redirections, one connection per call.
// The whole answer must come before the deadline and may not be larger than the limit.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "pando/result.h"

namespace pando::tools {

struct Url {
  std::string host;
  std::string port = "80";
  std::string path = "/metrics";

  friend bool operator==(const Url&, const Url&) = default;
};
/// http://HOST[:PORT][/PATH], or without the http://. HOST may be an [IPv6] address.
Result<Url> parse_url(const std::string& text);

struct HttpLimits {
  std::chrono::milliseconds timeout = std::chrono::seconds(5);
  std::size_t max_bytes = std::size_t{16} << 20;  ///< headers and chunks included
};

/// The body of an answer 200. timed_out; cancelled: a signal came; io_error: everything else.
Result<std::string> http_get(const Url& url, const HttpLimits& limits = {});

/// The body of a whole answer, as the server closed after it: by length, by chunks, or all of it.
Result<std::string> http_body(std::string_view answer);

}  // namespace pando::tools
