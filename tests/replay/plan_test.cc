// SPDX-License-Identifier: Apache-2.0
// Plans of generated traces: shape of curves, samples, counts of blocks.
#include "replay/plan.h"

#include <gtest/gtest.h>

#include "replay/block_sample.h"
#include "replay/generate.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

std::unique_ptr<Trace> chat(std::size_t requests) {
  WorkloadOptions options = WorkloadOptions::of(WorkloadKind::chat);
  options.requests = requests;
  return *make_workload(WorkloadKind::chat, options);
}

TEST(Plan, CurvesRiseAndTheOptimumIsAboveAll) {
  const Plan plan = *make_plan(*chat(2000), {.policies = {"lru", "fifo"}});
  ASSERT_EQ(plan.curves.size(), 4u);
  EXPECT_EQ(plan.requests, 2000u);
  EXPECT_EQ(plan.sample_rate, 1.0);
  const PlanCurve& lru = plan.curve("lru");
  for (std::size_t i = 1; i < lru.points.size(); ++i)
    EXPECT_GE(lru.points[i].hit_ratio, lru.points[i - 1].hit_ratio);
  for (const PlanPoint& point : plan.curve("optimum").points) {
    EXPECT_GE(point.hit_ratio, plan.curve("lru").at(point.capacity_blocks));
    EXPECT_GE(point.hit_ratio, plan.curve("fifo").at(point.capacity_blocks));
    EXPECT_LE(point.hit_ratio, plan.curve("ceiling").at(point.capacity_blocks) + 1e-12);
  }
  EXPECT_EQ(lru.points.back().capacity_blocks, plan.unique_blocks);
  EXPECT_EQ(plan.infinite_hit_ratio, lru.points.back().hit_ratio);
  EXPECT_GT(plan.knee_blocks, 0u);
  EXPECT_LT(plan.knee_blocks, plan.unique_blocks);
}

TEST(Plan, CapacitiesOfInterestAreExact) {
  const Plan plan = *make_plan(*chat(500), {.policies = {}, .at_blocks = {1234}});
  for (const PlanCurve& curve : plan.curves)
    EXPECT_TRUE(std::any_of(curve.points.begin(), curve.points.end(), [](const PlanPoint& p) {
      return p.capacity_blocks == 1234;
    })) << curve.policy;
}

TEST(Plan, ASampleIsCloseAndSaysHowClose) {
  const Plan all = *make_plan(*chat(4000), {});
  const Plan some = *make_plan(*chat(4000), {.policies = {}, .max_blocks = 20'000});
  ASSERT_LT(some.sample_rate, 0.5);
  EXPECT_GT(some.sample_error, 0);
  EXPECT_LT(some.sample_error, 0.05);
  EXPECT_NEAR(static_cast<double>(some.unique_blocks) / static_cast<double>(all.unique_blocks), 1,
              0.05);
  EXPECT_EQ(some.blocks, all.blocks);
  for (const double share : {0.02, 0.1, 0.5}) {
    const auto at = static_cast<std::uint64_t>(share * static_cast<double>(all.unique_blocks));
    EXPECT_NEAR(some.curve("lru").at(at), all.curve("lru").at(at), 0.03) << share;
    EXPECT_NEAR(some.curve("optimum").at(at), all.curve("optimum").at(at), 0.03) << share;
  }
}

TEST(Plan, APolicyThatIsNotKnownIsRefused) {
  EXPECT_EQ(make_plan(*chat(10), {.policies = {"nonsense"}}).error().code,
            ErrorCode::invalid_argument);
}

TEST(Plan, ATraceWithoutBlocksIsRefused) {
  ListTrace trace(std::vector<std::vector<BlockId>>(2));
  EXPECT_EQ(make_plan(trace, {}).error().code, ErrorCode::not_found);
}

TEST(BlockSample, IsExactUntilItIsFull) {
  BlockSample sample(1000);
  for (BlockId id = 0; id < 900; ++id) {
    ASSERT_TRUE(sample.is_sampled(id));
    EXPECT_TRUE(sample.insert(id));
    EXPECT_FALSE(sample.insert(id));
  }
  EXPECT_EQ(sample.num_seen(), 900u);
  EXPECT_EQ(sample.weight(), 1u);
}

TEST(BlockSample, EstimatesBeyond) {
  BlockSample sample(1 << 14);
  for (int round = 0; round < 2; ++round) {
    for (BlockId id = 0; id < 1'000'000; ++id) {
      if (sample.is_sampled(id)) sample.insert(id);
    }
  }
  EXPECT_GT(sample.weight(), 1u);
  EXPECT_NEAR(static_cast<double>(sample.num_seen()), 1e6, 3e4);
}

}  // namespace
}  // namespace pando::testing
