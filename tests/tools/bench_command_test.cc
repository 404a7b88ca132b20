// SPDX-License-Identifier: Apache-2.0
// `pando bench`: it runs, and its figures are figures. How good they are is not for a test to say.
#include <cmath>
#include <set>

#include "support/command.h"

namespace pando::testing {
namespace {

void expect_figures(const nlohmann::json& one) {
  SCOPED_TRACE(one.dump());
  for (const char* name : {"work_ns", "limit_ns", "ratio"}) {
    ASSERT_TRUE(one[name].is_number());
    EXPECT_TRUE(std::isfinite(one[name].get<double>()) && one[name].get<double>() > 0);
  }
}

TEST(BenchCommand, QuickGivesEveryCaseItsLimit) {
  const CommandResult done = pando_command({"bench", "--quick", "--json", "-"});
  ASSERT_EQ(done.code, 0) << done.err;
  const nlohmann::json json = done.json();
  EXPECT_EQ(json["command"], "bench");
  EXPECT_FALSE(json["machine"]["cpu"].get<std::string>().empty());
  EXPECT_GE(json["machine"]["cores"].get<int>(), 1);
  EXPECT_GE(json["machine"]["usable_cores"].get<int>(), 1);
  std::set<std::string> names;
  for (const nlohmann::json& one : json["cases"]) {
    expect_figures(one);
    names.insert(one["name"]);
  }
  for (const char* name : {"match", "match_wide", "probe", "insert", "allocate", "evict",
                           "hash_sha256", "take_free", "find_blocks"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(json["workloads"].size(), 3u);
  for (const nlohmann::json& one : json["workloads"]) {
    expect_figures(one);
    EXPECT_GT(one["hit_ratio"].get<double>(), 0);
    EXPECT_LT(one["hit_ratio"].get<double>(), 1);
    EXPECT_GT(one["operations"]["start"]["calls"].get<int>(), 0);
  }
}

TEST(BenchCommand, TheTableNamesTheMachineAndCasesCanBeChosen) {
  const CommandResult done = pando_command({"bench", "--quick", "--only", "probe"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("cores"), std::string::npos);
  EXPECT_NE(done.out.find("probe 8192 cached tokens"), std::string::npos) << done.out;
  EXPECT_EQ(done.out.find("insert"), std::string::npos);
  EXPECT_EQ(pando_command({"bench", "--quick", "--only", "nonsense"}).code, 2);
}

}  // namespace
}  // namespace pando::testing
