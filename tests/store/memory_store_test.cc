// SPDX-License-Identifier: Apache-2.0
// The memory store: order of eviction, sizes, and pages that are not what was asked for.
#include <set>
#include <thread>

#include "support/store_fixture.h"

namespace pando::testing {
namespace {

using enum PageOutcome;
using Kind = StoreBatch::Kind;
using Outcomes = std::vector<PageOutcome>;
using Keys = std::vector<std::string>;

constexpr std::size_t kBytes = 100;

class MemoryStore : public ::testing::Test {
 protected:
  void open(std::size_t capacity_pages) {
    store_ = *make_memory_store({.capacity_bytes = capacity_pages * kBytes});
  }
  Outcomes put(const Keys& keys, std::size_t page_bytes = kBytes) {
    return run_batch(*store_, Kind::put, TestPages(keys, page_bytes).fill().pages(2));
  }
  Outcomes get(const Keys& keys, std::size_t page_bytes = kBytes) {
    TestPages pages(keys, page_bytes);
    const Outcomes out = run_batch(*store_, Kind::get, pages.pages(3));
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_TRUE(out[i] == done ? pages.intact(i) : pages.untouched(i)) << keys[i];
    }
    return out;
  }
  Outcomes exists(const Keys& keys) { return run_batch(*store_, Kind::exists, key_pages(keys)); }
  std::set<std::string> listed() {
    std::set<std::string> keys;
    EXPECT_TRUE(store_
                    ->list([&](const StoredPage& page) {
                      keys.insert(page.key);
                      return true;
                    })
                    .ok());
    return keys;
  }

  std::unique_ptr<StoreBackend> store_;
};

TEST_F(MemoryStore, TheLeastRecentlyUsedPageGoesFirst) {
  open(3);
  put({"a", "b", "c"});
  EXPECT_EQ(get({"a"}), Outcomes{done});
  put({"d"});
  EXPECT_EQ(listed(), (std::set<std::string>{"a", "c", "d"}));
  EXPECT_EQ(exists({"c"}), Outcomes{done});  // asking counts as use
  put({"e"});
  EXPECT_EQ(listed(), (std::set<std::string>{"c", "d", "e"}));
  put({"d"});  // and so does a put of what is there
  put({"f", "g"});
  EXPECT_EQ(listed(), (std::set<std::string>{"d", "f", "g"}));
  EXPECT_EQ(store_->stats().evicted_pages, 4u);
  EXPECT_EQ(store_->stats().size_bytes, 3 * kBytes);
  EXPECT_EQ(store_->stats().capacity_bytes, 3 * kBytes);
}

TEST_F(MemoryStore, WithoutACapacityNothingGoes) {
  open(0);
  put(numbered_keys(1000));
  EXPECT_EQ(store_->stats().num_pages, 1000u);
  EXPECT_EQ(store_->stats().evicted_pages, 0u);
}

TEST_F(MemoryStore, APageLargerThanTheStoreFailsAndEvictsNothing) {
  open(2);
  put({"a", "b"});
  TestPages large({"large"}, 201);
  StoreBatch batch(Kind::put, large.fill().pages(), StoreBatch::Clock::time_point::max());
  store_->put(batch);
  batch.finish({});
  EXPECT_TRUE(fails(batch.status(), ErrorCode::io_error,
                    "201 bytes, more than the 200 of the whole memory store"));
  EXPECT_EQ(listed(), (std::set<std::string>{"a", "b"}));
}

TEST_F(MemoryStore, AGetOfAnotherSizeIsAMissAndCostsNobodyThePage) {
  open(0);
  put({"a"});
  EXPECT_EQ(get({"a"}, kBytes + 1), Outcomes{missing});
  EXPECT_EQ(get({"a"}), Outcomes{done});
  EXPECT_EQ(store_->stats().damaged_pages, 0u);
}

TEST_F(MemoryStore, APutOfAnotherSizeReplacesThePage) {
  open(0);
  put({"a"});
  EXPECT_EQ(put({"a"}, 70), Outcomes{done});
  EXPECT_EQ(get({"a"}, 70), Outcomes{done});
  EXPECT_EQ(store_->stats().size_bytes, 70u);
  EXPECT_EQ(store_->stats().num_pages, 1u);
}

TEST_F(MemoryStore, RemoveAndClear) {
  open(0);
  put({"a", "b", "c"});
  EXPECT_EQ(run_batch(*store_, Kind::remove, key_pages({"b", "x", "b"})), Outcomes(3, done));
  EXPECT_EQ(exists({"a", "b", "c"}), (Outcomes{done, missing, done}));
  EXPECT_TRUE(store_->clear().ok());
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(store_->stats().size_bytes, 0u);
}

TEST_F(MemoryStore, ListingEndsWhenToldToAndMayCallTheStore) {
  open(0);
  put({"a", "b", "c"});
  std::size_t seen = 0;
  EXPECT_TRUE(store_
                  ->list([&](const StoredPage& page) {
                    EXPECT_EQ(page.size_bytes, kBytes);
                    EXPECT_EQ(exists({page.key}), Outcomes{done});
                    return ++seen < 2;
                  })
                  .ok());
  EXPECT_EQ(seen, 2u);
}

TEST_F(MemoryStore, AStoppedCallLeavesTheRest) {
  open(0);
  TestPages pages({"a", "b"});
  StoreBatch batch(Kind::put, pages.fill().pages(), StoreBatch::Clock::time_point::max());
  batch.cancel();
  store_->put(batch);
  batch.finish({});
  EXPECT_TRUE(fails(batch.status(), ErrorCode::cancelled, "called off at page 0 of 2"));
  EXPECT_TRUE(listed().empty());
}

TEST_F(MemoryStore, KeepsItsOwnCopy) {
  open(0);
  TestPages pages({"a"}, kBytes);
  run_batch(*store_, Kind::put, pages.fill().pages());
  pages.pages()[0].pieces[0][3] ^= std::byte{1};
  EXPECT_EQ(get({"a"}), Outcomes{done});
}

TEST_F(MemoryStore, ServesManyThreads) {
  open(10);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const std::string key = "key" + std::to_string((i * (t + 1)) % 17);
        put({key});
        get({key});
        if (i % 5 == 0) run_batch(*store_, Kind::remove, key_pages({key}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(store_->stats().size_bytes, 10 * kBytes);
  EXPECT_EQ(store_->stats().damaged_pages, 0u);
  EXPECT_EQ(store_->stats().num_pages, listed().size());
}

}  // namespace
}  // namespace pando::testing
