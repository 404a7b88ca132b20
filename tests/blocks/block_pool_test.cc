// SPDX-License-Identifier: Apache-2.0
// BlockPool, rule by rule.
#include "pando/block_pool.h"

#include <gtest/gtest.h>

#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

/// A pool, and contents made of single numbers.
class BlockPoolTest : public ::testing::Test {
 protected:
  void make(std::size_t num_blocks = 6, bool deduplicate = false) {
    BlockPoolOptions options;
    options.num_blocks = num_blocks;
    options.block_sizes = {2, 2};
    options.deduplicate = deduplicate;
    options.on_evict = [this](std::span<const PageId> blocks) {
      for (const PageId b : blocks) {
        evicted.push_back(index_of(b));
        EXPECT_TRUE(pool->has_content(b));
      }
    };
    options.on_gone = [this](const BlockContent& content) { gone.push_back(content.tokens[0]); };
    pool = std::move(*BlockPool::create(options));
  }
  std::vector<std::uint32_t> take(std::size_t n) {
    std::vector<PageId> out(n);
    pool->take(out).value();
    return numbers(out);
  }
  static std::vector<std::uint32_t> numbers(std::span<const PageId> blocks) {
    std::vector<std::uint32_t> out;
    for (const PageId b : blocks) out.push_back(index_of(b));
    return out;
  }
  static std::vector<PageId> ids(const std::vector<std::uint32_t>& numbers) {
    std::vector<PageId> out;
    for (const std::uint32_t n : numbers) out.push_back(PageId{n});
    return out;
  }
  BlockContent content(Token what, std::uint32_t group = 0) {
    hash_ = {};
    hash_.check = {static_cast<std::uint64_t>(what) * 31, 0};
    hash_.value[0] = static_cast<std::uint8_t>(what);
    tokens_[0] = tokens_[1] = what;
    return {group, &hash_, tokens_};
  }
  bool cache(std::uint32_t block, Token what, std::uint32_t group = 0) {
    return pool->cache(PageId{block}, content(what, group));
  }
  std::uint32_t find(Token what, std::uint32_t group = 0) {
    return index_of(pool->find(content(what, group)));
  }
  void free(const std::vector<std::uint32_t>& blocks) { pool->free(ids(blocks)); }
  std::vector<std::uint32_t> queue() { return numbers(pool->free_blocks()); }
  void TearDown() override { EXPECT_TRUE(pool->check().ok()); }

  std::unique_ptr<BlockPool> pool;
  std::vector<std::uint32_t> evicted;
  std::vector<Token> gone;

 private:
  BlockHash hash_;
  Token tokens_[2] = {};
};

TEST_F(BlockPoolTest, TakesInOrderOfIdAndNeverTheNullBlock) {
  make(5);
  EXPECT_EQ(take(4), (std::vector<std::uint32_t>{1, 2, 3, 4}));
  PageId more;
  EXPECT_TRUE(fails(pool->take({&more, 1}), ErrorCode::out_of_capacity, "1 blocks wanted, 0 free"));
  EXPECT_DOUBLE_EQ(pool->usage(), 1.0);
  free({4, 3, 2, 1});
  EXPECT_DOUBLE_EQ(pool->usage(), 0.0);
}

TEST_F(BlockPoolTest, TakingTooManyTakesNone) {
  make(4);
  std::vector<PageId> out(4);
  EXPECT_FALSE(pool->take(out).ok());
  EXPECT_EQ(queue(), (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST_F(BlockPoolTest, FreedBlocksWithContentGoToTheBackAndOthersToTheFront) {
  make(8);
  take(4);
  cache(1, 10);
  cache(2, 20);
  free({4, 3, 2, 1});  // a request's blocks, from its end
  EXPECT_EQ(queue(), (std::vector<std::uint32_t>{4, 3, 5, 6, 7, 2, 1}));
  // So the tail of a request is taken before its head.
  EXPECT_EQ(take(6), (std::vector<std::uint32_t>{4, 3, 5, 6, 7, 2}));
  EXPECT_EQ(evicted, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(find(10), 1U);
  EXPECT_EQ(find(20), 0U);
  free({2, 7, 6, 5, 3, 4});
}

TEST_F(BlockPoolTest, ATouchedBlockLeavesTheQueueAndKeepsItsContent) {
  make(4);
  take(2);
  cache(1, 10);
  free({2, 1});
  EXPECT_EQ(pool->sizes(0), (Sizes{2, 0, 2}));
  pool->touch(ids({0, 1}));  // the null block is passed over
  pool->touch(ids({1}));
  EXPECT_EQ(pool->num_holders(PageId{1}), 2U);
  EXPECT_EQ(pool->num_holders(PageId{0}), 0U);
  EXPECT_EQ(queue(), (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(pool->sizes(0), (Sizes{0, 2, 2}));
  free({1, 0});
  EXPECT_EQ(pool->num_free(), 2U);
  free({1});
  EXPECT_EQ(queue(), (std::vector<std::uint32_t>{2, 3, 1}));
}

TEST_F(BlockPoolTest, SeveralBlocksMayHaveOneContent) {
  make();
  take(3);
  EXPECT_TRUE(cache(2, 10));
  EXPECT_TRUE(cache(1, 10));
  EXPECT_EQ(find(10), 2U);
  EXPECT_TRUE(pool->has_twin(PageId{1}));
  pool->forget(ids({2}));
  EXPECT_EQ(find(10), 1U);
  EXPECT_TRUE(gone.empty());  // another still has it
  pool->forget(ids({1, 3}));
  EXPECT_EQ(gone, (std::vector<Token>{10}));
  EXPECT_EQ(pool->num_holders(PageId{2}), 1U);  // whoever holds it goes on
  free({1, 2, 3});
}

TEST_F(BlockPoolTest, DeduplicatedOnlyTheFirstIsKept) {
  make(6, /*deduplicate=*/true);
  take(2);
  EXPECT_TRUE(cache(1, 10));
  EXPECT_FALSE(cache(2, 10));
  free({2, 1});
  EXPECT_EQ(queue(), (std::vector<std::uint32_t>{2, 3, 4, 5, 1}));
}

TEST_F(BlockPoolTest, SizesAreOfEachGroup) {
  make();
  take(3);
  cache(1, 10, 0);
  cache(2, 10, 1);
  cache(3, 20, 1);
  EXPECT_EQ(find(10, 0), 1U);
  EXPECT_EQ(find(10, 1), 2U);
  free({3});
  EXPECT_EQ(pool->sizes(0), (Sizes{0, 2, 2}));
  EXPECT_EQ(pool->sizes(1), (Sizes{2, 2, 4}));
  free({1, 2});
}

TEST_F(BlockPoolTest, ResetForgetsEverythingUnlessABlockIsHeld) {
  make();
  take(2);
  cache(1, 10);
  free({2});
  EXPECT_TRUE(fails(pool->reset(), ErrorCode::in_use, "1 of 5 blocks are held"));
  EXPECT_EQ(find(10), 1U);
  free({1});
  EXPECT_TRUE(pool->reset().ok());
  EXPECT_EQ(find(10), 0U);
  EXPECT_EQ(pool->sizes(0), Sizes{});
}

TEST_F(BlockPoolTest, WithoutCachingNothingIsFound) {
  BlockPoolOptions options;
  options.num_blocks = 4;
  options.block_sizes = {2};
  options.caching = false;
  pool = std::move(*BlockPool::create(options));
  take(1);
  EXPECT_FALSE(cache(1, 10));
  EXPECT_EQ(find(10), 0U);
  free({1});
}

TEST_F(BlockPoolTest, VictimsMayBeChosen) {
  // The block that was freed last goes.
  struct Youngest final : BlockVictims {
    void cached(PageId block) override { cached_blocks.push_back(block); }
    void held(PageId block) override { std::erase(free, block); }
    void freed(PageId block) override { free.push_back(block); }
    void forgotten(PageId block) override {
      std::erase(free, block);
      forgotten_blocks.push_back(block);
    }
    PageId take(PageId oldest) override {
      EXPECT_EQ(oldest, free.front());
      const PageId block = free.back();
      free.pop_back();
      return block;
    }
    std::vector<PageId> free, cached_blocks, forgotten_blocks;
  } victims;
  BlockPoolOptions options;
  options.num_blocks = 6;
  options.block_sizes = {2};
  options.victims = &victims;
  pool = std::move(*BlockPool::create(options));
  take(4);
  for (const std::uint32_t b : {1U, 2U, 3U, 4U}) cache(b, static_cast<Token>(b));
  free({4, 3, 2, 1});
  EXPECT_EQ(queue(), (std::vector<std::uint32_t>{5, 4, 3, 2, 1}));
  EXPECT_EQ(take(2), (std::vector<std::uint32_t>{5, 1}));  // without content first
  pool->touch(ids({2}));
  pool->forget(ids({3}));  // without content now, so before all others
  EXPECT_EQ(queue(), (std::vector<std::uint32_t>{3, 4}));
  EXPECT_EQ(take(2), (std::vector<std::uint32_t>{3, 4}));
  EXPECT_EQ(victims.cached_blocks, ids({1, 2, 3, 4}));
  EXPECT_EQ(victims.forgotten_blocks, ids({1, 3, 4}));
  EXPECT_TRUE(victims.free.empty());
  free({5, 1, 2, 3, 4});
  EXPECT_EQ(victims.free, ids({2}));
}

TEST_F(BlockPoolTest, BadOptionsAreNamed) {
  make();
  BlockPoolOptions options;
  options.num_blocks = 1;
  EXPECT_TRUE(fails(BlockPool::create(options), ErrorCode::invalid_argument, "a pool of 1 blocks"));
  options.num_blocks = 4;
  options.block_sizes = {4, 0};
  EXPECT_TRUE(fails(BlockPool::create(options), ErrorCode::invalid_argument, "group 1"));
  options.block_sizes = {};
  EXPECT_TRUE(fails(BlockPool::create(options), ErrorCode::invalid_argument, "0 groups"));
}

using BlockPoolDeathTest = BlockPoolTest;
TEST_F(BlockPoolDeathTest, MisuseNamesTheBlock) {
  make();
  EXPECT_DEATH(free({3}), "block 3 is freed while nobody holds it");
  EXPECT_DEATH(cache(3, 10), "block 3 is cached while nobody holds it");
  EXPECT_DEATH(pool->touch(ids({17})), "block 17 of a pool of 6");
  take(1);
  cache(1, 10);
  EXPECT_DEATH(cache(1, 11), "block 1 has a hash already");
  free({1});
  EXPECT_DEATH(free({1}), "block 1 is freed while nobody holds it");
}

}  // namespace
}  // namespace pando::testing
