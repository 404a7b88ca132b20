// SPDX-License-Identifier: Apache-2.0
// What the pieces of C++ in docs/ stand in: docs_examples.cmake makes each of them the body of a
// function of this struct, and runs it as a test.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "pando/cache.h"
#ifdef PANDO_HAS_METRICS
#include "pando/metrics.h"
#endif

using namespace pando;

/// An engine with a cache that has served one prompt.
struct DocsExample {
  DocsExample() : tokens(64) {
    std::iota(tokens.begin(), tokens.end(), 1);
    Request request = *cache->start(tokens);
    cache->allocate(request).value();
    cache->finish(request).value();
  }

  std::vector<Token> tokens;
  std::vector<Token>& system_prompt = tokens;
  std::unique_ptr<PagedAllocator> allocator = *PagedAllocator::create({.capacity_tokens = 1 << 20});
  CacheOptions options;
  std::unique_ptr<PrefixCache> cache = *PrefixCache::create(options, *allocator);
};
