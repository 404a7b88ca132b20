// SPDX-License-Identifier: Apache-2.0
// A small SlotCache over its own allocator, and the few verbs that its tests are written in. Every
// verb proves the cache's invariants after it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "pando/slot_cache.h"
#include "support/cache_fixture.h"

namespace pando::testing {

class TestSlots {
 public:
  explicit TestSlots(std::size_t num_slots = 4, SlotCacheOptions options = {})
      : allocator(*SlotAllocator::create(num_slots)) {
    if (options.slot_tokens == 0) options.slot_tokens = 64;
    options.hash_seed = 1;
    cache = *SlotCache::create(options, *allocator);
  }
  SlotCache* operator->() const { return cache.get(); }

  /// Takes a slot, writes these tokens to it and says so.
  std::size_t fill(const Tokens& what, std::string_view ns = {}) {
    const std::size_t slot = cache->take().value();
    cache->insert({what, ns}, slot).value();
    prove();
    return slot;
  }
  /// The same, and gives it back.
  std::size_t leave(const Tokens& what, std::string_view ns = {}) {
    const std::size_t slot = fill(what, ns);
    free(slot);
    return slot;
  }
  std::size_t take() {
    const std::size_t slot = cache->take().value();
    prove();
    return slot;
  }
  void free(std::size_t slot) {
    cache->free(slot);
    prove();
  }

  SlotMatch find(const Tokens& what, std::string_view ns = {}) {
    const std::optional<SlotMatch> match = *cache->find({what, ns});
    prove();
    return match.value_or(SlotMatch{});
  }
  /// 0: nothing.
  std::size_t length(const Tokens& what, std::string_view ns = {}) const {
    return cache->probe({what, ns}).value().value_or(SlotMatch{}).length;
  }
  bool occupy(const SlotMatch& match) {
    const bool ok = cache->occupy(match).ok();
    prove();
    return ok;
  }
  void prove() const {
    const Status status = cache->check();
    ASSERT_TRUE(status.ok()) << status.error().message << "\n" << cache->dump();
  }

  std::unique_ptr<SlotAllocator> allocator;
  std::unique_ptr<SlotCache> cache;
};

}  // namespace pando::testing
