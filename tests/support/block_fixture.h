// SPDX-License-Identifier: Apache-2.0
// The few verbs that unit tests of BlockCache are written in.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "pando/block_cache.h"
#include "support/cache_fixture.h"

namespace pando::testing {

using BlockNumbers = std::vector<std::uint32_t>;

inline BlockNumbers numbers(std::span<const PageId> blocks) {
  BlockNumbers out;
  for (const PageId b : blocks) out.push_back(index_of(b));
  return out;
}

inline BlockGroup full_group(std::size_t size) { return {GroupKind::full, size, 0, false, {}}; }
inline BlockGroup window_group(std::size_t size, std::size_t span) {
  return {GroupKind::sliding_window, size, span, false, {}};
}
inline BlockGroup chunked_group(std::size_t size, std::size_t span) {
  return {GroupKind::chunked_local, size, span, false, {}};
}
inline BlockGroup recurrent_group(std::size_t size, bool every_state = false) {
  return {GroupKind::recurrent, size, 0, every_state, {}};
}

inline BlockCacheOptions block_options(std::vector<BlockGroup> groups,
                                       std::size_t num_blocks = 32) {
  BlockCacheOptions options;
  options.num_blocks = num_blocks;
  options.groups = std::move(groups);
  return options;
}

class TestBlocks {
 public:
  explicit TestBlocks(const BlockCacheOptions& options)
      : cache(std::move(*BlockCache::create(options))) {}
  ~TestBlocks() {
    const Status sound = cache->check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
  }
  BlockCache* operator->() const { return cache.get(); }

  BlockRequest start(const Tokens& tokens, RequestKeys keys = {}) const {
    return *cache->start(tokens, std::move(keys));
  }
  /// Starts where the cache can, and computes all tokens.
  BlockRequest run(const Tokens& tokens, RequestKeys keys = {}) const {
    BlockRequest request = start(tokens, std::move(keys));
    begin(request);
    return request;
  }
  /// The same for a request that has no blocks. Returns the length of the hit.
  std::size_t begin(BlockRequest& request) const {
    const BlockMatch found = cache->match(request);
    const std::size_t length = found.length;
    cache->allocate(request, request.tokens().size() - length, {.match = &found}).value();
    cache->checkpoint(request, request.tokens().size()).value();
    return length;
  }
  std::size_t hit(const Tokens& tokens, RequestKeys keys = {}) const {
    const BlockRequest request = start(tokens, std::move(keys));
    return cache->match(request).length;
  }
  BlockNumbers queue() const { return numbers(cache->pool().free_blocks()); }

  std::unique_ptr<BlockCache> cache;
};

}  // namespace pando::testing
