// SPDX-License-Identifier: Apache-2.0
// ReuseHazard by example: bins and buckets at their edges, what it starts as, what it learns from
// blocks that come back at one age, what it forgets.
#include "index/reuse_hazard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>

#include "base/random.h"

namespace pando {
namespace {

constexpr std::size_t kBuckets = ReuseHazard::kBuckets;

/// An id that is sampled at any depth below two million; the same for the same number.
std::uint64_t sampled_id(std::uint64_t number) { return Random(number).next() >> 20; }
/// An id that is sampled at no depth but the first four.
std::uint64_t unsampled_id(std::uint64_t number) { return ~sampled_id(number); }

/// One request of `num_blocks` that accesses `id` alone, at depth 0.
void request(ReuseHazard& hazard, std::size_t num_blocks, std::uint64_t id,
             ReuseHazard::Class cls = 0) {
  hazard.begin_request(num_blocks);
  hazard.access(id, 0, cls);
}

void expect_lru(const ReuseHazard& hazard) {
  for (ReuseHazard::Class cls = 0; cls < ReuseHazard::kClasses; ++cls) {
    for (std::size_t bucket = 1; bucket < kBuckets; ++bucket) {
      EXPECT_LT(hazard.index_at(cls, bucket), hazard.index_at(cls, bucket - 1))
          << "class " << int{cls} << ", bucket " << bucket;
    }
  }
}

TEST(ReuseHazard, StartsAsLru) {
  const ReuseHazard hazard;
  expect_lru(hazard);
  for (ReuseHazard::Class cls = 1; cls < ReuseHazard::kClasses; ++cls) {
    EXPECT_EQ(hazard.index_at(cls, 7), hazard.index_at(0, 7));
  }
}

TEST(ReuseHazard, StaysLruWhileNothingHappens) {
  ReuseHazard hazard;
  for (int i = 0; i < 1000; ++i) hazard.begin_request(0);
  EXPECT_EQ(hazard.now(), 0u);
  expect_lru(hazard);
}

TEST(ReuseHazard, IndexIsThatOfTheAge) {
  ReuseHazard hazard;
  hazard.begin_request(1000);
  EXPECT_EQ(hazard.now(), 1000u);
  EXPECT_EQ(hazard.index(5, 1000), hazard.index_at(5, 0));
  EXPECT_EQ(hazard.index(5, 0), hazard.index_at(5, ReuseHazard::bucket_of(1000)));
}

TEST(ReuseHazard, NewBlocksFallIntoFourBins) {
  const auto bin = [](std::size_t n) { return ReuseHazard::class_of(n, 0, false); };
  EXPECT_EQ(bin(0), bin(1));
  EXPECT_NE(bin(1), bin(2));
  EXPECT_EQ(bin(2), bin(6));
  EXPECT_NE(bin(6), bin(7));
  EXPECT_EQ(bin(7), bin(21));
  EXPECT_NE(bin(21), bin(22));
  EXPECT_EQ(bin(22), bin(SIZE_MAX));
}

TEST(ReuseHazard, HitsFallIntoSixBins) {
  const auto bin = [](std::uint32_t hits) { return ReuseHazard::class_of(0, hits, false); };
  EXPECT_NE(bin(0), bin(1));
  EXPECT_NE(bin(1), bin(2));
  EXPECT_EQ(bin(2), bin(3));
  EXPECT_NE(bin(3), bin(4));
  EXPECT_EQ(bin(4), bin(7));
  EXPECT_NE(bin(7), bin(8));
  EXPECT_EQ(bin(8), bin(15));
  EXPECT_NE(bin(15), bin(16));
  EXPECT_EQ(bin(16), bin(UINT32_MAX));
}

TEST(ReuseHazard, EveryCombinationOfBinsIsAClass) {
  std::set<int> classes;
  for (const std::size_t new_blocks : {0u, 2u, 7u, 22u}) {
    for (const std::uint32_t hits : {0u, 1u, 2u, 4u, 8u, 16u}) {
      for (const bool is_last : {false, true}) {
        classes.insert(ReuseHazard::class_of(new_blocks, hits, is_last));
      }
    }
  }
  EXPECT_EQ(classes.size(), ReuseHazard::kClasses);
  EXPECT_LT(*classes.rbegin(), static_cast<int>(ReuseHazard::kClasses));
}

TEST(ReuseHazard, BucketsBeginAtPowersOfTheRootOfTwo) {
  EXPECT_EQ(ReuseHazard::age_of(0), 0u);
  for (std::size_t bucket = 1; bucket < kBuckets; ++bucket) {
    const double age = 16 * std::exp2(static_cast<double>(bucket - 1) / 2);
    EXPECT_EQ(ReuseHazard::age_of(bucket), static_cast<std::uint64_t>(std::ceil(age - 1e-6)));
    EXPECT_EQ(ReuseHazard::bucket_of(ReuseHazard::age_of(bucket)), bucket);
    EXPECT_EQ(ReuseHazard::bucket_of(ReuseHazard::age_of(bucket) - 1), bucket - 1);
  }
  EXPECT_EQ(ReuseHazard::bucket_of(0), 0u);
  EXPECT_EQ(ReuseHazard::bucket_of(UINT64_MAX), kBuckets - 1);
}

// Each block comes back once, after 1000 to 1009 blocks of requests, and never again.
TEST(ReuseHazard, WhatReturnsAtOneAgeIsWorthMostJustBeforeIt) {
  ReuseHazard hazard;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    request(hazard, 10, sampled_id(i), 0);
    if (i >= 100) hazard.access(sampled_id(i - 100), 0, 1);
  }
  const std::size_t returning = ReuseHazard::bucket_of(1000);
  std::size_t best = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    if (hazard.index_at(0, bucket) > hazard.index_at(0, best)) best = bucket;
  }
  EXPECT_GE(best + 2, returning);
  EXPECT_LE(best, returning);
  // A fresh block is worth less, and one that missed its time next to nothing.
  EXPECT_GT(hazard.index_at(0, best), 1.5f * hazard.index_at(0, 0));
  EXPECT_GT(hazard.index_at(0, best), 20 * hazard.index_at(0, returning + 6));
  // So is one that has had its return, at any age.
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    EXPECT_LT(hazard.index_at(1, bucket), hazard.index_at(0, bucket)) << bucket;
  }
}

TEST(ReuseHazard, ForgetsWithAHalfLifeOfAThousandRequests) {
  ReuseHazard hazard;
  for (std::uint64_t i = 0; i < 320; ++i) request(hazard, 1, sampled_id(0));
  const double hits = hazard.learned().hits[0];
  EXPECT_GT(hits, 250);
  for (int i = 0; i < 1024; ++i) hazard.begin_request(1);
  EXPECT_NEAR(hazard.learned().hits[0] / hits, std::exp2(-1.024), 1e-6);
}

TEST(ReuseHazard, EveryRequestWeighsTheSame) {
  ReuseHazard one;
  ReuseHazard many;
  for (std::uint64_t round = 0; round < 2; ++round) {
    one.begin_request(1);
    one.access(sampled_id(0), 0, 0);
    many.begin_request(4);
    for (std::uint64_t depth = 0; depth < 4; ++depth) many.access(sampled_id(depth), depth, 0);
  }
  EXPECT_DOUBLE_EQ(one.learned().hits[0], 1);
  EXPECT_DOUBLE_EQ(many.learned().hits[0], 1);
}

TEST(ReuseHazard, SamplesDeepBlocksThinlyAndWeighsThemUp) {
  ReuseHazard hazard;
  constexpr std::size_t kDepth = 399;
  for (std::uint64_t round = 0; round < 2; ++round) {
    hazard.begin_request(1000);
    for (std::uint64_t i = 0; i < 10000; ++i) hazard.access(Random(i).next(), kDepth, 0);
  }
  // One in a hundred, each for a hundred.
  EXPECT_NEAR(static_cast<double>(hazard.num_tracked()), 100, 30);
  EXPECT_NEAR(hazard.learned().hits[ReuseHazard::bucket_of(1000)],
              static_cast<double>(hazard.num_tracked()) * 100 / 1000, 1e-4);
}

TEST(ReuseHazard, TracksEveryBlockOfTheFirstFour) {
  ReuseHazard hazard;
  hazard.begin_request(5);
  for (std::uint64_t depth = 0; depth < 5; ++depth) hazard.access(unsampled_id(depth), depth, 0);
  EXPECT_EQ(hazard.num_tracked(), 4u);
}

TEST(ReuseHazard, FollowsTheLatestLifetimesWhenThereAreTooMany) {
  ReuseHazard hazard;
  constexpr std::uint64_t kBlocks = ReuseHazard::kMaxLifetimes + 1000;
  for (std::uint64_t i = 0; i < kBlocks; ++i) request(hazard, 1, sampled_id(i));
  EXPECT_EQ(hazard.num_tracked(), ReuseHazard::kMaxLifetimes);
  EXPECT_LE(hazard.memory_bytes(), std::size_t{4} << 20);

  const auto hits_of_access = [&](std::uint64_t number) {
    const auto& hits = hazard.learned().hits;
    const double before = std::accumulate(hits.begin(), hits.end(), 0.0);
    hazard.access(sampled_id(number), 0, 0);
    return std::accumulate(hits.begin(), hits.end(), 0.0) - before;
  };
  EXPECT_EQ(hits_of_access(999), 0);   // forgotten; it takes the place of 1000
  EXPECT_EQ(hits_of_access(1000), 0);  // and this of 1001
  EXPECT_EQ(hazard.num_tracked(), ReuseHazard::kMaxLifetimes);
  EXPECT_EQ(hits_of_access(2000), 1);  // its old lifetime is in the ring, but over
  EXPECT_EQ(hazard.num_tracked(), ReuseHazard::kMaxLifetimes - 1);
}

TEST(ReuseHazard, MemoryGrowsWithUse) {
  ReuseHazard hazard;
  for (std::uint64_t i = 0; i < 10; ++i) request(hazard, 1, sampled_id(i));
  EXPECT_LE(hazard.memory_bytes(), 16384u);
}

TEST(ReuseHazard, EqualStreamsMakeEqualTables) {
  ReuseHazard a;
  ReuseHazard b;
  for (ReuseHazard* hazard : {&a, &b}) {
    Random random(7);
    for (int i = 0; i < 2000; ++i) {
      const std::size_t num_blocks = 1 + random.below(50);
      hazard->begin_request(num_blocks);
      for (std::size_t depth = 0; depth < num_blocks; ++depth) {
        hazard->access(Random(random.below(3000)).next(), depth,
                       static_cast<ReuseHazard::Class>(random.below(ReuseHazard::kClasses)));
      }
    }
  }
  for (ReuseHazard::Class cls = 0; cls < ReuseHazard::kClasses; ++cls) {
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      EXPECT_EQ(a.index_at(cls, bucket), b.index_at(cls, bucket));
    }
  }
}

TEST(ReuseHazardDeathTest, LifetimesAreAPowerOfTwo) {
  EXPECT_DEATH(ReuseHazard{1000}, "not a power of two");
}

}  // namespace
}  // namespace pando
