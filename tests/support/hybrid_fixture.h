// SPDX-License-Identifier: Apache-2.0
// A small cache with a window, a state component, or both, over its own allocators, and the verbs
// that their unit tests are written in. The words of cache_fixture.h go on holding.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"

namespace pando::testing {

class HybridCache {
 public:
  static constexpr std::size_t kFullTokens = 1024;
  static constexpr std::size_t kWindowTokens = 512;
  static constexpr std::size_t kStates = 16;

  HybridCache(std::size_t tokens_per_page, const CacheOptions& options,
              std::string_view policy = "lru")
      : page_size(tokens_per_page),
        states(options.state ? *StateAllocator::create(kStates) : nullptr) {
    if (options.window) {
      window = *WindowAllocator::create(
          {.full_tokens = kFullTokens, .window_tokens = kWindowTokens, .page_size = page_size});
      cache = *PrefixCache::create(options, *window, *make_policy(policy), states.get());
    } else {
      paged = *PagedAllocator::create({.capacity_tokens = kFullTokens, .page_size = page_size});
      cache = *PrefixCache::create(options, *paged, *make_policy(policy), states.get());
    }
  }

  PrefixCache* operator->() const { return cache.get(); }

  /// Fresh slots for n tokens, in pages of their own.
  Slots take(std::size_t n) {
    Slots out((n + page_size - 1) / page_size * page_size);
    (window ? window->alloc(out) : paged->alloc(out)).value();
    out.resize(n);
    return out;
  }
  StateSlot take_state() { return *states->alloc(); }

  /// Inserts `key`, of whole pages, with fresh slots, and a fresh snapshot where one is needed.
  Inserted put(const Tokens& key, InsertOptions options = {}, std::string_view ns = {}) {
    if (states && !options.snapshot) options.snapshot = take_state();
    return *cache->paths().insert({key, ns}, take(key.size()), options);
  }
  /// As put, as a request does it that has matched first and computes the rest.
  Inserted put_rest(const Tokens& key, InsertOptions options = {}) {
    Slots slots(key.size());
    options.owned_by_tree = cache->paths().match({key}, slots)->length;
    if (states && !options.snapshot) options.snapshot = take_state();
    const Slots rest = take(key.size() - options.owned_by_tree);
    std::copy(rest.begin(), rest.end(),
              slots.begin() + static_cast<std::ptrdiff_t>(options.owned_by_tree));
    return *cache->paths().insert({key}, slots, options);
  }
  Match match(const Tokens& key, std::string_view ns = {}) {
    return *cache->paths().match({key, ns});
  }
  std::size_t probe(const Tokens& key, std::string_view ns = {}) const {
    return cache->paths().probe({key, ns});
  }
  Slots slots_of(const Tokens& key) {
    Slots out(key.size());
    out.resize(cache->paths().match({key}, out)->length);
    return out;
  }
  Lease hold(const Tokens& key, std::string_view ns = {}) {
    return *cache->paths().lock(match(key, ns));
  }
  std::size_t evict_window(std::size_t num_tokens) {
    return cache->evict({.window_tokens = num_tokens}).window_tokens;
  }

  Sizes full_sizes() const { return cache->inspect().sizes(); }
  Sizes window_sizes() const { return cache->inspect().sizes(ComponentKind::window); }
  Sizes state_sizes() const { return cache->inspect().sizes(ComponentKind::state); }

  /// Every slot of every kind is the allocator's, the tree's, or one that the test says it has; all
  /// proofs hold.
  struct Held {
    std::size_t full = 0;
    std::size_t windows = 0;
    std::size_t states = 0;
  };
  ::testing::AssertionResult closes(const Held& held) const {
    if (const Status s = cache->check(); !s)
      return ::testing::AssertionFailure() << s.error().message;
    if (const Status s = window ? window->check() : paged->check(); !s)
      return ::testing::AssertionFailure() << s.error().message;
    const PagedAllocator& full = window ? window->full() : *paged;
    const std::size_t full_sum = full.available() + full_sizes().total + held.full;
    if (full_sum != full.capacity())
      return ::testing::AssertionFailure() << full_sum << " slots of " << full.capacity();
    if (window) {
      const std::size_t sum = window->window().available() + window_sizes().total + held.windows;
      if (sum != window->window().capacity())
        return ::testing::AssertionFailure() << sum << " window slots of " << kWindowTokens;
    }
    if (states) {
      const std::size_t sum = states->available() + state_sizes().total + held.states;
      if (sum != kStates)
        return ::testing::AssertionFailure() << sum << " state slots of " << kStates;
    }
    return ::testing::AssertionSuccess();
  }
  ::testing::AssertionResult closes() const { return closes({}); }

  const std::size_t page_size;
  std::unique_ptr<PagedAllocator> paged;
  std::unique_ptr<WindowAllocator> window;
  std::unique_ptr<StateAllocator> states;
  std::unique_ptr<PrefixCache> cache;
};

}  // namespace pando::testing
