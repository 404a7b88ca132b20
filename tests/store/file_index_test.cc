// SPDX-License-Identifier: Apache-2.0
// The index that processes share: pages, room and order; changes that a death has cut short; and
// nonsense in the mapping.
#include "store/file/file_index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "store/file/page_file.h"
#include "support/store_pages.h"
#include "support/temp_directory.h"

namespace pando::testing {
namespace {

constexpr std::uint64_t kEndless = std::uint64_t{1} << 40;

/// Members below the number live.
struct Living final : Liveness {
  std::atomic<std::uint32_t> num = 2;
  bool is_alive(std::uint32_t member) const override { return member < num; }
};

class FileIndexTest : public ::testing::Test {
 protected:
  IndexPlace place() const { return {Directory::here(), path_, path_}; }
  /// A new one, with us as member 0.
  FileIndex& make(std::uint64_t capacity_bytes = kEndless) {
    auto mapping = IndexMapping::create(place(), capacity_bytes);
    if (!mapping) throw std::runtime_error(mapping.error().message);
    (*mapping)->header().ready = 1;
    index_ = std::make_unique<FileIndex>(std::move(*mapping), 0, living_);
    return *index_;
  }
  std::unique_ptr<FileIndex> attach(std::uint32_t member) {
    return std::make_unique<FileIndex>(attach_mapping(), member, living_);
  }
  std::unique_ptr<IndexMapping> attach_mapping() {
    auto mapping = IndexMapping::attach(place());
    if (!mapping) throw std::runtime_error(mapping.error().message);
    return std::move(*mapping);
  }
  static void insert(FileIndex& index, const Keys& keys, std::uint64_t size_bytes = 100) {
    for (const std::string& key : keys) {
      const Status inserted = index.insert(key, size_bytes, 0);
      ASSERT_TRUE(inserted.ok()) << inserted.error().message;
    }
  }
  static bool erase(FileIndex& index, const std::string& key) {
    const auto removal = index.begin_remove(key);
    if (removal) index.end(removal->record);
    return removal.has_value();
  }
  static std::map<std::string, std::uint64_t> list(FileIndex& index) {
    std::map<std::string, std::uint64_t> listed;
    std::size_t cursor = 0;
    for (auto some = index.list_some(cursor); !some.empty(); some = index.list_some(cursor))
      for (const StoredPage& page : some)
        EXPECT_TRUE(listed.emplace(page.key, page.size_bytes).second);
    return listed;
  }

  TempDirectory temp_;
  const std::string path_ = temp_ / "index";
  Living living_;
  std::unique_ptr<FileIndex> index_;
};

TEST_F(FileIndexTest, KeysOfAllKindsComeBack) {
  FileIndex& index = make();
  const std::string head(64, '3');
  const Keys keys = {test_key(1),
                     test_key(2),
                     head,
                     "plain",
                     head + "_x",
                     std::string(64, 'G'),
                     std::string(255, 'z'),
                     "_test-model_0_1_f0123456789abcdef"};
  for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_TRUE(index.insert(keys[i], i, 0).ok());
  const auto listed = list(index);
  EXPECT_EQ(listed.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(index.size_of(keys[i]), i);
    EXPECT_EQ(listed.at(keys[i]), i);
  }
  for (const std::string& key : keys) EXPECT_TRUE(erase(index, key));
  EXPECT_TRUE(index.check().ok());
  EXPECT_EQ(index.header().state.num_items, 0u);  // tails go with their last key
}

TEST_F(FileIndexTest, OldestIsTheOneNotTouched) {
  FileIndex& index = make();
  insert(index, test_keys(0, 1000));
  EXPECT_EQ(index.oldest(), test_key(0));
  EXPECT_TRUE(index.touch(test_key(0), 0).has_value());
  EXPECT_EQ(index.oldest(), test_key(1));
  EXPECT_TRUE(erase(index, test_key(1)));
  EXPECT_FALSE(erase(index, test_key(1)));
  EXPECT_EQ(index.oldest(), test_key(2));
  EXPECT_EQ(index.num_pages(), 999u);
  EXPECT_TRUE(index.check().ok());
}

TEST_F(FileIndexTest, BytesCountFromBeginWriteToTheEndOfRemoval) {
  FileIndex& index = make(3 * file_bytes(100));
  const auto a = *index.begin_write("a", 100);
  const auto b = *index.begin_write("b", 100);
  const auto c = *index.begin_write("c", 100);
  ASSERT_TRUE(a && b && c);
  EXPECT_FALSE(index.begin_write("d", 100)->has_value());
  EXPECT_FALSE(index.contains("a"));
  ASSERT_TRUE(index.commit(*a, 0).ok());
  EXPECT_TRUE(index.contains("a"));
  EXPECT_FALSE(index.begin_write("d", 100)->has_value());
  index.end(*c);
  const auto d = *index.begin_write("d", 100);
  ASSERT_TRUE(d);
  const auto removal = index.begin_remove("a");
  ASSERT_TRUE(removal);
  EXPECT_FALSE(index.contains("a"));
  EXPECT_FALSE(index.begin_write("e", 100)->has_value());
  ASSERT_TRUE(index.reuse(removal->record, "e", 99).ok());
  ASSERT_TRUE(index.commit(removal->record, 0).ok());
  EXPECT_EQ(index.size_of("e"), 99u);
  EXPECT_EQ(index.used_bytes(), 3 * file_bytes(100));
  EXPECT_EQ(index.pending_of(0).size(), 2u);
  EXPECT_TRUE(index.check().ok());
}

TEST_F(FileIndexTest, StampsGetOldAfterTenMinutes) {
  FileIndex& index = make();
  ASSERT_TRUE(index.insert("a", 100, 1000).ok());
  EXPECT_FALSE(index.touch("a", 1599)->restamp);
  EXPECT_TRUE(index.touch("a", 1600)->restamp);
  EXPECT_FALSE(index.touch("a", 1601)->restamp);
}

TEST_F(FileIndexTest, ListsEveryPageOnce) {
  FileIndex& index = make();
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_TRUE(index.insert(test_key(i), i, 0).ok());
  for (std::uint64_t i = 0; i < 1000; i += 3) erase(index, test_key(i));
  const auto listed = list(index);
  EXPECT_EQ(listed.size(), index.num_pages());
  EXPECT_EQ(listed.at(test_key(7)), 7u);
}

TEST_F(FileIndexTest, MembersSeeEachOthersPagesWhileItGrows) {
  FileIndex& first = make();
  const auto second = attach(1);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    FileIndex& index = i % 2 == 0 ? first : *second;
    ASSERT_TRUE(index.insert(test_key(i), 100, 0).ok());
    if (i % 100 == 0) {
      ASSERT_TRUE((i % 2 == 0 ? *second : first).contains(test_key(i)));
    }
  }
  EXPECT_EQ(first.num_pages(), 20'000u);
  EXPECT_TRUE(second->check().ok());
  EXPECT_GT(first.header().num_units, 20'000u);
  EXPECT_GE(first.header().state.num_buckets, 20'000u);
}

TEST_F(FileIndexTest, ThreadsAndMembersTakeTurns) {
  FileIndex& first = make();
  const auto second = attach(1);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      FileIndex& index = t % 2 == 0 ? first : *second;
      Random random(t);
      for (int i = 0; i < 2000; ++i) {
        const std::string key = test_key(random.below(50));
        if (random.below(2) == 0) {
          ASSERT_TRUE(index.insert(key, 100, 0).ok());
        } else {
          erase(index, key);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(first.check().ok());
  EXPECT_EQ(list(first).size(), second->num_pages());
}

// ---- Death.

TEST_F(FileIndexTest, AChangeThatDeathHasCutShortIsUndone) {
  FileIndex& index = make();
  insert(index, test_keys(0, 100));
  const auto before = list(index);
  const auto dead = attach_mapping();
  for (const std::uint32_t waiting : {0u, 1u << 31}) {
    dead->header().lock = 8 | waiting;  // member 7
    dead->begin(false);
    IndexState& state = dead->header().state;
    dead->set(state.num_pages, 17u);
    dead->set(state.free, 3u);
    for (UnitId id = 1; id < 40; ++id) dead->set(dead->unit(id).page.next, id + 1);
    dead->set(state.page_file_bytes, std::uint64_t{12345});
    EXPECT_EQ(list(index), before);
    const Status checked = index.check();
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }
}

TEST_F(FileIndexTest, ALockIsNotTakenFromTheLiving) {
  FileIndex& index = make();
  const auto second = attach(1);
  std::atomic<bool> released = false;
  index.header().lock = 1;  // as if we had it
  std::thread other([&] {
    second->num_pages();
    EXPECT_TRUE(released);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // several looks
  released = true;
  living_.num = 0;
  other.join();
}

TEST_F(FileIndexTest, RecordsOfTheDeadAreListedAndEnded) {
  FileIndex& index = make(10 * file_bytes(100));
  const auto other = attach(1);
  insert(*other, {"page"});
  ASSERT_TRUE(other->begin_write("writing", 100)->has_value());
  ASSERT_TRUE(other->begin_remove("page"));
  const auto pending = index.pending_of(1);
  ASSERT_EQ(pending.size(), 2u);
  EXPECT_EQ(pending[0].key, "page");
  EXPECT_EQ(pending[1].key, "writing");
  EXPECT_EQ(index.used_bytes(), 2 * file_bytes(100));
  for (const auto& record : pending) index.end_of(1, record.record);
  EXPECT_EQ(index.used_bytes(), 0u);
  EXPECT_TRUE(index.check().ok());
}

// ---- Nonsense.

TEST_F(FileIndexTest, WhatIsNoIndexIsNotAttachedTo) {
  const auto refused = [&] {
    const auto mapping = IndexMapping::attach(place());
    return !mapping.ok() && mapping.error().code == ErrorCode::corrupt;
  };
  EXPECT_TRUE(refused());  // none
  std::ofstream(path_) << "something";
  EXPECT_TRUE(refused());
  std::ofstream(path_) << std::string(1 << 20, 'x');
  EXPECT_TRUE(refused());
  make();
  EXPECT_FALSE(refused());
  index_->header().ready = 0;
  EXPECT_TRUE(refused());
  make();
  index_->header().version = 99;
  EXPECT_TRUE(refused());
  make();
  insert(*index_, test_keys(0, 2000));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 4096);
  EXPECT_TRUE(refused());
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_TRUE(refused());
}

TEST_F(FileIndexTest, NonsenseInItIsFoundAndFollowedNowhere) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    FileIndex& index = make();
    insert(index, test_keys(0, 200));
    insert(index, {"a", "b", std::string(200, 'c')});
    const auto scribble = attach_mapping();
    const std::uint64_t used = index.header().state.num_used_units;
    for (std::uint64_t i = 0, n = 1 + random.below(30); i < n; ++i) {
      auto* words = random.below(3) == 0
                        ? reinterpret_cast<std::uint32_t*>(&scribble->header().state)
                        : reinterpret_cast<std::uint32_t*>(
                              &scribble->unit(static_cast<UnitId>(random.below(used))));
      words[random.below(16)] =
          static_cast<std::uint32_t>(random.below(2) == 0 ? random.next() : random.below(used));
    }
    if (random.below(4) == 0) {
      scribble->header().undo.count = static_cast<std::uint32_t>(random.next());
      for (auto& word : scribble->header().undo.words)
        word = {static_cast<std::uint32_t>(random.next()), 7};
    }
    for (std::uint64_t i = 0; i < 300; ++i) {
      const std::string key = test_key(random.below(300));
      index.touch(key, 0);
      if (const auto record = index.begin_write(key, 100); record && *record) index.end(**record);
      if (const auto removal = index.begin_remove(key)) index.end(removal->record);
      index.oldest();
      std::size_t cursor = 0;
      index.list_some(cursor);
      index.pending_of(0);
    }
    static_cast<void>(index.check().ok());
  }
}

}  // namespace
}  // namespace pando::testing
