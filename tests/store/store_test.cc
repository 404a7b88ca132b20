// SPDX-License-Identifier: Apache-2.0
// Store: calls and what becomes of their pages, over a memory store and over backends that break
// the rules. Queues, deadlines and the end of a Store are in store_queue_test.cc.
#include <stdexcept>
#include <thread>

#include "support/store_fixture.h"

namespace pando::testing {
namespace {

using enum PageOutcome;
using Outcomes = std::vector<PageOutcome>;

std::unique_ptr<Store> memory_store() { return *Store::open(*make_memory_store()); }

std::unique_ptr<Store> scripted_store(ScriptedBackend::Script script) {
  return *Store::open(std::make_unique<ScriptedBackend>(std::move(script)));
}

TEST(Store, GivesBackWhatWasPutHoweverItIsCut) {
  const auto store = memory_store();
  TestPages written(numbered_keys(5));
  const StoreCall put = *store->put(written.fill().pages(3));
  ASSERT_TRUE(put.wait().ok());
  EXPECT_EQ(outcomes(put), Outcomes(5, done));
  TestPages read(numbered_keys(5));
  const StoreCall get = *store->get(read.pages(7));
  ASSERT_TRUE(get.wait().ok());
  EXPECT_TRUE(get.finished());
  EXPECT_EQ(get.num_leading(), 5u);
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_TRUE(read.intact(i)) << i;
}

TEST(Store, TellsWhichPagesAreThere) {
  const auto store = memory_store();
  TestPages pages({"a", "c"});
  ASSERT_TRUE(store->put(pages.fill().pages())->wait().ok());
  const StoreCall exists = *store->exists({"a", "b", "c"});
  EXPECT_TRUE(exists.wait().ok());
  EXPECT_EQ(outcomes(exists), (Outcomes{done, missing, done}));
  EXPECT_EQ(exists.num_leading(), 1u);
  TestPages read({"b", "a"});
  const StoreCall get = *store->get(read.pages());
  EXPECT_TRUE(get.wait().ok());
  EXPECT_EQ(outcomes(get), (Outcomes{missing, done}));
  EXPECT_EQ(get.num_leading(), 0u);
  EXPECT_TRUE(read.untouched(0));
}

TEST(Store, RemovedAndClearedPagesAreGone) {
  const auto store = memory_store();
  TestPages pages({"a", "b", "c"});
  ASSERT_TRUE(store->put(pages.fill().pages())->wait().ok());
  const StoreCall remove = *store->remove({"b", "never there"});
  EXPECT_TRUE(remove.wait().ok());
  EXPECT_EQ(outcomes(remove), (Outcomes{done, done}));
  StoreCall exists = *store->exists({"a", "b", "c"});
  EXPECT_TRUE(exists.wait().ok());
  EXPECT_EQ(outcomes(exists), (Outcomes{done, missing, done}));
  EXPECT_TRUE(store->clear()->wait().ok());
  exists = *store->exists({"a", "b", "c"});
  EXPECT_TRUE(exists.wait().ok());
  EXPECT_EQ(outcomes(exists), Outcomes(3, missing));
}

TEST(Store, TakesAKeyTwiceInOneCall) {
  const auto store = memory_store();
  TestPages twice({"a", "a"});
  const StoreCall put = *store->put(twice.fill().pages());
  EXPECT_TRUE(put.wait().ok());
  TestPages read({"a", "a", "a"});
  const StoreCall get = *store->get(read.pages());
  EXPECT_TRUE(get.wait().ok());
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_TRUE(read.intact(i)) << i;
}

TEST(Store, ACallWithoutPagesIsFine) {
  const auto store = memory_store();
  EXPECT_TRUE(store->get({})->wait().ok());
  EXPECT_TRUE(store->exists({})->wait().ok());
}

TEST(Store, RefusesPagesWithoutKeyOrBytes) {
  const auto store = memory_store();
  TestPages pages({"a", ""});
  for (const bool is_put : {false, true}) {
    const auto call = [&](std::vector<StorePage> p) {
      return is_put ? store->put(std::move(p)) : store->get(std::move(p));
    };
    EXPECT_TRUE(fails(call(pages.pages()), ErrorCode::invalid_argument, "page 1 of 2 has no key"));
    EXPECT_TRUE(fails(call({{"a", {}}}), ErrorCode::invalid_argument,
                      "page 0 of 1 (a) has 0 bytes; expected at least one"));
  }
  EXPECT_TRUE(fails(store->exists({""}), ErrorCode::invalid_argument, "page 0 of 1 has no key"));
  EXPECT_TRUE(fails(store->remove({"a", ""}), ErrorCode::invalid_argument, "page 1 of 2"));
}

TEST(Store, RefusesBadOptions) {
  const auto open = [](const StoreOptions& options) {
    return Store::open(*make_memory_store(), options);
  };
  EXPECT_TRUE(fails(open({.num_read_threads = 0}), ErrorCode::invalid_argument, "0 read threads"));
  EXPECT_TRUE(fails(open({.num_write_threads = 1000}), ErrorCode::invalid_argument,
                    "1000 write threads; expected 1 to 256"));
  EXPECT_TRUE(fails(open({.max_queued_pages = 0}), ErrorCode::invalid_argument, "0 pages"));
  EXPECT_TRUE(fails(open({.timeout = std::chrono::milliseconds(0)}), ErrorCode::invalid_argument,
                    "a timeout of 0 ms; expected more than 0"));
  EXPECT_TRUE(fails(Store::open(nullptr), ErrorCode::invalid_argument, "no backend"));
}

TEST(Store, AnExceptionOfABackendFailsItsCallAndNothingElse) {
  int calls = 0;
  const auto store = scripted_store([&](StoreBatch& batch) {
    if (++calls == 1) throw std::runtime_error("the disk is on fire");
    if (calls == 2) throw 7;
    for (std::size_t i = 0; i < batch.size(); ++i) batch.missing(i);
  });
  const StoreCall first = *store->exists({"a", "b"});
  EXPECT_TRUE(fails(first.wait(), ErrorCode::io_error, "the backend threw: the disk is on fire"));
  EXPECT_EQ(outcomes(first), Outcomes(2, failed));
  EXPECT_TRUE(fails(store->exists({"a"})->wait(), ErrorCode::io_error, "no std::exception"));
  const StoreCall third = *store->exists({"a"});
  EXPECT_TRUE(third.wait().ok());
  EXPECT_EQ(outcomes(third), Outcomes{missing});
  EXPECT_EQ(store->stats().failed_pages, 3u);
}

TEST(Store, ABackendThatCannotTellItsStatsHasNone) {
  class Speechless : public ScriptedBackend {
   public:
    using ScriptedBackend::ScriptedBackend;
    BackendStats stats() const override { throw std::runtime_error("no idea"); }
  };
  const auto store =
      *Store::open(std::make_unique<Speechless>([](StoreBatch& b) { b.missing(0); }));
  EXPECT_TRUE(store->exists({"a"})->wait().ok());
  EXPECT_EQ(store->stats().backend.num_pages, 0u);
}

TEST(Store, PagesThatTheBackendLeavesOutHaveFailed) {
  const auto store = scripted_store([](StoreBatch& batch) { batch.done(1); });
  const StoreCall call = *store->exists({"a", "b", "c"});
  EXPECT_TRUE(fails(call.wait(), ErrorCode::io_error,
                    "page 0 (a): the backend returned without saying what became of it"));
  EXPECT_EQ(outcomes(call), (Outcomes{failed, done, failed}));
  EXPECT_EQ(call.num_leading(), 0u);
}

TEST(Store, TheFirstErrorIsTheCalls) {
  const auto store = scripted_store([](StoreBatch& batch) {
    batch.failed(1, "bad sector");
    batch.failed(0, "worse sector");
    throw std::runtime_error("gave up");
  });
  const StoreCall call = *store->exists({"a", "b", "c"});
  EXPECT_TRUE(fails(call.wait(), ErrorCode::io_error, "page 1 (b): bad sector"));
  EXPECT_EQ(outcomes(call), Outcomes(3, failed));
  EXPECT_TRUE(fails(store->clear()->wait(), ErrorCode::io_error, "no clear today"));
}

TEST(Store, BytesThatAreNotWhatWasPutAreDamagedAndNoError) {
  const auto store = scripted_store([](StoreBatch& batch) {
    const StorePage& page = batch.page(0);
    PageTag tag = make_page_tag(page);
    EXPECT_TRUE(batch.arrived(0, tag));
    EXPECT_FALSE(batch.arrived(1, tag));  // bytes alike, but another key
    page.pieces[0][0] ^= std::byte{1};
  });
  TestPages read({"a", "b"});
  const StoreCall get = *store->get(read.pages());
  EXPECT_TRUE(get.wait().ok());
  EXPECT_EQ(outcomes(get), (Outcomes{done, damaged}));
  EXPECT_EQ(store->stats().damaged_pages, 1u);
}

TEST(Store, LeadingPagesShowWhileTheCallRuns) {
  Gate gate;
  gate.shut();
  const auto store = scripted_store([&](StoreBatch& batch) {
    batch.done(0);
    batch.done(2);
    batch.done(1);
    gate.pass();
    batch.done(3);
  });
  const StoreCall call = *store->exists(numbered_keys(4));
  gate.await(1);
  EXPECT_EQ(call.num_leading(), 3u);
  EXPECT_EQ(call.outcome(3), pending);
  EXPECT_FALSE(call.finished());
  gate.open();
  EXPECT_TRUE(call.wait().ok());
  EXPECT_EQ(call.num_leading(), 4u);
}

TEST(Store, CountsAreInWhenTheCallIsFinished) {
  const auto store = memory_store();
  TestPages pages({"a", "b", "c"});
  ASSERT_TRUE(store->put(pages.fill().pages())->wait().ok());
  StoreStats stats = store->stats();
  EXPECT_EQ(stats.written_pages, 3u);
  EXPECT_EQ(stats.written_bytes, 3 * TestPages::kPageBytes);
  EXPECT_GT(stats.write_ns, 0u);
  EXPECT_EQ(stats.backend.num_pages, 3u);
  EXPECT_EQ(stats.backend.size_bytes, 3 * TestPages::kPageBytes);
  TestPages read({"a", "x", "y"});
  ASSERT_TRUE(store->get(read.pages())->wait().ok());
  ASSERT_TRUE(store->exists({"a", "x"})->wait().ok());
  stats = store->stats();
  EXPECT_EQ(stats.read_pages, 1u);
  EXPECT_EQ(stats.read_bytes, TestPages::kPageBytes);
  EXPECT_EQ(stats.missing_pages, 2u);
  EXPECT_GT(stats.read_ns, 0u);
  EXPECT_EQ(stats.failed_pages + stats.damaged_pages + stats.refused_calls, 0u);
  EXPECT_EQ(stats.timed_out_calls + stats.cancelled_calls, 0u);
}

TEST(Store, CallsOfManyThreadsAllFinish) {
  const auto store = *Store::open(*make_memory_store({.capacity_bytes = 20000}),
                                  {.num_read_threads = 3, .num_write_threads = 2});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t round = 0; round < 100; ++round) {
        const auto keys = numbered_keys(5, "round" + std::to_string((t * 7 + round) % 30) + "-");
        TestPages written(keys), read(keys);
        const StoreCall put = *store->put(written.fill().pages(2));
        const StoreCall get = *store->get(read.pages());
        if (round % 3 == 0) get.cancel();
        const StoreCall remove = *store->remove({keys[round % 5]});
        EXPECT_TRUE(put.wait().ok());
        (void)get.wait();
        EXPECT_TRUE(remove.wait().ok());
        for (std::size_t i = 0; i < read.size(); ++i) {
          EXPECT_TRUE(get.outcome(i) == done ? read.intact(i) : read.untouched(i)) << i;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->stats().written_pages, 2000u);
  EXPECT_EQ(store->stats().damaged_pages, 0u);
}

}  // namespace
}  // namespace pando::testing
