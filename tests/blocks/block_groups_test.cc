// SPDX-License-Identifier: Apache-2.0
// Groups of layers: the rule of each kind, and the search for a length on which all agree, against
// every length tried one by one.
#include <gtest/gtest.h>

#include "base/random.h"
#include "blocks/hit_search.h"
#include "support/block_fixture.h"

namespace pando::testing {
namespace {

/// A prompt, any of whose blocks can be cached in any group.
class Patches {
 public:
  Patches(std::vector<BlockGroup> groups, std::size_t num_tokens)
      : groups_(std::move(groups)), tokens_(tokens(num_tokens)) {
    BlockPoolOptions options;
    options.num_blocks = 2000;
    options.block_sizes.clear();
    for (const BlockGroup& group : groups_) {
      options.block_sizes.push_back(group.block_size);
      unit_ = std::gcd(unit_, group.block_size);
      has_.emplace_back(num_tokens / group.block_size);
    }
    pool_ = std::move(*BlockPool::create(options));
    BlockHasher::create(unit_)->extend(tokens_, {}, chain_).value();
  }

  void add(std::uint32_t group, std::size_t i) {
    PageId block;
    pool_->take({&block, 1}).value();
    pool_->cache(block, keys().content(group, groups_[group].block_size, i));
    has_[group][i] = true;
  }
  std::size_t longest(std::size_t limit) {
    HitSearch search(groups_, *pool_, nullptr);
    search.begin(keys());
    return search.longest(limit, HitSearch::Reach::device);
  }
  /// By what the layers of a group look at, token by token.
  std::size_t longest_by_force(std::size_t limit) const {
    for (std::size_t length = limit; length > 0; --length) {
      if (is_valid(length)) return length;
    }
    return 0;
  }

 private:
  BlockKeys keys() const { return {tokens_, chain_, unit_}; }
  bool is_valid(std::size_t length) const {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const BlockGroup& group = groups_[g];
      if (length % group.block_size != 0) return false;
      for (std::size_t t = 0; t < length; ++t) {
        const bool seen =
            group.kind == GroupKind::full ||
            (group.kind == GroupKind::sliding_window && length - t < group.span) ||
            (group.kind == GroupKind::chunked_local && t / group.span == length / group.span) ||
            (group.kind == GroupKind::recurrent && t + 1 == length);
        if (seen && !has_[g][t / group.block_size]) return false;
      }
    }
    return true;
  }

  std::vector<BlockGroup> groups_;
  Tokens tokens_;
  std::size_t unit_ = 0;
  std::unique_ptr<BlockPool> pool_;
  std::vector<BlockHash> chain_;
  std::vector<std::vector<bool>> has_;
};

TEST(BlockGroups, AnyPatternGivesTheLongestLengthOfAll) {
  const std::vector<std::vector<BlockGroup>> cases = {
      {full_group(4)},
      {window_group(4, 1)},
      {window_group(4, 9)},
      {window_group(4, 10)},
      {chunked_group(4, 16)},
      {chunked_group(4, 10)},  // chunks that begin inside blocks
      {recurrent_group(4)},
      {full_group(4), window_group(4, 12)},
      {full_group(2), window_group(6, 7), chunked_group(4, 12)},
      {recurrent_group(8), full_group(4), window_group(2, 5)},
      {window_group(4, 8), window_group(6, 20), recurrent_group(4)},
  };
  for (std::size_t c = 0; c < cases.size(); ++c) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(::testing::Message() << "case " << c << ", seed " << seed);
      Random random(seed, c);
      Patches patches(cases[c], 96);
      const std::size_t density = 30 + random.below(70);
      for (std::uint32_t g = 0; g < cases[c].size(); ++g) {
        for (std::size_t i = 0; i < 96 / cases[c][g].block_size; ++i) {
          if (random.below(100) < density) patches.add(g, i);
        }
      }
      for (std::size_t limit = 0; limit <= 96; limit += 1 + random.below(7))
        ASSERT_EQ(patches.longest(limit), patches.longest_by_force(limit)) << "limit " << limit;
    }
  }
}

TEST(BlockGroups, AWindowNeedsItsBlocksOrAllFromTheStart) {
  Patches patches({window_group(4, 9)}, 64);  // two blocks
  patches.add(0, 0);
  EXPECT_EQ(patches.longest(64), 4U);  // from the start, shorter than a window
  patches.add(0, 4);
  EXPECT_EQ(patches.longest(64), 4U);
  patches.add(0, 3);
  EXPECT_EQ(patches.longest(64), 20U);
  patches.add(0, 9);
  patches.add(0, 10);
  EXPECT_EQ(patches.longest(64), 44U);  // the rightmost
  EXPECT_EQ(patches.longest(43), 20U);
}

TEST(BlockGroups, BlocksBeforeTheWindowAreNull) {
  TestBlocks cache(block_options({window_group(4, 9)}));
  const BlockRequest first = cache.run(tokens(21));
  // Computed 21 tokens: the next one sees 13 and later, in block 3.
  EXPECT_EQ(numbers(first.blocks()), (BlockNumbers{0, 0, 0, 4, 5, 6}));
  const BlockRequest again = cache.start(tokens(21));
  const BlockMatch found = cache->match(again);
  EXPECT_EQ(found.length, 20U);
  EXPECT_EQ(numbers(found.blocks[0]), (BlockNumbers{0, 0, 0, 4, 5}));
}

TEST(BlockGroups, ReleasedBlocksGoFromTheLastToTheFirstAndStayFound) {
  TestBlocks cache(block_options({window_group(4, 5)}, 10));
  const BlockRequest request = cache.run(tokens(16));
  EXPECT_EQ(numbers(request.blocks()), (BlockNumbers{0, 0, 0, 4}));
  EXPECT_EQ(cache.queue(), (BlockNumbers{5, 6, 7, 8, 9, 3, 2, 1}));
  EXPECT_EQ(cache.hit(tokens(13)), 12U);
}

TEST(BlockGroups, AChunkNeedsNothingBeforeItsStart) {
  TestBlocks cache(block_options({chunked_group(4, 8)}));
  EXPECT_EQ(cache.hit(tokens(21)), 16U);  // a chunk ends there: no layer looks further back
  const BlockRequest first = cache.run(tokens(21));
  EXPECT_EQ(cache.hit(tokens(21)), 20U);
  EXPECT_EQ(cache.hit(tokens(21, 50)), 16U);
}

TEST(BlockGroups, AStateIsFoundWhereAStepEnded) {
  TestBlocks cache(block_options({recurrent_group(4)}));
  BlockRequest request = cache.start(tokens(30));
  ASSERT_TRUE(cache->allocate(request, 16).ok());
  EXPECT_EQ(numbers(request.blocks()), (BlockNumbers{0, 0, 0, 1}));  // one state, at the end
  ASSERT_TRUE(cache->checkpoint(request, 16).ok());
  ASSERT_TRUE(cache->allocate(request, 14).ok());
  EXPECT_EQ(numbers(request.blocks()), (BlockNumbers{0, 0, 0, 1, 0, 0, 0, 2}));
  ASSERT_TRUE(cache->checkpoint(request, 30).ok());
  EXPECT_EQ(numbers(request.blocks()), (BlockNumbers{0, 0, 0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(cache.hit(tokens(30)), 16U);  // 28 is no end of a step
  ASSERT_TRUE(request.append(tokens(2, 31)).ok());
  ASSERT_TRUE(cache->allocate(request, 2).ok());
  ASSERT_TRUE(cache->checkpoint(request, 32).ok());
  EXPECT_EQ(cache.hit(tokens(33)), 32U);
  EXPECT_EQ(cache->sizes().total, 8U);
}

TEST(BlockGroups, AStepMustEndWhereAStateIs) {
  TestBlocks cache(block_options({recurrent_group(4)}));
  BlockRequest request = cache.start(tokens(30));
  ASSERT_TRUE(cache->allocate(request, 16).ok());
  EXPECT_TRUE(fails(cache->checkpoint(request, 5), ErrorCode::invalid_argument,
                    "group 0 has no block there"));
  EXPECT_TRUE(cache->checkpoint(request, 14).ok());  // drafts were rejected
}

TEST(BlockGroups, EveryStateCanBeKept) {
  TestBlocks cache(block_options({recurrent_group(4, true)}));
  const BlockRequest request = cache.run(tokens(18));
  EXPECT_EQ(cache.hit(tokens(18)), 16U);
  EXPECT_EQ(cache.hit(tokens(12)), 8U);
}

TEST(BlockGroups, AHitIsAlignedToAllBlockSizes) {
  TestBlocks cache(block_options({full_group(4), window_group(6, 13)}));
  const BlockRequest request = cache.run(tokens(40));
  EXPECT_EQ(cache.hit(tokens(41)), 36U);
  EXPECT_EQ(cache.hit(tokens(30)), 24U);
  EXPECT_EQ(request.hashes().size(), 20U);  // of 2 tokens each
}

TEST(BlockGroups, TheShortestGroupDecides) {
  TestBlocks cache(block_options({full_group(4), recurrent_group(4)}));
  BlockRequest request = cache.start(tokens(40));
  for (const std::size_t step : {12U, 20U, 8U}) {
    ASSERT_TRUE(cache->allocate(request, step).ok());
    ASSERT_TRUE(cache->checkpoint(request, request.num_computed() + step).ok());
  }
  EXPECT_EQ(cache.hit(tokens(41)), 40U);
  EXPECT_EQ(cache.hit(tokens(40)), 32U);
  EXPECT_EQ(cache.hit(tokens(31)), 12U);
  EXPECT_EQ(cache.hit(tokens(11)), 0U);
  EXPECT_EQ(cache->common_prefix_blocks(request), (std::vector<std::size_t>{10, 0}));
}

}  // namespace
}  // namespace pando::testing
