// SPDX-License-Identifier: Apache-2.0
// OffloadTable, rule by rule.
#include "pando/offload.h"

#include <gtest/gtest.h>

#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

using Keys = std::vector<std::string>;
using Numbers = std::vector<std::uint32_t>;

class OffloadTableTest : public ::testing::Test {
 protected:
  void make(std::size_t num_blocks, const std::string& policy = "lru") {
    OffloadOptions options;
    options.num_blocks = num_blocks;
    options.policy = policy;
    table = OffloadTable::create(options).value();
  }
  /// Keys of one group that follow each other, the first at token 10 * `from`.
  static std::vector<OffloadKey> chain(const Keys& keys, std::size_t from = 1) {
    std::vector<OffloadKey> out;
    for (const std::string& key : keys) out.push_back({key, 0, 10 * from++});
    return out;
  }
  static std::vector<std::string_view> views(const Keys& keys) {
    return {keys.begin(), keys.end()};
  }
  /// A request that writes these and finishes. What had to go for it.
  Keys write(const Keys& keys) {
    OffloadRequest request = table->start();
    const OffloadTable::Room room = table->begin_write(request, chain(keys)).value();
    table->end_write(views(keys));
    table->finish(request);
    return room.evicted;
  }
  Numbers read(const Keys& keys) {
    Numbers blocks(keys.size());
    table->begin_read(views(keys), blocks).value();
    return blocks;
  }
  void TearDown() override {
    const Status checked = table->check();
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }

  std::unique_ptr<OffloadTable> table;
};

TEST_F(OffloadTableTest, AKeyIsAbsentThenWrittenThenReady) {
  make(2);
  OffloadRequest request = table->start();
  EXPECT_EQ(table->find("a"), OffloadState::absent);
  const auto room = table->begin_write(request, chain({"a", "b"})).value();
  EXPECT_EQ(room.wanted, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(room.blocks, (Numbers{0, 1}));
  EXPECT_EQ(table->find("a"), OffloadState::writing);
  EXPECT_EQ(table->num_writing(), 2u);
  EXPECT_EQ(table->end_write(views({"a", "x", "b"})), (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(table->find("a"), OffloadState::ready);
  EXPECT_EQ(read({"b", "a"}), (Numbers{1, 0}));
  EXPECT_EQ(table->num_reading(), 2u);
  EXPECT_TRUE(table->end_read(views({"a", "b"})).ok());
  EXPECT_EQ(table->num_evictable(), 2u);
}

TEST_F(OffloadTableTest, AWriteThatFailedLeavesNothing) {
  make(2);
  OffloadRequest request = table->start();
  ASSERT_TRUE(table->begin_write(request, chain({"a"})).ok());
  table->end_write(views({"a"}), true);
  EXPECT_EQ(table->find("a"), OffloadState::absent);
  table->finish(request);
  EXPECT_EQ(write({"b", "c"}), Keys{});
}

TEST_F(OffloadTableTest, OfAPromptThatIsWrittenInPartsTheTailGoesFirst) {
  make(4);
  OffloadRequest request = table->start();
  ASSERT_TRUE(table->begin_write(request, chain({"a", "b"})).ok());
  table->end_write(views({"a", "b"}));
  ASSERT_TRUE(table->begin_write(request, chain({"c", "d"}, 3)).ok());
  table->finish(request);
  table->end_write(views({"c", "d"}));  // after the request has ended, as copies do
  EXPECT_EQ(table->evictable_keys(), (Keys{"d", "c", "b", "a"}));
  EXPECT_EQ(write({"x"}), Keys{"d"});
}

TEST_F(OffloadTableTest, GroupsAreOrderedByTheEndOfTheirKeys) {
  make(4);
  OffloadRequest request = table->start();
  const std::vector<OffloadKey> keys = {{"a0", 0, 10}, {"b0", 0, 20}, {"a1", 1, 10}, {"b1", 1, 20}};
  ASSERT_TRUE(table->begin_write(request, keys).ok());
  table->end_write(views({"a0", "a1", "b0", "b1"}));
  table->finish(request);
  EXPECT_EQ(table->evictable_keys(), (Keys{"b1", "b0", "a1", "a0"}));
}

TEST_F(OffloadTableTest, WhatIsReadOrWrittenOrNamedStays) {
  make(3);
  write({"a"});
  write({"b"});
  write({"c"});
  read({"a"});
  EXPECT_EQ(write({"b", "d"}), Keys{"c"});
  OffloadRequest request = table->start();
  EXPECT_TRUE(fails(table->begin_write(request, chain({"b", "e", "f"})), ErrorCode::out_of_capacity,
                    "no room for 2 blocks: 0 are free, 1 may"));
  EXPECT_EQ(table->find("d"), OffloadState::ready);
  EXPECT_TRUE(table->end_read(views({"a"})).ok());
  EXPECT_EQ(write({"e", "f"}), (Keys{"a", "d"}));
}

TEST_F(OffloadTableTest, ReadersAreCounted) {
  make(1);
  write({"a"});
  read({"a"});
  read({"a"});
  EXPECT_TRUE(table->end_read(views({"a"})).ok());
  EXPECT_EQ(table->num_evictable(), 0u);
  // All or nothing.
  EXPECT_TRUE(fails(table->end_read(views({"a", "a"})), ErrorCode::invalid_argument,
                    "key 1 of 2 is not being read"));
  EXPECT_EQ(table->num_evictable(), 0u);
  EXPECT_TRUE(table->end_read(views({"a"})).ok());
  EXPECT_EQ(table->num_evictable(), 1u);
}

TEST_F(OffloadTableTest, OnlyWhatIsReadyCanBeRead) {
  make(2);
  write({"a"});
  OffloadRequest request = table->start();
  ASSERT_TRUE(table->begin_write(request, chain({"b"})).ok());
  Numbers blocks(2);
  EXPECT_TRUE(fails(table->begin_read(views({"a", "b"}), blocks), ErrorCode::not_found,
                    "still being written"));
  EXPECT_TRUE(fails(table->begin_read(views({"a", "x"}), blocks), ErrorCode::not_found, "absent"));
  EXPECT_EQ(table->num_reading(), 0u);
}

TEST_F(OffloadTableTest, AKeyNamedTwiceIsWrittenOnce) {
  make(4);
  OffloadRequest request = table->start();
  EXPECT_EQ(table->begin_write(request, chain({"a", "a"})).value().wanted,
            std::vector<std::size_t>{0});
}

TEST_F(OffloadTableTest, PoliciesDecideWhoGoes) {
  make(3, "lfu");
  write({"a"});
  write({"a"});  // a use
  write({"b"});
  write({"c"});
  EXPECT_EQ(write({"d"}), Keys{"b"});
  make(3, "fifo");
  write({"a"});
  write({"b"});
  write({"c"});
  write({"a"});
  EXPECT_EQ(write({"d"}), Keys{"a"});
}

TEST_F(OffloadTableTest, TouchAndEvict) {
  make(4);
  write({"a"});
  write({"b"});
  write({"c"});
  table->touch(views({"b", "a", "x"}));
  EXPECT_EQ(table->evictable_keys(), (Keys{"c", "a", "b"}));
  EXPECT_EQ(table->evict(2, views({"a"})).value(), (Keys{"c", "b"}));
  EXPECT_TRUE(fails(table->evict(2), ErrorCode::out_of_capacity, "1 may be evicted"));
  EXPECT_TRUE(fails(table->evict(SIZE_MAX), ErrorCode::out_of_capacity, "1 may be evicted"));
}

TEST_F(OffloadTableTest, WhatIsForgottenIsAbsent) {
  for (const char* policy : {"lru", "hazard"}) {
    make(3, policy);
    write({"a", "b"});
    read({"a"});
    EXPECT_EQ(table->forget(views({"a", "b", "x"})), 1u);
    EXPECT_EQ(table->find("a"), OffloadState::ready);
    EXPECT_EQ(table->find("b"), OffloadState::absent);
    EXPECT_EQ(table->num_keys(), 1u);
    EXPECT_TRUE(table->check().ok());
  }
}

TEST_F(OffloadTableTest, ClearForgetsReadersAndWriters) {
  for (const char* policy : {"lru", "hazard"}) {
    make(3, policy);
    write({"a", "b"});
    read({"a"});
    OffloadRequest request = table->start();
    ASSERT_TRUE(table->begin_write(request, chain({"c"})).ok());
    table->clear();
    EXPECT_EQ(table->num_keys(), 0u);
    table->end_write(views({"c"}));
    table->finish(request);
    EXPECT_EQ(write({"x", "y", "z"}), Keys{});
    EXPECT_TRUE(table->check().ok());
  }
}

TEST_F(OffloadTableTest, HazardEvictsWhatComesBackLeast) {
  make(40, "hazard");
  // A prompt that comes back all the time, among many that never do.
  Keys warm;
  for (int i = 0; i < 8; ++i) warm.push_back("warm " + std::to_string(i));
  std::size_t misses = 0;
  for (int round = 0; round < 300; ++round) {
    if (round % 4 == 0) {
      if (round > 100)
        for (const std::string& key : warm) misses += table->find(key) == OffloadState::absent;
      write(warm);
    }
    Keys cold;
    for (int i = 0; i < 9; ++i) cold.push_back(std::to_string(round) + " " + std::to_string(i));
    write(cold);
    ASSERT_TRUE(table->check().ok()) << table->check().error().message;
  }
  EXPECT_LT(misses, 8u * 50 / 4) << "lru would lose all of it, every time";
}

TEST(OffloadOptions, WhatCannotBeIsRefused) {
  EXPECT_TRUE(fails(OffloadTable::create({}), ErrorCode::invalid_argument, "table of 0 blocks"));
  OffloadOptions options;
  options.num_blocks = 1;
  options.policy = "oldest";
  EXPECT_TRUE(fails(OffloadTable::create(options), ErrorCode::invalid_argument, "oldest"));
  options.policy = "lru";
  options.block_tokens = 0;
  EXPECT_TRUE(fails(OffloadTable::create(options), ErrorCode::invalid_argument, "0 tokens"));
}

}  // namespace
}  // namespace pando::testing
