// SPDX-License-Identifier: Apache-2.0
// Requests against a cache whose store may break at any time, as an engine makes them: match,
// prefetch, wait for as long as the policy says, load back, compute the rest, insert, poll.
// Whatever the store does, a request ends in time, its rows are right, and every page has one
// owner.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "pando/inspect.h"
#include "support/tier_fixture.h"

namespace pando::testing {

/// The device has room for three of the loop's keys, the host for eight: others must come from the
/// store.
inline TierSetup loop_setup() { return {.page_size = 4, .device_tokens = 96, .host_tokens = 256}; }
/// The same with a window and snapshots: what is fetched is kept as a whole or not at all.
inline TierSetup hybrid_loop_setup() {
  TierSetup setup = loop_setup();
  setup.cache.window = 8;
  setup.cache.state = StateOptions{};
  setup.window_tokens = setup.device_tokens;
  setup.host_window_tokens = setup.host_tokens;
  return setup;
}
/// The same with a window smaller than a page.
inline TierSetup small_window_loop_setup() {
  TierSetup setup = hybrid_loop_setup();
  setup.cache.window = 2;
  setup.cache.state.reset();
  return setup;
}

struct LoopCase {
  std::string name;
  TierSetup setup;
};
inline void PrintTo(const LoopCase& c, std::ostream* out) { *out << c.name; }
inline std::vector<LoopCase> loop_cases() {
  return {{"Plain", loop_setup()},
          {"WindowAndState", hybrid_loop_setup()},
          {"WindowSmallerThanAPage", small_window_loop_setup()}};
}

class RequestLoop {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kKeyTokens = 32;
  /// Far more than anything takes, however busy the machine is.
  static constexpr std::chrono::seconds kPatience{30};

  /// Each request must be over after `limit`.
  explicit RequestLoop(TieredCache& cache, std::chrono::milliseconds limit = kPatience)
      : cache_(cache), limit_(limit) {}

  /// Four keys share two pages.
  static Tokens key(std::size_t i) {
    const auto number = static_cast<Token>(i);
    return tokens(8, 1 + 100 * (number / 4)) + tokens(kKeyTokens - 8, 1'000'000 + 100 * number);
  }

  /// False when the time is over.
  bool poll_until(const std::function<bool()>& condition) {
    const Clock::time_point end = Clock::now() + kPatience;
    while (!condition()) {
      if (Clock::now() >= end) return false;
      (void)cache_->poll();
      std::this_thread::yield();
    }
    return true;
  }
  bool settle() {
    return poll_until([this] { return cache_->poll().idle; });
  }

  /// One request; the tokens that came from the store. `meanwhile` happens when its prefetch, and
  /// writes of earlier ones, have begun.
  std::size_t serve(const Tokens& key, const std::function<void()>& meanwhile = {}) {
    const Clock::time_point begin = Clock::now();
    (void)cache_.match(key);
    const Prefetch prefetch = *cache_->prefetch({key});
    (void)cache_->poll();
    if (meanwhile) meanwhile();
    EXPECT_TRUE(poll_until([&] { return cache_->prefetch_ready(prefetch.id); }));
    const std::size_t fetched = cache_->end_prefetch(prefetch.id);
    // What is being copied cannot leave the device.
    EXPECT_TRUE(poll_until([&] { return has_room(key.size()); }));
    if (cache_.states) {
      (void)cache_.load(key);
      const Match loaded = cache_.match(key);
      EXPECT_TRUE(loaded.length == 0 || cache_.holds_state(key, loaded));
      EXPECT_TRUE(poll_until([&] { return has_room(key.size()); }));
    }
    cache_.put(key);
    (void)cache_->poll();
    const Clock::duration took = Clock::now() - begin;
    EXPECT_LT(took, limit_);
    EXPECT_TRUE(cache_.closes());
    return fetched;
  }
  /// Keys [first, end), one after the other; all of them have been given to the store then.
  void store(std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      EXPECT_TRUE(settle());  // what is being put cannot make room on the host
      serve(key(i));
    }
    EXPECT_TRUE(settle());
  }
  /// Keys [first, end), each followed by one that may have left the device since.
  std::size_t serve(std::size_t first, std::size_t end) {
    std::size_t fetched = 0;
    for (std::size_t i = first; i < end; ++i) {
      fetched += serve(key(i));
      if (i >= first + 4) fetched += serve(key(i - 4));
    }
    return fetched;
  }

  /// Afterwards nobody but the store has anything.
  void forget() {
    EXPECT_TRUE(settle());
    constexpr std::size_t kAll = std::size_t{1} << 20;
    cache_->evict(kAll);
    cache_->tiers().evict_host(kAll);
    EXPECT_EQ(cache_->inspect().sizes().total + cache_->inspect().host_sizes().total, 0u)
        << cache_->inspect().dump();
  }

  /// Keys that are new to it are put and fetched.
  void expect_store_works(std::size_t first) {
    store(first, first + 4);
    forget();
    EXPECT_EQ(serve(key(first + 1)), kKeyTokens);
  }
  /// Everything ends, every page has one owner, and with the tree all of them go.
  void expect_nothing_leaks() {
    EXPECT_TRUE(settle());
    EXPECT_TRUE(cache_.closes());
    EXPECT_TRUE(cache_->reset().ok());
    expect_empty();
  }
  void expect_empty() {
    EXPECT_EQ(cache_->inspect().num_nodes(), 0u) << cache_->inspect().dump();
    for (const TieredCache::Side* side : {&cache_.full, &cache_.window, &cache_.state}) {
      if (!side->host) continue;
      EXPECT_EQ(side->host->count(PageState::idle), side->host->num_pages());
    }
    EXPECT_TRUE(cache_.closes());
  }

 private:
  bool has_room(std::size_t num_tokens) const {
    const auto is_enough = [&](std::size_t free, ComponentKind kind, std::size_t needed) {
      return free + cache_->inspect().sizes(kind).evictable >= needed;
    };
    const WindowAllocator* windows = cache_.window_slots.get();
    const PagedAllocator& full = windows != nullptr ? windows->full() : *cache_.slots;
    return is_enough(full.available(), ComponentKind::full, num_tokens) &&
           (windows == nullptr ||
            is_enough(windows->window().available(), ComponentKind::window, num_tokens)) &&
           (!cache_.states || is_enough(cache_.states->available(), ComponentKind::state, 1));
  }

  TieredCache& cache_;
  const std::chrono::milliseconds limit_;
};

}  // namespace pando::testing
