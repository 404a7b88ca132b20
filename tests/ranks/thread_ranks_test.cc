// SPDX-License-Identifier: Apache-2.0
// Ranks of one process: what they agree on, and what happens when one of them does something else.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/random.h"
#include "pando/ranks.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

using Values = std::vector<std::int64_t>;
using std::chrono::milliseconds;

std::vector<std::unique_ptr<Ranks>> thread_ranks(std::size_t n,
                                                 milliseconds timeout = milliseconds(60'000)) {
  return *make_thread_ranks({.num_ranks = n, .timeout = timeout});
}

/// Runs `body` on a thread for each rank.
void on_all(std::vector<std::unique_ptr<Ranks>>& ranks, const std::function<void(Ranks&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(SingleRank, AgreesWithItself) {
  const auto ranks = make_single_rank();
  EXPECT_EQ(ranks->rank(), 0u);
  EXPECT_EQ(ranks->size(), 1u);
  Values values = {3, -4};
  EXPECT_TRUE(ranks->min(values).ok());
  EXPECT_TRUE(ranks->max(values).ok());
  EXPECT_TRUE(ranks->barrier().ok());
  EXPECT_EQ(values, (Values{3, -4}));
}

TEST(ThreadRanks, RefuseBadOptions) {
  EXPECT_TRUE(fails(make_thread_ranks({.num_ranks = 0}), ErrorCode::invalid_argument,
                    "0 thread ranks with a timeout of 30000 ms; expected at least one of each"));
  EXPECT_FALSE(make_thread_ranks({.timeout = milliseconds(0)}).ok());
}

TEST(ThreadRanks, GetTheLeastAndTheMostOfEachValue) {
  auto ranks = thread_ranks(4);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(ranks[r]->rank(), r);
    EXPECT_EQ(ranks[r]->size(), 4u);
  }
  on_all(ranks, [](Ranks& rank) {
    const auto r = static_cast<std::int64_t>(rank.rank());
    Values values = {r, -r, INT64_MIN + r};
    EXPECT_TRUE(rank.min(values).ok());
    EXPECT_EQ(values, (Values{0, -3, INT64_MIN}));
    values = {r, -r, INT64_MAX - r};
    EXPECT_TRUE(rank.max(values).ok());
    EXPECT_EQ(values, (Values{3, 0, INT64_MAX}));
    EXPECT_TRUE(rank.min({}).ok());
  });
}

TEST(ThreadRanks, NobodyPassesABarrierBeforeAllHaveCome) {
  auto ranks = thread_ranks(5);
  std::atomic<int> came = 0;
  on_all(ranks, [&](Ranks& rank) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      ASSERT_TRUE(rank.barrier().ok());
      EXPECT_GE(came, 5 * round);
      ASSERT_TRUE(rank.barrier().ok());
      EXPECT_LE(came, 5 * round + 4);
    }
  });
}

TEST(ThreadRanks, ManyRoundsOfManySizesStayInStep) {
  constexpr std::size_t kRanks = 3;
  auto ranks = thread_ranks(kRanks);
  on_all(ranks, [](Ranks& rank) {
    for (std::uint64_t round = 0; round < 2000; ++round) {
      Values values, least, most;
      for (std::uint64_t i = 0; i < round % 5; ++i) {
        const auto draw = [&](std::uint64_t r) {
          return static_cast<std::int64_t>(Random(round * 5 + i, r).next());
        };
        values.push_back(draw(rank.rank()));
        least.push_back(std::min({draw(0), draw(1), draw(2)}));
        most.push_back(std::max({draw(0), draw(1), draw(2)}));
      }
      const bool is_min = round % 2 == 0;
      ASSERT_TRUE((is_min ? rank.min(values) : rank.max(values)).ok());
      ASSERT_EQ(values, is_min ? least : most);
    }
  });
}

TEST(ThreadRanks, CallsThatDoNotMatchAreAnErrorForAllAndTheNextIsFine) {
  auto ranks = thread_ranks(3);
  on_all(ranks, [](Ranks& rank) {
    Values values(rank.rank() == 1 ? 2 : 1, 7);
    const Values before = values;
    EXPECT_TRUE(fails(rank.min(values), ErrorCode::invalid_argument,
                      "expected the same call of all 3 ranks"));
    EXPECT_EQ(values, before);
    EXPECT_TRUE(fails(rank.rank() == 2 ? rank.barrier() : rank.max({}), ErrorCode::invalid_argument,
                      "of 0 values"));
    values = {static_cast<std::int64_t>(rank.rank())};
    EXPECT_TRUE(rank.max(values).ok());
    EXPECT_EQ(values, Values{2});
  });
}

TEST(ThreadRanks, ARankThatDoesNotComeIsAnErrorForTheOthersFromThenOn) {
  auto ranks = thread_ranks(3, milliseconds(20));
  std::thread second([&] { EXPECT_FALSE(ranks[2]->barrier().ok()); });
  const Status status = ranks[0]->barrier();
  second.join();
  ASSERT_TRUE(fails(status, ErrorCode::timed_out, "waited 20 ms in barrier"));
  EXPECT_TRUE(fails(status, ErrorCode::timed_out, "did not come"));
  EXPECT_NE(status.error().message.find("1"), std::string::npos);
  EXPECT_TRUE(fails(ranks[1]->barrier(), ErrorCode::timed_out, "did not come"));  // too late
  Values values = {5};
  EXPECT_TRUE(fails(ranks[0]->min(values), ErrorCode::timed_out, "did not come"));
  EXPECT_EQ(values, Values{5});
}

TEST(ThreadRanks, ARankThatHasGoneFailsTheOthersAtOnce) {
  auto ranks = thread_ranks(2);
  std::thread waits([&] {
    EXPECT_TRUE(fails(ranks[0]->barrier(), ErrorCode::cancelled, "rank 1 of 2 has gone"));
  });
  ranks[1].reset();
  waits.join();
}

TEST(ThreadRanks, OneMayGoWhileAnotherIsStillLeavingTheLastRound) {
  for (int round = 0; round < 200; ++round) {
    auto ranks = thread_ranks(2);
    std::vector<std::thread> threads;
    for (auto& rank : ranks) {
      threads.emplace_back([&rank] {
        EXPECT_TRUE(rank->barrier().ok());
        rank.reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace pando::testing
