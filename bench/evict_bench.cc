// SPDX-License-Identifier: Apache-2.0
// Eviction of one leaf, its slots returned, from trees of a thousand to a million leaves. Leaves
// are used in random order first, so that victims are scattered in memory. The limit of the larger
// trees is the smallest tree, measured in turns with them.
#include "limit.h"
#include "tree.h"

namespace pando::bench {
namespace {

constexpr std::size_t kPage = 64;

// Leaves of one page below one page shared by groups of 50.
class Forest {
 public:
  explicit Forest(std::size_t leaves)
      : sequences_(leaves, 2 * kPage, kPage, 50), tree_(leaves * 2 * kPage, kPage) {
    fill();
  }

  /// Evicts up to `n` leaves one by one; ns each.
  double evict(std::size_t n) {
    const double ns = time_each(
        n, [&](std::size_t) { benchmark::DoNotOptimize(tree_.cache->evict(kPage).tokens); });
    gone_ += n;
    return ns;
  }
  /// How many may go before the tree is half of what it was.
  std::size_t spare() const { return sequences_.size() / 2 - gone_; }
  void fill() {
    for (const std::size_t i : shuffled(sequences_.size(), ++seed_)) tree_.insert(sequences_[i]);
    gone_ = 0;
  }
  bool whole() const { return tree_.cache->sizes().total >= sequences_.size() * kPage; }

 private:
  Sequences sequences_;
  Tree tree_;
  std::uint64_t seed_ = 0;
  std::size_t gone_ = 0;
};

void evict_one(benchmark::State& state, std::size_t leaves) {
  constexpr std::size_t kBatch = 400;
  constexpr std::size_t kRounds = 100;
  Forest small(1000);
  Forest large(leaves);
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
  for (const std::size_t leaves : {1'000, 100'000, 1'000'000}) {
    const std::string name = "EvictOne/leaves:" + std::to_string(leaves);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [leaves](benchmark::State& s) { evict_one(s, leaves); });
  }
  return 0;
}();

}  // namespace
}  // namespace pando::bench
