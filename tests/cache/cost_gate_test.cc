// SPDX-License-Identifier: Apache-2.0
// Load or compute: the rule by itself, and load_back under it. Fetches are in storage_tier_test.cc,
// ranks in ranks/mirrored_cache_test.cc.
#include "tiers/cost_gate.h"

#include <gtest/gtest.h>

#include <limits>

#include "pando/paths.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

TEST(CostGate, ARateForgetsWhatWasLongAgo) {
  Rate rate;
  EXPECT_FALSE(rate.is_known());
  EXPECT_EQ(rate.per_second(), 0);
  rate.add(100, 1);
  EXPECT_DOUBLE_EQ(rate.per_second(), 100);
  rate.add(300, 1);  // the older one counts 0.9
  EXPECT_DOUBLE_EQ(rate.per_second(), (90 + 300) / 1.9);
  for (int i = 0; i < 200; ++i) rate.add(7, 1);
  EXPECT_NEAR(rate.per_second(), 7, 1e-6);
}

TEST(CostGate, ComparesWhatBothTake) {
  CostGate gate(CostGateOptions{.max_ratio = 1.5});
  EXPECT_TRUE(gate.is_worth(1e30, 1e30, 1)) << "nothing is known";
  gate.prefilled_tokens.add(1000, 1);
  EXPECT_TRUE(gate.is_worth(1e30, 1e30, 1)) << "how long loads take is not known";
  gate.loaded_bytes.add(1e6, 1);
  EXPECT_TRUE(gate.is_worth(1.5e6, 0, 1000));  // 1.5 s, against 1 s
  EXPECT_FALSE(gate.is_worth(1.6e6, 0, 1000));
  EXPECT_TRUE(gate.is_worth(1.5e6, 1e30, 1000)) << "how long fetches take is not known";
  gate.fetched_bytes.add(1e6, 1);
  EXPECT_TRUE(gate.is_worth(0.7e6, 0.7e6, 1000));
  EXPECT_FALSE(gate.is_worth(0.8e6, 0.8e6, 1000));
}

TEST(CostGate, AStoreThatGivesNothingIsNotWorthAsking) {
  CostGate gate(CostGateOptions{});
  gate.prefilled_tokens.add(1, 1e9);
  gate.loaded_bytes.add(1e9, 1);
  gate.fetched_bytes.add(0, 10);
  EXPECT_FALSE(gate.is_worth(1, 1, 1'000'000));
}

TEST(CostGate, OneInSoManyIsAProbe) {
  CostGate gate(CostGateOptions{.probe_every = 3});
  std::string asked;
  for (int i = 0; i < 7; ++i) asked += gate.next_is_probe() ? 'x' : '.';
  EXPECT_EQ(asked, "..x..x.");
  CostGate never(CostGateOptions{.probe_every = 0});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(never.next_is_probe());
  CostGate off({});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(off.next_is_probe());
}

// Loads 16 tokens that have left the device; what load_back said.
LoadOutcome load_again(TieredCache& cache) {
  cache.settle();
  cache->evict(16);
  Slots at(16);
  Lease lease = *cache->paths().lock(*cache->paths().match({tokens(16)}, at));
  const LoadBack loaded = *cache->paths().load_back(lease, at);
  EXPECT_EQ(loaded.tokens, loaded.outcome == LoadOutcome::loaded ? 16u : 0u);
  cache.settle();
  cache.open_gates();
  EXPECT_TRUE(cache.closes());
  return loaded.outcome;
}

TEST(CostGate, DecidesLoadsByWhatWasMeasured) {
  TieredCache cache({.cost_gate = CostGateOptions{.probe_every = 4}});
  cache.put(tokens(16));
  EXPECT_EQ(load_again(cache), LoadOutcome::loaded);
  EXPECT_GT(cache->tiers().stats().load_bytes_per_second, 0);
  cache->tiers().report_prefill(1'000'000, 1e-9).value();
  EXPECT_EQ(cache->tiers().stats().prefill_tokens_per_second, 1e15);
  EXPECT_EQ(load_again(cache), LoadOutcome::recompute);
  EXPECT_EQ(load_again(cache), LoadOutcome::recompute);
  EXPECT_EQ(load_again(cache), LoadOutcome::loaded) << "to measure again";
  EXPECT_EQ(cache->tiers().stats().gated_loads, 2u);
  EXPECT_EQ(cache->tiers().stats().gate_probes, 1u);
  for (int i = 0; i < 1000; ++i) cache->tiers().report_prefill(1, 1000).value();
  EXPECT_EQ(load_again(cache), LoadOutcome::loaded) << "the engine is slow now";
  EXPECT_EQ(cache->tiers().stats().gated_loads, 2u);
}

TEST(CostGate, IsOffUnlessAskedFor) {
  TieredCache cache;
  cache.put(tokens(16));
  cache->tiers().report_prefill(1'000'000, 1e-9).value();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(load_again(cache), LoadOutcome::loaded);
}

TEST(CostGate, RefusesWhatCannotBeMeant) {
  EXPECT_FALSE(CostGateOptions{.max_ratio = 0}.validate().ok());
  EXPECT_FALSE(
      CostGateOptions{.max_ratio = std::numeric_limits<double>::quiet_NaN()}.validate().ok());
  TieredCache cache;
  EXPECT_FALSE(cache->tiers().report_prefill(10, 0).ok());
  EXPECT_FALSE(cache->tiers().report_prefill(10, -1).ok());
  EXPECT_FALSE(cache->tiers().report_prefill(10, std::numeric_limits<double>::infinity()).ok());
  EXPECT_EQ(cache->tiers().stats().prefill_tokens_per_second, 0);
}

}  // namespace
}  // namespace pando::testing
