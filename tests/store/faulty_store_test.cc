// SPDX-License-Identifier: Apache-2.0
// The faulty store: each fault does what it says, in about the share it was told, again the same
// with the same seed; and what a Store makes of it.
#include <algorithm>

#include "support/store_fixture.h"

namespace pando::testing {
namespace {

using enum PageOutcome;
using Kind = StoreBatch::Kind;
using Clock = StoreBatch::Clock;
using Outcomes = std::vector<PageOutcome>;
using std::chrono::milliseconds;

constexpr std::size_t kPages = 400;

std::unique_ptr<StoreBackend> faulty(const StoreFaults& faults) {
  return make_faulty_store(*make_memory_store(), faults);
}

Outcomes put(StoreBackend& store, const std::vector<std::string>& keys) {
  return run_batch(store, Kind::put, TestPages(keys).fill().pages(2));
}
/// Done pages are checked to be intact.
Outcomes get(StoreBackend& store, const std::vector<std::string>& keys) {
  TestPages pages(keys);
  const Outcomes out = run_batch(store, Kind::get, pages.pages(3));
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(out[i] != done || pages.intact(i)) << keys[i];
    EXPECT_TRUE(out[i] != missing || pages.untouched(i)) << keys[i];
  }
  return out;
}
Outcomes exists(StoreBackend& store, const std::vector<std::string>& keys) {
  return run_batch(store, Kind::exists, key_pages(keys));
}
std::size_t count(const Outcomes& all, PageOutcome one) {
  return static_cast<std::size_t>(std::count(all.begin(), all.end(), one));
}

TEST(FaultyStore, WithoutFaultsIsTheStoreInside) {
  const auto store = faulty({});
  EXPECT_EQ(store->name(), "memory");
  EXPECT_EQ(put(*store, {"a", "b"}), Outcomes(2, done));
  EXPECT_EQ(get(*store, {"a", "x", "b"}), (Outcomes{done, missing, done}));
  EXPECT_EQ(exists(*store, {"x", "a"}), (Outcomes{missing, done}));
  EXPECT_EQ(run_batch(*store, Kind::remove, key_pages({"a"})), Outcomes{done});
  EXPECT_EQ(store->stats().num_pages, 1u);
  EXPECT_TRUE(store->clear().ok());
  EXPECT_EQ(store->stats().num_pages, 0u);
}

TEST(FaultyStore, PagesFailInTheShareTheyWereToldTo) {
  const auto store = faulty({.error = 0.25});
  const Outcomes written = put(*store, numbered_keys(kPages));
  EXPECT_NEAR(static_cast<double>(count(written, failed)), 0.25 * kPages, 40);
  EXPECT_EQ(count(written, done) + count(written, failed), kPages);
  EXPECT_EQ(store->stats().num_pages, count(written, done));
  const auto always = faulty({.error = 1});
  EXPECT_EQ(exists(*always, {"a"}), Outcomes{failed});
  EXPECT_EQ(run_batch(*always, Kind::remove, key_pages({"a"})), Outcomes{failed});
  EXPECT_TRUE(fails(always->clear(), ErrorCode::io_error, "a fault was asked for"));
}

TEST(FaultyStore, SpoiltReadsAreNoticedAndThePageIsSetAside) {
  for (const StoreFaults& faults : {StoreFaults{.short_read = 1}, StoreFaults{.flipped_bit = 1},
                                    StoreFaults{.short_read = 1, .flipped_bit = 1}}) {
    const auto store = faulty(faults);
    EXPECT_EQ(put(*store, numbered_keys(kPages)), Outcomes(kPages, done));
    EXPECT_EQ(get(*store, numbered_keys(kPages)), Outcomes(kPages, damaged));
    EXPECT_EQ(store->stats().damaged_pages, kPages);
    EXPECT_EQ(store->stats().num_pages, 0u);
    EXPECT_EQ(get(*store, {"key0"}), Outcomes{missing});
  }
}

TEST(FaultyStore, OneBitOfAPageIsFlipped) {
  const auto store = faulty({.flipped_bit = 1});
  put(*store, {"a"});
  TestPages read({"a"});
  EXPECT_EQ(run_batch(*store, Kind::get, read.pages()), Outcomes{damaged});
  const TestPages::Bytes whole = TestPages::bytes_of("a");
  int num_bits = 0;
  for (std::size_t i = 0; i < whole.size(); ++i)
    num_bits += std::popcount(static_cast<unsigned>(whole[i] ^ read.bytes(0)[i]));
  EXPECT_EQ(num_bits, 1);
}

TEST(FaultyStore, AStalePutKeepsNothing) {
  const auto store = faulty({.stale = 1});
  EXPECT_EQ(put(*store, {"a", "b"}), Outcomes(2, done));
  EXPECT_EQ(store->stats().num_pages, 0u);
  EXPECT_EQ(get(*store, {"a"}), Outcomes{missing});
}

TEST(FaultyStore, AStaleGetGivesAnotherPagesBytes) {
  std::size_t mixed_up = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto store = faulty({.seed = seed, .stale = 0.5});
    put(*store, {"a", "b"});
    if (exists(*store, {"a", "b"}) != Outcomes(2, done)) continue;  // a stale put
    TestPages read({"a"});
    if (run_batch(*store, Kind::get, read.pages()) != Outcomes{damaged}) continue;
    EXPECT_EQ(read.bytes(0), TestPages::bytes_of("b"));
    ++mixed_up;
  }
  EXPECT_NEAR(static_cast<double>(mixed_up), 200.0 / 8, 15);
}

TEST(FaultyStore, TheSameSeedGivesTheSameFaults) {
  const auto run = [](std::uint64_t seed) {
    const auto store = faulty({.seed = seed,
                               .error = 0.1,
                               .short_read = 0.1,
                               .flipped_bit = 0.1,
                               .stale = 0.1,
                               .max_delay = milliseconds(0)});
    Outcomes all;
    for (std::size_t round = 0; round < 5; ++round)
      for (const Outcomes& some : {put(*store, numbered_keys(50)), get(*store, numbered_keys(50))})
        all.insert(all.end(), some.begin(), some.end());
    return all;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(FaultyStore, OneKindsFaultsDoNotDependOnOtherCalls) {
  const auto quiet = faulty({.seed = 3, .error = 0.5});
  const auto busy = faulty({.seed = 3, .error = 0.5});
  for (int i = 0; i < 20; ++i) {
    exists(*busy, {"a"});
    EXPECT_EQ(put(*quiet, {"a"}), put(*busy, {"a"}));
  }
}

TEST(FaultyStore, AHangOutlastsTheDeadlineAndCancelling) {
  const auto store = faulty({.hang = 1, .max_delay = milliseconds(10)});
  StoreBatch batch(Kind::exists, key_pages({"a"}), Clock::now() + milliseconds(20));
  batch.cancel();
  store->exists(batch);
  EXPECT_GE(Clock::now(), batch.deadline() + milliseconds(10));
  batch.finish({});
  EXPECT_TRUE(fails(batch.status(), ErrorCode::cancelled, "called off at page 0 of 1"));
  EXPECT_EQ(batch.outcome(0), pending);
}

TEST(FaultyStore, ADelayIsNoFailureAndEndsWhenTheCallIsStopped) {
  const auto soon = faulty({.delay = 1, .max_delay = milliseconds(2)});
  EXPECT_EQ(put(*soon, {"a"}), Outcomes{done});
  const auto late = *Store::open(faulty({.delay = 1, .max_delay = std::chrono::hours(1000)}));
  EXPECT_TRUE(fails(late->exists({"a"}, milliseconds(5))->wait(), ErrorCode::timed_out, ""));
}

TEST(FaultyStore, CancellingReachesTheStoreInside) {
  Gate entered;
  const auto store =
      *Store::open(make_faulty_store(std::make_unique<ScriptedBackend>([&](StoreBatch& batch) {
                                       entered.pass();
                                       while (!batch.stopped()) std::this_thread::yield();
                                     }),
                                     {}));
  const StoreCall call = *store->exists({"a"}, milliseconds::max());
  entered.await(1);
  call.cancel();
  EXPECT_TRUE(fails(call.wait(), ErrorCode::cancelled, "called off at page 0 of 1"));
}

TEST(FaultyStore, WhatIsReadThroughAStoreIsIntactWhateverGoesWrong) {
  const auto store = *Store::open(faulty({.seed = 5,
                                          .error = 0.05,
                                          .short_read = 0.1,
                                          .flipped_bit = 0.1,
                                          .stale = 0.1,
                                          .delay = 0.05,
                                          .max_delay = milliseconds(1)}),
                                  {.num_read_threads = 2, .num_write_threads = 2});
  const auto keys = numbered_keys(60);
  std::size_t num_intact = 0, num_damaged = 0;
  for (std::size_t round = 0; round < 20; ++round) {
    TestPages written(keys), read(keys);
    (void)store->put(written.fill().pages())->wait();
    const StoreCall get = *store->get(read.pages(4));
    (void)get.wait();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (get.outcome(i) == damaged) ++num_damaged;
      if (get.outcome(i) != done) continue;
      ++num_intact;
      ASSERT_TRUE(read.intact(i)) << keys[i];
    }
  }
  EXPECT_GT(num_intact, 0u);
  EXPECT_EQ(store->stats().read_pages, num_intact);
  EXPECT_EQ(store->stats().damaged_pages, num_damaged);
}

TEST(FaultyStoreDeathTest, SharesAreBetweenZeroAndOne) {
  EXPECT_DEATH(faulty({.error = 1.5}), "a fault in a share of 1.5; expected 0 to 1");
  EXPECT_DEATH(make_faulty_store(nullptr, {}), "around nothing");
}

}  // namespace
}  // namespace pando::testing
