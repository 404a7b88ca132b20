// SPDX-License-Identifier: Apache-2.0
// `pando top` against the real endpoint of a real cache.
#include <gtest/gtest.h>

#include "pando/inspect.h"
#include "pando/metrics.h"
#include "support/command.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

TEST(TopCommand, ShowsWhatTheCacheHas) {
  const std::unique_ptr<Metrics> metrics = *Metrics::create();
  TierSetup setup;
  setup.page_size = 4;
  setup.cache.observer = metrics.get();
  TieredCache cache(setup);
  cache.put(tokens(16));
  cache.put(tokens(16));
  cache.settle();
  metrics->collect(*cache.cache);
  const std::string address = "127.0.0.1:" + std::to_string(*metrics->serve());

  const CommandResult done = pando_command({"top", address, "--once", "--json", "-"});
  ASSERT_EQ(done.code, 0) << done.err;
  const nlohmann::json json = done.json();
  EXPECT_EQ(json["hit_ratio_total"], 0.5);
  ASSERT_EQ(json["tiers"].size(), 3u);
  EXPECT_EQ(json["tiers"][0]["name"], "device");
  EXPECT_EQ(json["tiers"][0]["used"], 16);
  EXPECT_EQ(json["tiers"][0]["capacity"], cache->inspect().capacity_tokens(Tier::device));
  EXPECT_EQ(json["tiers"][1]["used"], 16);
  EXPECT_EQ(json["tiers"][1]["capacity"], cache->inspect().capacity_tokens(Tier::host));
  bool has_match = false;
  for (const auto& call : json["calls"]) has_match = has_match || call["name"] == "match";
  EXPECT_TRUE(has_match);
}

}  // namespace
}  // namespace pando::testing
