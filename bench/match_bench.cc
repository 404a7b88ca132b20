// SPDX-License-Identifier: Apache-2.0
// Match beside its limit: comparing the tokens (memcmp) and copying int64 slots into the caller's
// buffer (memcpy). Hot, with and without a window, cold (a tree of 256 MiB of tokens visited at
// random), and short prompts in a wide tree. The limit visits copies of the same data in another
// random order.
#include <algorithm>
#include <optional>

#include "cases/match_visit.h"
#include "cases/tree.h"
#include "limit.h"
#include "pando/paths.h"

namespace pando::bench {
namespace {

constexpr std::size_t kPage = 64;

void run(benchmark::State& state, const Sequences& sequences, std::size_t rounds,
         std::size_t batch) {
  const std::size_t length = sequences[0].size();
  Tree tree(sequences.size() * length, kPage);
  for (std::size_t i = 0; i < sequences.size(); ++i) tree.insert(sequences[i]);
  Visit visit(sequences);
  const auto order = shuffled(sequences.size(), 1);
  const auto limit_order = shuffled(sequences.size(), 2);
  for (const std::size_t i : order)
    require(tree.cache->paths().match({sequences[i]}, visit.out)->length == length,
            "whole key matches");

  std::size_t w = 0;
  std::size_t l = 0;
  const auto work = [&](std::size_t) {
    const std::size_t i = order[w++ % order.size()];
    benchmark::DoNotOptimize(tree.cache->paths().match({sequences[i]}, visit.out)->length);
    benchmark::ClobberMemory();
  };
  const Measured measured = measure(
      rounds, batch, work, [&](std::size_t) { visit.limit(limit_order[l++ % limit_order.size()]); },
      [] {});
  for (auto _ : state) work(0);
  report(state, measured);
}

// Four edges: three other prompts branch off at 2048, 4096 and 6144 tokens. With a window, that of
// the first two edges is gone, and the other two are just as long as it must be.
void match_hot(benchmark::State& state, std::optional<std::size_t> window) {
  const Sequences sequences(1, 8192, 0, 1);
  Tree tree(64 * 1024, kPage, {.window = window});
  const auto released = [&](std::size_t branch) { return window ? std::min(branch, *window) : 0; };
  tree.insert(sequences[0], released(4096));
  for (const std::size_t at : {2048, 4096, 6144}) {
    std::vector<Token> other(sequences[0].begin(),
                             sequences[0].begin() + static_cast<std::ptrdiff_t>(at));
    other.resize(at + kPage, 1);
    tree.insert(other, released(at));
  }
  if (window)
    require(tree.cache->paths().probe({sequences[0].first(4096)}) == 0,
            "the first half has no window");
  Visit visit(sequences);
  require(tree.cache->paths().match({sequences[0]}, visit.out)->length == 8192,
          "whole key matches");
  const auto work = [&](std::size_t) {
    benchmark::DoNotOptimize(tree.cache->paths().match({sequences[0]}, visit.out)->length);
    benchmark::ClobberMemory();
  };
  const Measured measured = measure(
      501, 200, work, [&](std::size_t) { visit.limit(0); }, [] {});
  for (auto _ : state) work(0);
  report(state, measured);
}

void match(benchmark::State& state) { match_hot(state, {}); }
void match_window(benchmark::State& state) { match_hot(state, 4096); }

void match_cold(benchmark::State& state) { run(state, Sequences(8192, 8192, 1024, 16), 101, 80); }

void match_short(benchmark::State& state) {
  run(state, Sequences(100'000, 640, 128, 100), 101, 1000);
}

const int registered = [] {
  benchmark::RegisterBenchmark("Match/tokens:8192/page:64", match);
  benchmark::RegisterBenchmark("MatchWindow/tokens:8192/page:64", match_window);
  benchmark::RegisterBenchmark("MatchCold/tokens:8192/page:64", match_cold);
  benchmark::RegisterBenchmark("MatchShort/tokens:640/leaves:100000", match_short);
  return 0;
}();

}  // namespace
}  // namespace pando::bench
