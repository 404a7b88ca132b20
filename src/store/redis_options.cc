// SPDX-License-Identifier: Apache-2.0
// What options of the Redis backend can work at all; in builds without it too, so that a wrong
// option is found there. How a server is written is checked where it is read (redis/address.h).
#include "base/check.h"
#include "pando/store_backends.h"

namespace pando {
namespace {

Status require(bool condition, std::string_view what) {
  if (condition) return {};
  return make_error(ErrorCode::invalid_argument, "Redis store: {}", what);
}

}  // namespace

Status RedisStoreOptions::validate() const {
  using std::chrono::milliseconds;
  const Status checks[] = {
      require(!servers.empty(), "no servers, expected at least one"),
      require(cluster || servers.size() == 1,
              fmt::format("{} servers, expected one, or the option cluster", servers.size())),
      require(username.empty() || !password.empty(), "a username needs a password"),
      require(!key_prefix.empty(),
              "an empty key_prefix, expected one, or clear() would remove keys of others"),
      require(!ttl || *ttl >= milliseconds(1), "a ttl below 1 ms"),
      require(connect_timeout >= milliseconds(1), "a connect_timeout below 1 ms"),
      require(io_timeout >= milliseconds(1), "an io_timeout below 1 ms"),
      require(min_backoff >= milliseconds(1), "a min_backoff below 1 ms"),
      require(max_backoff >= min_backoff,
              fmt::format("a max_backoff of {} ms, expected at least min_backoff, {} ms",
                          max_backoff.count(), min_backoff.count())),
      require(pipeline_bytes >= 1, "pipeline_bytes of 0, expected at least 1"),
  };
  for (const Status& check : checks)
    if (!check) return check;
  return {};
}

}  // namespace pando
