// SPDX-License-Identifier: Apache-2.0
// What retention costs: match and eviction with tenants, sessions, pins and priorities that end
// some time, beside the same tree without any. And what a policy that learns costs beside lru. Both
// trees are measured in turns.
#include <string>

#include "cases/forest.h"
#include "cases/match_visit.h"
#include "limit.h"
#include "pando/paths.h"

namespace pando::bench {
namespace {

constexpr std::size_t kPage = 64;

// Median nanoseconds of both, and of their ratios.
Measured evict_in_turns(Forest& forest, Forest& plain) {
  constexpr std::size_t kBatch = 400;
  constexpr std::size_t kRounds = 100;
  std::vector<double> ns, plain_ns, ratios;
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (Forest* one : {&forest, &plain}) {
      if (one->spare() < kBatch) one->fill();
    }
    ns.push_back(forest.evict(kBatch));
    plain_ns.push_back(plain.evict(kBatch));
    ratios.push_back(ns.back() / plain_ns.back());
  }
  return {median(ns), median(plain_ns), median(ratios)};
}

void evict(benchmark::State& state, std::size_t leaves, const Forest::Options& options,
           const char* counter) {
  Forest plain(leaves, {});
  Forest forest(leaves, options);
  require(plain.whole() && forest.whole(), "all leaves are there");
  const Measured measured = evict_in_turns(forest, plain);
  while (state.KeepRunningBatch(100)) {
    if (forest.spare() < 100) {
      state.PauseTiming();
      forest.fill();
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(forest.evict(100));
  }
  state.counters[counter] = measured.ratio;
  state.counters["work_ns"] = measured.work_ns;
  state.counters["plain_ns"] = measured.limit_ns;
}

/// A prompt of 8192 tokens in four edges, in a namespace.
class Prompt {
 public:
  Prompt(bool retained, std::string_view policy)
      : tree_(64 * 1024, kPage, options(retained), policy), slots_(8192) {
    if (retained) {
      ns_ = make_namespace({.tenant = "tenant"});
      session_ = *tree_.cache->retention().open_session();
    }
    const RetentionRange kept{.to = 4096, .priority = 2, .duration = std::chrono::hours(1)};
    InsertOptions first;
    if (retained) first = {.retention = {&kept, 1}, .session = session_};
    tree_.insert({sequences_[0], ns_}, first);
    for (const std::size_t at : {2048, 4096, 6144}) {
      std::vector<Token> other(sequences_[0].begin(),
                               sequences_[0].begin() + static_cast<std::ptrdiff_t>(at));
      other.resize(at + kPage, 1);
      tree_.insert({other, ns_}, {});
    }
    if (retained)
      require(tree_.cache->retention().pin({sequences_[0].first(2048), ns_}).ok(), "pin");
    require(match() == 8192, "whole key matches");
  }

  std::size_t match() { return tree_.cache->paths().match({sequences_[0], ns_}, slots_)->length; }

 private:
  static CacheOptions options(bool retained) {
    CacheOptions o;
    if (retained) o.retention.tenants = {{.name = "tenant", .device_floor = 8192}};
    return o;
  }

  const Sequences sequences_{1, 8192, 0, 1};
  Tree tree_;
  std::string ns_;
  SessionId session_;
  std::vector<SlotId> slots_;
};

void match(benchmark::State& state, std::string_view policy) {
  Prompt plain(false, "lru");
  Prompt retained(true, policy);
  const auto work = [](Prompt& prompt) {
    benchmark::DoNotOptimize(prompt.match());
    benchmark::ClobberMemory();
  };
  const Measured measured = measure(
      501, 200, [&](std::size_t) { work(retained); }, [&](std::size_t) { work(plain); }, [] {});
  for (auto _ : state) work(retained);
  state.counters["of_plain"] = measured.ratio;
  state.counters["work_ns"] = measured.work_ns;
  state.counters["plain_ns"] = measured.limit_ns;
}

const int registered = [] {
  for (const std::string policy : {"lru", "hazard"}) {
    benchmark::RegisterBenchmark(("MatchRetention/tokens:8192/policy:" + policy).c_str(),
                                 [=](benchmark::State& s) { match(s, policy); });
  }
  for (const std::size_t leaves : {1'000, 100'000, 1'000'000}) {
    const std::string size = "/leaves:" + std::to_string(leaves);
    benchmark::RegisterBenchmark(("EvictRetention" + size).c_str(), [=](benchmark::State& s) {
      evict(s, leaves, {.retained = true}, "of_plain");
    });
    benchmark::RegisterBenchmark(("EvictHazard" + size).c_str(), [=](benchmark::State& s) {
      evict(s, leaves, {.policy = "hazard"}, "of_lru");
    });
  }
  return 0;
}();

}  // namespace
}  // namespace pando::bench
