// SPDX-License-Identifier: Apache-2.0
// Random operations on PrefixCache against the naive reference, every invariant proved after each.
// A failure prints its seed and a shrunk list of operations. PANDO_MODEL_OPS sets how many run in
// all (default 1.6 million, a million of them with components); 100000000 makes a soak run.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "support/cache_model.h"
#include "support/random_ops.h"

namespace pando::testing {
namespace {

struct Case {
  std::string name;
  ModelConfig config;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kPlainCases[] = {
    {"page1_lru", {.page_size = 1}},
    {"page1_bigram_slru_events",
     {.page_size = 1, .bigram = true, .events = true, .policy = "slru"}},
    {"page1_engine_lfu", {.page_size = 1, .own_allocator = false, .policy = "lfu"}},
    {"page4_events", {.page_size = 4, .events = true}},
    {"page4_bigram_priority", {.page_size = 4, .bigram = true, .policy = "priority"}},
    {"page4_whole_nodes_filo", {.page_size = 4, .whole_nodes = true, .policy = "filo"}},
    {"page4_engine_bigram_events",
     {.page_size = 4, .bigram = true, .events = true, .own_allocator = false}},
    {"page16_fifo", {.page_size = 16, .policy = "fifo", .num_pages = 16}},
    {"page16_mru_events", {.page_size = 16, .events = true, .policy = "mru", .num_pages = 40}},
    {"page64_bigram_lfu", {.page_size = 64, .bigram = true, .policy = "lfu", .num_pages = 12}},
};

// Windows smaller than a page: one token, some, and all but one; over Pando's allocator and over an
// engine's slots.
std::vector<Case> small_windows() {
  std::vector<Case> cases;
  const char* const policies[] = {"lru", "slru", "lfu", "lru", "priority"};
  std::size_t turn = 0;
  for (const std::size_t page_size : {2, 4, 16}) {
    for (const std::size_t window : std::set<std::size_t>{1, page_size / 4 + 1, page_size - 1}) {
      if (window >= page_size) continue;
      for (const bool state : {false, true}) {
        ModelConfig config{.page_size = page_size, .bigram = turn % 3 == 1, .window = window};
        config.events = turn % 4 == 2;
        config.whole_nodes = turn % 5 == 3;
        config.own_allocator = turn % 2 == turn / 2 % 2;
        config.policy = policies[turn % std::size(policies)];
        config.num_window_pages = turn % 3 == 2 ? 8 : 16;
        if (state) config.state = StateOptions{.snapshot_interval = turn % 3 * page_size};
        cases.push_back({"window" + std::to_string(window) + (state ? "_state_page" : "_page") +
                             std::to_string(page_size) + (config.bigram ? "_bigram" : ""),
                         config});
        ++turn;
      }
    }
  }
  return cases;
}

// The plain cases, those with a window smaller than a page, and every combination of components,
// page sizes and kinds of key; the other options take turns. Namespaces are in every key.
std::vector<Case> all_cases() {
  std::vector<Case> cases(std::begin(kPlainCases), std::end(kPlainCases));
  const std::vector<Case> small = small_windows();
  cases.insert(cases.end(), small.begin(), small.end());
  const char* const policies[] = {"lru", "lru", "priority", "lfu", "lru", "slru", "fifo", "mru"};
  const StateOptions thinning[] = {
      {},
      {.snapshot_interval = 2},
      {.snapshot_interval = StateOptions::kOnlyEnds},
      {.snapshot_interval = 0, .max_per_path = 2},
      {.snapshot_interval = 3, .max_per_path = 3},
  };
  std::size_t turn = 0;
  for (const bool window : {false, true}) {
    for (const bool state : {false, true}) {
      if (!window && !state) continue;
      for (const std::size_t page_size : {1, 16, 64}) {
        for (const bool bigram : {false, true}) {
          ModelConfig config{.page_size = page_size, .bigram = bigram};
          config.events = turn % 3 == 1;
          config.whole_nodes = turn % 4 == 3;
          config.own_allocator = turn % 5 < 3;
          config.policy = policies[turn % std::size(policies)];
          // One page, two and a bit, three; smaller ones are below.
          if (window) config.window = page_size * (turn % 3 + 1) + (turn % 3 == 1 ? 1 : 0);
          if (state) {
            config.state = thinning[turn % std::size(thinning)];
            if (config.state->snapshot_interval != StateOptions::kOnlyEnds)
              config.state->snapshot_interval *= page_size;
          }
          cases.push_back({std::string(window ? "window_" : "") + (state ? "state_" : "") + "page" +
                               std::to_string(page_size) + (bigram ? "_bigram" : ""),
                           config});
          ++turn;
        }
      }
    }
  }
  return cases;
}

std::size_t ops_per_case() {
  const char* text = std::getenv("PANDO_MODEL_OPS");
  const std::size_t total = text != nullptr ? std::strtoull(text, nullptr, 10) : 1'600'000;
  return total / all_cases().size() + 1;
}

class PrefixCacheModel : public ::testing::TestWithParam<Case> {};

TEST_P(PrefixCacheModel, AgreesWithTheReference) {
  ASSERT_TRUE(
      check_random_ops(ops_per_case(), [](const auto& ops) { run_model(GetParam().config, ops); }));
}

INSTANTIATE_TEST_SUITE_P(Configurations, PrefixCacheModel, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pando::testing

int main(int argc, char** argv) {
  setenv("RC_PARAMS", "max_success=60 max_size=1600", 0);
  pando::testing::throw_on_failed_checks();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
