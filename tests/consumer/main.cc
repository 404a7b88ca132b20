// SPDX-License-Identifier: Apache-2.0
// Includes every public header and uses the cache once, as an engine outside this repository would.
#include <pando/allocators.h>
#include <pando/cache.h>
#include <pando/event_publisher.h>
#include <pando/events.h>
#include <pando/metrics.h>
#include <pando/observer.h>
#include <pando/policy.h>
#include <pando/result.h>
#include <pando/types.h>
#include "pando/paths.h"

#include <cstdio>
#include <vector>

int main() {
  auto allocator = *pando::PagedAllocator::create({.capacity_tokens = 64, .page_size = 4});
  pando::CacheOptions options;
  options.events = true;
#ifdef WITH_metrics
  auto metrics = *pando::Metrics::create();
  options.observer = metrics.get();
#endif
  auto cache = *pando::PrefixCache::create(options, *allocator);
  const std::vector<pando::Token> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  pando::Request request = *cache->start(tokens);
  cache->allocate(request).value();
  cache->finish(request).value();
#ifdef WITH_events
  auto publisher = *pando::EventPublisher::create();
  publisher->publish(cache->take_events());
#endif
  const std::size_t found = cache->paths().match({tokens})->length;
  std::printf("consumer: %zu of %zu tokens cached\n", found, tokens.size());
  return found == 8 && cache->check().ok() ? 0 : 1;
}
