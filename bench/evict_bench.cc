// SPDX-License-Identifier: Apache-2.0
// Eviction of one leaf, or of the window of one node, its slots returned, from trees of a thousand
// to a million leaves. Leaves are used in random order first, so that victims are scattered in
// memory. The limit of the larger trees is the smallest tree, measured in turns with them.
#include <numeric>
#include <string>

#include "cases/forest.h"
#include "limit.h"

namespace pando::bench {
namespace {

void evict(benchmark::State& state, std::size_t leaves, bool window) {
  constexpr std::size_t kBatch = 400;
  constexpr std::size_t kRounds = 100;
  Forest small(1000, {.window = window});
  Forest large(leaves, {.window = window});
  require(small.whole() && large.whole(), "all leaves are there");
  std::vector<double> ns, base, ratios;
  for (std::size_t round = 0; round < kRounds; ++round) {
    if (large.spare() < kBatch) large.fill();
    ns.push_back(large.evict(kBatch));
    small.fill();
    base.push_back(small.evict(kBatch));
    ratios.push_back(ns.back() / base.back());
  }
  while (state.KeepRunningBatch(kBatch)) {
    if (large.spare() < kBatch) {
      state.PauseTiming();
      large.fill();
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(large.evict(kBatch));
  }
  report(state, {median(ns), median(base), median(ratios)});
  state.counters["mean_ns"] = std::accumulate(ns.begin(), ns.end(), 0.0) / kRounds;
}

const int registered = [] {
  for (const bool window : {false, true}) {
    for (const std::size_t leaves : {1'000, 100'000, 1'000'000}) {
      const std::string name =
          (window ? "EvictWindow/leaves:" : "EvictOne/leaves:") + std::to_string(leaves);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& s) { evict(s, leaves, window); });
    }
  }
  return 0;
}();

}  // namespace
}  // namespace pando::bench
