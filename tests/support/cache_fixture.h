// SPDX-License-Identifier: Apache-2.0
// A small cache over its own allocator, and the few verbs that unit tests of PrefixCache are
// written in. Values that are not expected stop the test through Result::value().
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pando/cache.h"
#include "pando/inspect.h"
#include "pando/paths.h"

namespace pando::testing {

using Tokens = std::vector<Token>;
using Slots = std::vector<SlotId>;

/// n tokens that count up from `start`.
inline Tokens tokens(std::size_t n, Token start = 1) {
  Tokens out(n);
  std::iota(out.begin(), out.end(), start);
  return out;
}

template <typename T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Slots [first, end).
inline Slots slot_range(std::int64_t first, std::int64_t end) {
  Slots out;
  for (std::int64_t slot = first; slot < end; ++slot) out.push_back(SlotId{slot});
  return out;
}

/// Whether `result` is an error with this code whose message has `part` in it.
template <typename T>
::testing::AssertionResult fails(const Result<T>& result, ErrorCode code, std::string_view part) {
  if (result.ok()) return ::testing::AssertionFailure() << "succeeded";
  const Error& error = result.error();
  if (error.code == code && error.message.find(part) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(error.code) << ": " << error.message;
}

inline CacheOptions with_policy(CacheOptions options, std::string_view policy) {
  options.policy = policy;
  return options;
}

class TestCache {
 public:
  explicit TestCache(std::size_t page_size = 1, const CacheOptions& options = {},
                     std::size_t capacity_tokens = 1024, std::string_view policy = "lru")
      : TestCache(page_size, with_policy(options, policy), capacity_tokens,
                  std::unique_ptr<EvictionPolicy>{}) {}
  TestCache(std::size_t page_size, const CacheOptions& options, std::size_t capacity_tokens,
            std::unique_ptr<EvictionPolicy> policy)
      : allocator(
            *PagedAllocator::create({.capacity_tokens = capacity_tokens, .page_size = page_size})),
        cache(*PrefixCache::create(options, *allocator, std::move(policy))) {}

  PrefixCache* operator->() const { return cache.get(); }

  /// Fresh slots for n tokens, in pages of their own.
  Slots take(std::size_t n) {
    const std::size_t page_size = allocator->page_size();
    Slots out((n + page_size - 1) / page_size * page_size);
    allocator->alloc(out).value();
    out.resize(n);
    return out;
  }

  /// Inserts `key` with fresh slots, and gives the unaligned tail back.
  Inserted put(const Tokens& key, std::string_view ns = {}, const InsertOptions& options = {}) {
    const Slots slots = take(key.size());
    const Inserted inserted = *cache->paths().insert({key, ns}, slots, options);
    if (!cache->options().disabled) allocator->free(std::span(slots).subspan(inserted.length));
    return inserted;
  }

  Match match(const Tokens& key, std::string_view ns = {}) {
    return *cache->paths().match({key, ns});
  }
  std::size_t probe(const Tokens& key, std::string_view ns = {}) const {
    return cache->paths().probe({key, ns});
  }
  /// The slots that a match writes.
  Slots slots_of(const Tokens& key, std::string_view ns = {}) {
    Slots out(key.size());
    out.resize(cache->paths().match({key, ns}, out)->length);
    return out;
  }
  Lease hold(const Tokens& key, std::string_view ns = {}) {
    return *cache->paths().lock(match(key, ns));
  }

  /// Every slot is the allocator's, the tree's, or one of `held` that the test has; all proofs
  /// hold.
  ::testing::AssertionResult closes(std::size_t held = 0) const {
    for (const Status& status : {cache->check(), allocator->check()}) {
      if (!status.ok()) return ::testing::AssertionFailure() << status.error().message;
    }
    const std::size_t available = allocator->available();
    const std::size_t total = cache->inspect().sizes().total;
    if (available + total + held == allocator->capacity()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << available << " free + " << total << " cached + " << held
                                         << " held, of " << allocator->capacity();
  }

  std::unique_ptr<PagedAllocator> allocator;
  std::unique_ptr<PrefixCache> cache;
};

inline Slots slots_of(const Request& request) {
  return {request.slots().begin(), request.slots().end()};
}

/// A request of a test: its prompt, how it is to be started, and how much of it is computed. Each
/// verb is that of the cache, on the tokens that are computed.
struct Running {
  explicit Running(Tokens prompt, std::string_view ns = {})
      : prompt(std::move(prompt)),
        options{.ns = std::string(ns)},
        num_computed(this->prompt.size()) {}

  /// The first n tokens are computed (or about to be).
  void computed(std::size_t n) { num_computed = n; }

  template <typename Cache>
  Result<Match> start(const Cache& cache) {
    Result<Request> started = cache->start(prompt, options);
    if (!started) return started.error();
    request = std::move(*started);
    return request.found();
  }
  /// A request that was not started looks nothing up.
  template <typename Cache>
  Status allocate(const Cache& cache) {
    if (!request.is_running()) {
      RequestOptions alone = options;
      alone.recompute = SIZE_MAX;
      Result<Request> started = cache->start(prompt, alone);
      if (!started) return started.error();
      request = std::move(*started);
    }
    return cache->allocate(request, num_computed);
  }
  template <typename Cache>
  Status checkpoint(const Cache& cache, bool chunked = false) {
    return cache->checkpoint(request, num_computed, chunked);
  }
  template <typename Cache>
  Status finish(const Cache& cache) {
    return cache->finish(request, num_computed);
  }
  template <typename Cache>
  Status abandon(const Cache& cache) {
    cache->abandon(request);
    return {};
  }
  Slots slots() const { return slots_of(request); }

  const Tokens prompt;
  RequestOptions options;
  std::size_t num_computed;
  Request request;
};

/// What must not change when a call is refused.
struct Snapshot {
  explicit Snapshot(const TestCache& cache)
      : dump(cache->inspect().dump()),
        sizes(cache->inspect().sizes()),
        available(cache.allocator->available()) {}

  std::string dump;
  Sizes sizes;
  std::size_t available;

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

}  // namespace pando::testing
