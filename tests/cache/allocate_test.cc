// SPDX-License-Identifier: Apache-2.0
// PrefixCache::allocate and its forms for batches: room for a request's tokens, evicting exactly
// what is missing, all or nothing.
#include <gtest/gtest.h>

#include <vector>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

TEST(PrefixCacheAllocate, ContinuesTheOpenPage) {
  TestCache cache(4);
  Running running(tokens(6));
  running.computed(3);
  ASSERT_TRUE(running.allocate(cache).ok());
  running.computed(6);
  ASSERT_TRUE(running.allocate(cache).ok());
  EXPECT_EQ(running.slots(), slot_range(4, 10));
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheAllocate, EvictsExactlyWhatIsMissing) {
  TestCache cache(4, {}, 32);
  cache.put(tokens(24));
  Running running(tokens(14, 100));  // 4 pages, 2 are free
  ASSERT_TRUE(running.allocate(cache).ok());
  EXPECT_EQ(cache->inspect().stats().evicted_tokens, 8u);
  EXPECT_EQ(cache->inspect().sizes().total, 16u);
  ASSERT_TRUE(running.finish(cache).ok());
  EXPECT_TRUE(cache.closes());
}

TEST(PrefixCacheAllocate, EvictsNothingWhenThereIsRoom) {
  TestCache cache(4, {}, 32);
  cache.put(tokens(16));
  Running running(tokens(16, 100));
  ASSERT_TRUE(running.allocate(cache).ok());
  EXPECT_EQ(cache->inspect().stats().evicted_tokens, 0u);
  ASSERT_TRUE(running.finish(cache).ok());
}

TEST(PrefixCacheAllocate, IsAllOrNothing) {
  TestCache cache(4, {}, 32);
  cache.put(tokens(16));
  const Lease lease = cache.hold(tokens(8));
  Running running(tokens(28, 100));  // 7 pages; 4 are free and 2 evictable
  const Snapshot before(cache);
  EXPECT_TRUE(fails(running.allocate(cache), ErrorCode::out_of_capacity,
                    "needs 28 tokens in whole pages; 16 are free and 8 evictable"));
  EXPECT_EQ(Snapshot(cache), before);
}

TEST(PrefixCacheAllocate, EvictsForAWholeBatch) {
  TestCache cache(4, {}, 16);
  cache.put(tokens(16));
  const std::vector<std::size_t> prefix_lens{0, 0}, seq_lens{4, 3};
  const Slots last(2);
  Slots out(7);
  ASSERT_TRUE(cache->paths().allocate_extend(prefix_lens, seq_lens, last, out).ok());
  EXPECT_EQ(cache->inspect().sizes().total, 8u);

  const std::vector<std::size_t> longer{5, 4};
  const Slots ends{out[3], out[6]};
  Slots next(2);
  ASSERT_TRUE(cache->paths().allocate_decode(longer, ends, next).ok());
  EXPECT_EQ(cache->inspect().sizes().total, 4u);
  EXPECT_EQ(index_of(next[1]), index_of(out[6]) + 1);
  EXPECT_TRUE(cache.closes(12));
}

TEST(PrefixCacheAllocate, RefusesBadBatchesBeforeEvicting) {
  TestCache cache(4, {}, 16);
  cache.put(tokens(16));
  const Snapshot before(cache);
  const std::vector<std::size_t> prefix_lens{0}, seq_lens{8};
  Slots out(7);
  EXPECT_TRUE(fails(cache->paths().allocate_extend(prefix_lens, seq_lens, Slots(1), out),
                    ErrorCode::invalid_argument, "7 slots"));
  EXPECT_EQ(Snapshot(cache), before);
}

}  // namespace
}  // namespace pando::testing
