// SPDX-License-Identifier: Apache-2.0
// Eviction of one leaf, or of the window of one node, its slots returned, from trees of a thousand
// to a million leaves. Leaves are used in random order first, so that victims are scattered in
// memory. The limit of the larger trees is the smallest tree, measured in turns with them.
#include <optional>
#include <string>

#include "limit.h"
#include "tree.h"

namespace pando::bench {
namespace {

constexpr std::size_t kPage = 64;

// Leaves of one page below one page shared by groups of 50. With a window there is a page of their
// own in between, so that of two victims one becomes a tombstone, and one is a leaf that takes it
// along.
class Forest {
 public:
  Forest(std::size_t leaves, bool window)
      : window_(window),
        num_pages_(window ? 3 : 2),
        sequences_(leaves, num_pages_ * kPage, kPage, 50),
        tree_(leaves * num_pages_ * kPage, kPage,
              {.window = window ? std::optional(kPage) : std::nullopt}) {
    fill();
  }

  /// Evicts up to `n` times one by one; ns each.
  double evict(std::size_t n) {
    const EvictGoal goal = window_ ? EvictGoal{.window_tokens = kPage} : EvictGoal{.tokens = kPage};
    const double ns = time_each(
        n, [&](std::size_t) { benchmark::DoNotOptimize(tree_.cache->evict(goal).tokens); });
    gone_ += n;
    return ns;
  }
  /// How many may go before the tree is half of what it was.
  std::size_t spare() const { return sequences_.size() * (num_pages_ - 1) / 2 - gone_; }
  void fill() {
    for (const std::size_t i : shuffled(sequences_.size(), ++seed_)) {
      if (window_) tree_.insert(sequences_[i].first(2 * kPage));
      tree_.insert(sequences_[i]);
    }
    gone_ = 0;
  }
  bool whole() const {
    return tree_.cache->sizes().total >= sequences_.size() * (num_pages_ - 1) * kPage;
  }

 private:
  const bool window_;
  const std::size_t num_pages_;
  Sequences sequences_;
  Tree tree_;
  std::uint64_t seed_ = 0;
  std::size_t gone_ = 0;
};

void evict(benchmark::State& state, std::size_t leaves, bool window) {
  constexpr std::size_t kBatch = 400;
  constexpr std::size_t kRounds = 100;
  Forest small(1000, window);
  Forest large(leaves, window);
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
