// SPDX-License-Identifier: Apache-2.0
// The events of a BlockCache: a reader that applies them knows what is found, on which tier.
#include <gtest/gtest.h>

#include "support/block_fixture.h"

namespace pando::testing {
namespace {

BlockCacheOptions with_events(std::vector<BlockGroup> groups, std::size_t num_blocks = 32) {
  BlockCacheOptions options = block_options(std::move(groups), num_blocks);
  options.events = true;
  options.hash.function = HashFunction::sha256_cbor;
  return options;
}

TEST(BlockEvents, ARunOfBlocksIsOneEvent) {
  TestBlocks cache(with_events({full_group(4)}));
  const BlockRequest request = cache.run(tokens(13));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::stored);
  EXPECT_EQ(events[0].tier, Tier::device);
  EXPECT_FALSE(events[0].parent);
  EXPECT_EQ(events[0].tokens, tokens(12));
  EXPECT_EQ(events[0].block_size, 4U);
  EXPECT_EQ(events[0].hash_bytes, 32U);
  ASSERT_EQ(events[0].hashes.size(), 3U);
  EXPECT_EQ(events[0].hashes[2], request.hashes()[2].value);
  EXPECT_TRUE(events[0].extra_keys.empty());
  EXPECT_TRUE(cache->take_events().empty());
}

TEST(BlockEvents, ALaterRunNamesItsParent) {
  TestBlocks cache(with_events({full_group(4)}));
  cache.run(tokens(9));
  cache->take_events();
  const BlockRequest longer = cache.run(tokens(17));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].parent, longer.hashes()[1].value);
  EXPECT_EQ(events[0].tokens, tokens(8, 9));
}

TEST(BlockEvents, ExtraKeysAndNamespacesAreTold) {
  TestBlocks cache(with_events({full_group(4)}));
  RequestKeys keys{.lora = "a", .salt = "s"};
  keys.items = {{"cat", 6, 1}};
  cache.run(tokens(9), keys);
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_GE(events.size(), 1U);
  EXPECT_EQ(events[0].ns, make_namespace({.lora = "a", .salt = "s"}));
  ASSERT_EQ(events[0].extra_keys.size(), 2U);
  EXPECT_EQ(events[0].extra_keys[0], (std::vector<ExtraKey>{std::string("a"), std::string("s")}));
  EXPECT_EQ(events[0].extra_keys[1], (std::vector<ExtraKey>{std::string("a"), ItemKey{"cat", 2}}));
}

TEST(BlockEvents, WhatIsTakenForSomethingElseIsRemoved) {
  TestBlocks cache(with_events({full_group(4)}, 6));
  PageHash second;
  {
    const BlockRequest request = cache.run(tokens(9));
    second = request.hashes()[1].value;
  }
  cache->take_events();
  const BlockRequest other = cache.run(tokens(13, 100));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::removed);
  EXPECT_EQ(events[0].hashes, (std::vector<PageHash>{second}));
  EXPECT_EQ(events[1].kind, KvEvent::Kind::stored);
}

TEST(BlockEvents, TwinsAreOneToTheReader) {
  TestBlocks cache(with_events({full_group(4)}, 8));
  BlockRequest a = cache.start(tokens(5)), b = cache.start(tokens(5));
  ASSERT_TRUE(cache->allocate(a, 5).ok());
  ASSERT_TRUE(cache->allocate(b, 5).ok());
  EXPECT_EQ(cache->take_events().size(), 1U);
  ASSERT_TRUE(cache->checkpoint(a, 5).ok());
  ASSERT_TRUE(cache->checkpoint(b, 5).ok());
  cache->finish(a);
  BlockRequest c = cache.start(tokens(20, 100));
  ASSERT_TRUE(cache->allocate(c, 20, {.delay_caching = true}).ok());  // takes one of them
  EXPECT_TRUE(cache->take_events().empty());
  EXPECT_EQ(cache.hit(tokens(5)), 4U);
}

TEST(BlockEvents, GroupsHaveRunsOfTheirOwn) {
  TestBlocks cache(with_events({full_group(4), window_group(8, 9)}));
  cache.run(tokens(17));
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].group, 0U);
  EXPECT_EQ(events[0].hashes.size(), 4U);
  EXPECT_EQ(events[1].group, 1U);
  EXPECT_EQ(events[1].block_size, 8U);
  EXPECT_EQ(events[1].hashes.size(), 2U);
  EXPECT_EQ(events[1].hashes[0], events[0].hashes[1]);  // named by the hash at the block's end
}

TEST(BlockEvents, AResetIsOneEvent) {
  TestBlocks cache(with_events({full_group(4)}));
  cache.run(tokens(17));
  cache->take_events();
  ASSERT_TRUE(cache->reset().ok());
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::cleared);
}

TEST(BlockEvents, WhatWasNeverComputedIsTakenBack) {
  TestBlocks cache(with_events({full_group(4)}));
  BlockRequest request = cache.start(tokens(9));
  ASSERT_TRUE(cache->allocate(request, 9).ok());
  cache->finish(request);
  const std::vector<KvEvent> events = cache->take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].kind, KvEvent::Kind::removed);
  EXPECT_EQ(events[1].hashes, events[0].hashes);
}

}  // namespace
}  // namespace pando::testing
