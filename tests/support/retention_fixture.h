// SPDX-License-Identifier: Apache-2.0
// A small cache whose durations are measured by a clock that the test moves.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "support/cache_fixture.h"

namespace pando::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A clock, and the options of a cache that goes by it.
class TestClock {
 public:
  void advance(milliseconds time) { *now_ += time; }
  /// Stays right wherever the clock is moved to.
  std::function<std::chrono::steady_clock::time_point()> source() const {
    return [now = now_] { return *now; };
  }

 private:
  std::shared_ptr<std::chrono::steady_clock::time_point> now_ =
      std::make_shared<std::chrono::steady_clock::time_point>(std::chrono::hours(1));
};

class ClockedCache : public TestClock, public TestCache {
 public:
  explicit ClockedCache(std::size_t page_size = 4, const RetentionOptions& retention = {},
                        std::size_t capacity_tokens = 256, std::string_view policy = "lru")
      : TestCache(page_size, options(retention), capacity_tokens, policy) {}

  /// Time passes, and the cache looks at the clock.
  void pass(milliseconds time) {
    advance(time);
    cache->poll();
  }

 private:
  CacheOptions options(const RetentionOptions& retention) const {
    CacheOptions o;
    o.retention = retention;
    o.retention.now = source();
    return o;
  }
};

}  // namespace pando::testing
