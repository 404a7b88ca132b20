// SPDX-License-Identifier: Apache-2.0
// The index by content: collisions are found and not served, twins take turns, and nothing is lost
// when the table is full of runs.
#include "blocks/hash_index.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace pando::testing {
namespace {

constexpr std::size_t kSizes[] = {2, 4};

BlockHash hash_of(std::uint64_t check, std::uint8_t value) {
  BlockHash hash;
  hash.check = {check, 7};
  hash.value[31] = value;
  return hash;
}

TEST(HashIndex, ACollisionOfTheSecondHashIsFoundAndCounted) {
  HashIndex index(8, kSizes, /*keep_tokens=*/true);
  const BlockHash hash = hash_of(1, 1), other = hash_of(1, 2);
  const Token tokens[] = {5, 6}, others[] = {5, 7};
  index.insert(PageId{3}, {0, &hash, tokens});
  EXPECT_EQ(index.find({0, &hash, tokens}), PageId{3});
  EXPECT_EQ(index.collisions(), 0U);
  EXPECT_EQ(index.find({0, &other, tokens}), kNullBlock);  // the first hash differs
  EXPECT_EQ(index.collisions(), 1U);
  EXPECT_EQ(index.find({0, &hash, others}), kNullBlock);  // only the tokens do
  EXPECT_EQ(index.collisions(), 2U);
  // Both may be there, and are told apart.
  index.insert(PageId{4}, {0, &hash, others});
  EXPECT_EQ(index.find({0, &hash, others}), PageId{4});
  EXPECT_EQ(index.find({0, &hash, tokens}), PageId{3});
  EXPECT_TRUE(index.check().ok());
}

TEST(HashIndex, WithoutTokensBothHashesDecide) {
  HashIndex index(8, kSizes, /*keep_tokens=*/false);
  const BlockHash hash = hash_of(1, 1), other = hash_of(1, 2);
  index.insert(PageId{3}, {0, &hash, nullptr});
  EXPECT_EQ(index.find({0, &hash, nullptr}), PageId{3});
  EXPECT_EQ(index.find({0, &other, nullptr}), kNullBlock);
  EXPECT_EQ(index.collisions(), 1U);
}

TEST(HashIndex, GroupsNeverMix) {
  HashIndex index(8, kSizes, true);
  const BlockHash hash = hash_of(9, 1);
  const Token tokens[] = {5, 6, 7, 8};
  index.insert(PageId{1}, {0, &hash, tokens});
  EXPECT_EQ(index.find({1, &hash, tokens}), kNullBlock);
  index.insert(PageId{2}, {1, &hash, tokens});
  EXPECT_EQ(index.find({0, &hash, tokens}), PageId{1});
  EXPECT_EQ(index.find({1, &hash, tokens}), PageId{2});
}

TEST(HashIndex, OfTwinsTheOldestIsFound) {
  HashIndex index(8, kSizes, true);
  const BlockHash hash = hash_of(9, 1);
  const Token tokens[] = {5, 6};
  for (const std::uint32_t i : {4U, 2U, 6U}) index.insert(PageId{i}, {0, &hash, tokens});
  EXPECT_EQ(index.find({0, &hash, tokens}), PageId{4});
  EXPECT_TRUE(index.has_twin(PageId{2}));
  index.erase(PageId{2});  // from the middle
  EXPECT_EQ(index.find({0, &hash, tokens}), PageId{4});
  EXPECT_TRUE(index.check().ok());
  index.erase(PageId{4});
  EXPECT_EQ(index.find({0, &hash, tokens}), PageId{6});
  EXPECT_FALSE(index.has_twin(PageId{6}));
  index.erase(PageId{6});
  EXPECT_EQ(index.find({0, &hash, tokens}), kNullBlock);
  EXPECT_EQ(index.size(), 0U);
}

TEST(HashIndex, ARunIsFoundUpToItsFirstGap) {
  HashIndex index(64, kSizes, true);
  std::vector<BlockHash> hashes;
  std::vector<Token> tokens;
  for (int i = 0; i < 40; ++i) {
    hashes.push_back(hash_of(static_cast<std::uint64_t>(i) * 77, 1));
    tokens.push_back(i);
  }
  // Blocks of 4 tokens over hashes of 2: every second hash counts.
  for (std::uint32_t i = 0; i < 9; ++i)
    index.insert(PageId{i + 1}, {1, &hashes[2 * i + 1], &tokens[4 * i]});
  std::vector<PageId> out(10);
  EXPECT_EQ(index.find_run({1, &hashes[1], tokens.data()}, 4, 2, out), 9U);
  EXPECT_EQ(out[8], PageId{9});
  index.erase(PageId{4});
  EXPECT_EQ(index.find_run({1, &hashes[1], tokens.data()}, 4, 2, out), 3U);
}

// Places that fall together make long runs, in which erasing must move the right ones.
TEST(HashIndex, AgreesWithAMapOverRandomOperations) {
  constexpr std::uint32_t kIds = 64;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    HashIndex index(kIds, kSizes, true);
    struct Held {
      BlockHash hash;
      std::vector<Token> tokens;
      std::uint32_t group = 0;
      std::uint64_t since = 0;
    };
    std::map<std::uint32_t, Held> model;
    for (std::uint64_t op = 1; op <= 2000; ++op) {
      Held held;
      held.group = static_cast<std::uint32_t>(random.below(2));
      held.hash = hash_of(random.below(12) << (random.below(2) * 5),
                          static_cast<std::uint8_t>(random.below(2)));
      held.tokens.assign(4, static_cast<Token>(random.below(2)));
      held.since = op;
      const BlockContent content{held.group, &held.hash, held.tokens.data()};
      const auto id = static_cast<std::uint32_t>(1 + random.below(kIds - 1));
      if (model.contains(id)) {
        index.erase(PageId{id});
        model.erase(id);
      } else {
        index.insert(PageId{id}, content);
        model.emplace(id, held);
      }
      std::uint32_t expected = 0;
      for (const auto& [i, h] : model) {
        const bool same = h.group == held.group && h.hash == held.hash && h.tokens == held.tokens;
        if (same && (expected == 0 || h.since < model[expected].since)) expected = i;
      }
      ASSERT_EQ(index_of(index.find(content)), expected);
      ASSERT_EQ(index.size(), model.size());
      const Status sound = index.check();
      ASSERT_TRUE(sound.ok()) << sound.error().message;
    }
  }
}

TEST(HashIndexDeathTest, MisuseNamesTheBlock) {
  HashIndex index(4, kSizes, true);
  const BlockHash hash = hash_of(9, 1);
  const Token tokens[] = {5, 6};
  index.insert(PageId{1}, {0, &hash, tokens});
  EXPECT_DEATH(index.insert(PageId{1}, {0, &hash, tokens}), "block 1 has a hash already");
  EXPECT_DEATH(index.erase(PageId{2}), "block 2 has no hash");
  EXPECT_DEATH(index.insert(PageId{4}, {0, &hash, tokens}), "block 4 of an index over \\[1, 4\\)");
}

}  // namespace
}  // namespace pando::testing
