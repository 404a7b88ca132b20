// SPDX-License-Identifier: Apache-2.0
// SlotCache at its bounds: how many nodes it makes and keeps, what it refuses, what it shows.
#include <gtest/gtest.h>

#include "support/slot_fixture.h"

namespace pando::testing {
namespace {

// ---- Nodes.

TEST(SlotCacheNodes, MemoryGrowsWithBranchesNotWithSteps) {
  TestSlots slots(4, {.slot_tokens = 4096});
  const std::size_t slot = slots.take();
  for (std::size_t n = 1; n <= 1000; ++n) slots->insert({tokens(n)}, slot).value();
  slots.prove();
  EXPECT_EQ(slots->stats().num_nodes, 2u);
}

TEST(SlotCacheNodes, ABranchThatHasGoneIsJoinedAgain) {
  TestSlots slots;
  slots.fill(tokens(16));
  const std::size_t other = slots.fill(tokens(8) + tokens(8, 100));
  EXPECT_EQ(slots->stats().num_nodes, 4u);
  slots->insert({tokens(3, 700)}, other).value();
  slots.prove();
  EXPECT_EQ(slots->stats().num_nodes, 3u);
  EXPECT_EQ(slots.length(tokens(16)), 16u);
}

TEST(SlotCacheNodes, TheLeastRecentlyUsedEndIsForgottenDownToTheBranch) {
  TestSlots slots(4, {.max_nodes = 4});
  const std::size_t first = slots.fill(tokens(8) + tokens(8, 100));
  slots.fill(tokens(8) + tokens(8, 200));
  EXPECT_EQ(slots->stats().evictions, 0u);
  slots.fill(tokens(8) + tokens(8, 300));
  EXPECT_EQ(slots->stats().evictions, 1u);
  EXPECT_EQ(slots->stats().num_nodes, 4u);
  const SlotMatch match = slots.find(tokens(8) + tokens(8, 100));
  EXPECT_EQ(match.length, 8u);
  EXPECT_EQ(match.slot, first);
  EXPECT_EQ(slots->stats().num_sequences, 3u);
}

TEST(SlotCacheNodes, AtTheRootASequenceIsForgotten) {
  TestSlots slots(4, {.max_nodes = 3});
  const std::size_t first = slots.leave(tokens(8, 100));
  slots.leave(tokens(8, 200));
  slots.leave(tokens(8, 300));
  EXPECT_EQ(slots.length(tokens(8, 100)), 0u);
  EXPECT_EQ(slots->stats().num_sequences, 2u);
  EXPECT_EQ(slots.take(), first);  // blank again, and lower than the one never used
}

TEST(SlotCacheNodes, FindingKeepsASequence) {
  TestSlots slots(4, {.max_nodes = 3});
  slots.leave(tokens(8, 100));
  slots.leave(tokens(8, 200));
  slots.find(tokens(8, 100));
  slots.leave(tokens(8, 300));
  EXPECT_EQ(slots.length(tokens(8, 100)), 8u);
  EXPECT_EQ(slots.length(tokens(8, 200)), 0u);
}

TEST(SlotCacheNodes, ThousandsOfSequencesWithinTheBound) {
  TestSlots slots(64, {.slot_tokens = 256, .max_nodes = 40});
  for (Token i = 0; i < 3000; ++i) {
    slots
        ->insert({tokens(static_cast<std::size_t>(i % 50) + 1, 1) + tokens(20, 1000 * (i % 97))},
                 *slots->take())
        .value();
    ASSERT_LE(slots->stats().num_nodes, 40u);
    if (slots.allocator->free_count() == 0) {
      for (std::size_t s = 0; s < 64; ++s) slots->free(s);
      slots.prove();
    }
  }
}

// ---- Bad input.

TEST(SlotCacheBadInput, OptionsThatCannotWorkAreRefused) {
  auto allocator = *SlotAllocator::create(2);
  const auto make = [&](const SlotCacheOptions& options) {
    return SlotCache::create(options, *allocator);
  };
  EXPECT_TRUE(fails(make({}), ErrorCode::invalid_argument, "slot_tokens is 0"));
  EXPECT_TRUE(fails(make({.slot_tokens = std::size_t{1} << 40}), ErrorCode::invalid_argument,
                    "slot_tokens is"));
  EXPECT_TRUE(fails(make({.slot_tokens = 8, .max_nodes = 1}), ErrorCode::invalid_argument,
                    "max_nodes is 1"));
  const auto cache = *make({.slot_tokens = 8});
  EXPECT_TRUE(fails(make({.slot_tokens = 8}), ErrorCode::in_use, "has a cache already"));
}

TEST(SlotCacheBadInput, AnAllocatorOutlivesItsCachesOneAfterTheOther) {
  auto allocator = *SlotAllocator::create(2);
  (void)SlotCache::create({.slot_tokens = 8}, *allocator).value();
  ASSERT_EQ(allocator->alloc(), 0u);
  EXPECT_TRUE(SlotCache::create({.slot_tokens = 8}, *allocator).ok());
}

TEST(SlotCacheBadInput, IsRefusedAndChangesNothing) {
  TestSlots slots(2, {.slot_tokens = 8});
  const std::size_t slot = slots.fill(tokens(8));
  const std::string before = slots->dump();
  const Tokens negative{1, 2, -3};
  EXPECT_TRUE(fails(slots->insert({tokens(9)}, slot), ErrorCode::invalid_argument,
                    "insert: 9 tokens, a slot holds 8"));
  EXPECT_TRUE(fails(slots->insert({tokens(4)}, 2), ErrorCode::invalid_argument,
                    "insert: slot 2 is outside [0, 2)"));
  EXPECT_TRUE(fails(slots->insert({tokens(4)}, 1), ErrorCode::invalid_argument,
                    "slot 1 has never been handed out"));
  EXPECT_TRUE(fails(slots->insert({{}}, slot), ErrorCode::invalid_argument, "has no tokens"));
  EXPECT_TRUE(fails(slots->insert({negative}, slot), ErrorCode::invalid_argument,
                    "token -3 at position 2 is negative"));
  EXPECT_TRUE(fails(slots->find({negative}), ErrorCode::invalid_argument, "find: token -3"));
  EXPECT_TRUE(fails(slots->probe({{}}), ErrorCode::invalid_argument, "probe: the key has no"));
  EXPECT_TRUE(fails(slots->occupy({}), ErrorCode::invalid_argument, "the match is empty"));
  EXPECT_TRUE(fails(slots->occupy({.length = 1, .slot = 7}), ErrorCode::invalid_argument,
                    "slot 7 is outside"));
  EXPECT_TRUE(fails(slots->copy_kv({tokens(4)}, slot), ErrorCode::unavailable, "without a pool"));
  EXPECT_EQ(slots->dump(), before);
  slots.prove();
}

TEST(SlotCacheDeathTest, FreeingAFreeSlotNamesIt) {
  TestSlots slots(2);
  EXPECT_DEATH(slots->free(1), "free of slot 1: it is already free");
}

TEST(SlotCache, DumpShowsTheTreeAndWhoHoldsWhat) {
  TestSlots slots;
  slots.fill(tokens(4), "a");
  slots.leave(tokens(2) + tokens(2, 100), "a");
  const std::string text = slots->dump();
  EXPECT_NE(text.find("namespace \"a\""), std::string::npos) << text;
  EXPECT_NE(text.find("slot 0 holds 4 tokens of \"a\", taken, 0 pins"), std::string::npos) << text;
  EXPECT_NE(text.find("slot 1 holds 4 tokens of \"a\", free, 0 pins"), std::string::npos) << text;
}

}  // namespace
}  // namespace pando::testing
