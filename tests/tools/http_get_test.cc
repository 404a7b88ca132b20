// SPDX-License-Identifier: Apache-2.0
// The HTTP client against a server that behaves, and one that does not.
#include "tools/http_get.h"

#include <gtest/gtest.h>

#include "support/http_server.h"

namespace pando::tools {
namespace {

using namespace std::chrono_literals;
using testing::http_ok;
using testing::HttpServer;

Url url_of(const HttpServer& server) { return *parse_url(server.address()); }

TEST(ParseUrl, TakesWhatPeopleWrite) {
  EXPECT_EQ(*parse_url("http://host:9400/metrics"), (Url{"host", "9400", "/metrics"}));
  EXPECT_EQ(*parse_url("host:9400"), (Url{"host", "9400", "/metrics"}));
  EXPECT_EQ(*parse_url("http://host"), (Url{"host", "80", "/metrics"}));
  EXPECT_EQ(*parse_url("http://host/"), (Url{"host", "80", "/metrics"}));
  EXPECT_EQ(*parse_url("http://[::1]:91/a?b"), (Url{"::1", "91", "/a?b"}));
  for (const char* bad : {"", "http://", "https://host", "ftp://x", "host:0", "host:70000",
                          "host:x", "[::1", "http://a b", "host:1\r\nX: y", ":80"}) {
    const Result<Url> url = parse_url(bad);
    ASSERT_FALSE(url.ok()) << bad;
    EXPECT_EQ(url.error().code, ErrorCode::invalid_argument);
  }
}

TEST(HttpBody, ByLengthByChunksOrToTheEnd) {
  EXPECT_EQ(*http_body("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd"), "abc");
  EXPECT_EQ(*http_body("HTTP/1.0 200 OK\r\n\r\nall of it"), "all of it");
  EXPECT_EQ(*http_body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n"),
            "abcdefg");
  for (const char* bad :
       {"", "nonsense", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc"})
    EXPECT_FALSE(http_body(bad).ok()) << bad;
  EXPECT_NE(http_body("HTTP/1.1 404 Not Found\r\n\r\n").error().message.find("404 Not Found"),
            std::string::npos);
}

TEST(HttpGet, AsksForThePathAndReadsALongAnswer) {
  const std::string body(1 << 20, 'x');
  std::string asked;
  {
    HttpServer server([&](std::size_t, const std::string& request) {
      asked = request;
      return http_ok(body);
    });
    const Result<std::string> got = http_get(url_of(server));
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(*got, body);
    const Result<std::string> limited = http_get(url_of(server), {.max_bytes = 1000});
    ASSERT_FALSE(limited.ok());
    EXPECT_NE(limited.error().message.find("more than 1000"), std::string::npos);
  }
  EXPECT_TRUE(asked.starts_with("GET /metrics HTTP/1.1\r\n")) << asked;
  EXPECT_NE(asked.find("Connection: close\r\n"), std::string::npos);
}

TEST(HttpGet, AServerThatSaysNothingOrIsNotThere) {
  std::uint16_t port = 0;
  {
    HttpServer server([](std::size_t, const std::string&) { return ""; });
    port = server.port();
    const Result<std::string> late = http_get(url_of(server), {.timeout = 50ms});
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::timed_out);
  }
  const Result<std::string> gone = http_get({"127.0.0.1", std::to_string(port), "/"});
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::io_error);
  EXPECT_NE(gone.error().message.find("refused"), std::string::npos) << gone.error().message;
}

}  // namespace
}  // namespace pando::tools
