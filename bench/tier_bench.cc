// SPDX-License-Identifier: Apache-2.0
// What the host tier costs the thread of the cache: a poll when nothing has happened, the
// acknowledgement of finished backups, a whole backup, and eviction from the host. Copies take no
// time here (tier_tree.h). The limit of large trees is the same in a tree of a thousand leaves,
// measured in turns with it.
#include <string>

#include "limit.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "tier_tree.h"

namespace pando::bench {
namespace {

constexpr std::size_t kPage = 64;

void poll_idle(benchmark::State& state) {
  constexpr std::size_t kBatch = 10'000;
  TierTree tree(16 * kPage, kPage);
  const Sequences sequences(1, kPage, 0, 1);
  tree->insert(sequences[0]);
  require(tree.cache().poll().backups == 1, "the backup is acknowledged");
  const auto poll = [&](std::size_t = 0) { benchmark::DoNotOptimize(tree.cache().poll().idle); };
  std::vector<double> ns;
  for (std::size_t round = 0; round < 101; ++round) ns.push_back(time_each(kBatch, poll));
  for (auto _ : state) poll();
  state.counters["work_ns"] = median(ns);
}

// Each backup is of one node of one page.
void poll_completions(benchmark::State& state, std::size_t num_backups) {
  TierTree tree(num_backups * kPage, kPage);
  const Sequences sequences(num_backups, kPage, 0, 1);
  const auto start = [&] {
    for (std::size_t i = 0; i < num_backups; ++i) tree->insert(sequences[i]);
  };
  const auto poll = [&](std::size_t = 0) {
    require(tree.cache().poll().backups == num_backups, "every backup is acknowledged");
  };
  std::vector<double> ns;
  for (std::size_t round = 0; round < 101; ++round) {
    start();
    ns.push_back(time_each(1, poll) / static_cast<double>(num_backups));
    if (round == 0) require(tree.cache().check().ok(), "tree and pools agree");
    require(tree.cache().reset().ok(), "reset");
  }
  for (auto _ : state) {
    state.PauseTiming();
    require(tree.cache().reset().ok(), "reset");
    start();
    state.ResumeTiming();
    poll();
  }
  state.counters["ns_per_completion"] = median(ns);
}

// Leaves of one page below one page shared by groups of 50, all of them on both tiers, used in
// random order.
class Forest {
 public:
  explicit Forest(std::size_t leaves)
      : sequences_(leaves, 2 * kPage, kPage, 50), tree_((leaves + leaves / 50) * kPage, kPage) {
    fill();
  }
  void fill() {
    order_ = shuffled(sequences_.size(), ++seed_);
    for (const std::size_t i : order_) tree_->insert(sequences_[i]);
    require(tree_.cache().poll().idle, "every backup is acknowledged");
    oldest_ = 0;
  }
  std::size_t num_leaves() const { return sequences_.size(); }
  PrefixCache& cache() { return tree_.cache(); }

  /// Leaves the rest of the world to the host.
  void demote() { cache().evict(SIZE_MAX); }

  /// Removes the least recently used leaves, and takes slots to insert them again.
  void make_way(std::size_t n) {
    const std::size_t nodes = cache().inspect().num_nodes();
    cache().evict(n * kPage);
    cache().tiers().evict_host(n * kPage);
    require(cache().inspect().num_nodes() == nodes - n, "leaves have gone");
    slots_.assign(n, std::vector<SlotId>(2 * kPage));
    for (std::size_t i = 0; i < n; ++i) {
      require(cache().paths().match({oldest(i)}, slots_[i])->length == kPage,
              "what is shared stays");
      extend_slots(cache(), slots_[i], kPage);
    }
  }
  /// Inserts the i-th of those: that starts a backup.
  void insert_again(std::size_t i) {
    const auto inserted = cache().paths().insert({oldest(i)}, slots_[i], {.owned_by_tree = kPage});
    benchmark::DoNotOptimize(inserted->length);
  }
  void next_oldest() { oldest_ = (oldest_ + slots_.size()) % num_leaves(); }

 private:
  std::span<const Token> oldest(std::size_t i) const {
    return sequences_[order_[(oldest_ + i) % num_leaves()]];
  }

  Sequences sequences_;
  TierTree tree_;
  std::vector<std::size_t> order_;
  std::uint64_t seed_ = 0;
  std::size_t oldest_ = 0;  // in `order_`: where the leaves begin that were used longest ago
  std::vector<std::vector<SlotId>> slots_;
};

/// Batches in turns in a large tree and in a small one; `batch` times one and restores the tree.
template <typename Batch>
Measured in_turns(Forest& large, Forest& small, std::size_t rounds, Batch&& batch) {
  std::vector<double> ns, base, ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    ns.push_back(batch(large));
    base.push_back(batch(small));
    ratios.push_back(ns.back() / base.back());
  }
  return {median(ns), median(base), median(ratios)};
}

void evict_host(benchmark::State& state, std::size_t leaves) {
  constexpr std::size_t kBatch = 400;
  Forest small(1000);
  Forest large(leaves);
  const auto refill = [&](Forest& forest) {
    if (forest.cache().inspect().host_sizes().total >= (forest.num_leaves() / 2 + kBatch) * kPage)
      return;
    forest.fill();
    forest.demote();
  };
  const auto evict = [&](Forest& forest) {
    return time_each(kBatch, [&](std::size_t) {
      benchmark::DoNotOptimize(forest.cache().tiers().evict_host(kPage));
    });
  };
  for (Forest* forest : {&small, &large}) {
    forest->demote();
    require(forest->cache().inspect().host_sizes().evictable >= forest->num_leaves() * kPage,
            "all leaves are on the host only");
    require(forest->cache().tiers().evict_host(kPage) == kPage, "a victim is a leaf");
  }
  require(small.cache().check().ok(), "tree and pools agree");
  const Measured measured = in_turns(large, small, 100, [&](Forest& forest) {
    refill(forest);
    return evict(forest);
  });
  while (state.KeepRunningBatch(kBatch)) {
    state.PauseTiming();
    refill(large);
    state.ResumeTiming();
    evict(large);
  }
  report(state, measured);
}

// An insert of one new leaf, and the poll that acknowledges its backup.
void back_up(benchmark::State& state, std::size_t leaves) {
  constexpr std::size_t kBatch = 400;
  Forest small(1000);
  Forest large(leaves);
  const auto insert = [](Forest& forest, std::size_t i) {
    forest.insert_again(i);
    require(forest.cache().poll().backups == 1, "the backup is acknowledged");
  };
  const Measured measured = in_turns(large, small, 100, [&](Forest& forest) {
    forest.make_way(kBatch);
    const double ns = time_each(kBatch, [&](std::size_t i) { insert(forest, i); });
    forest.next_oldest();
    return ns;
  });
  require(small.cache().check().ok(), "tree and pools agree");
  while (state.KeepRunningBatch(kBatch)) {
    state.PauseTiming();
    large.make_way(kBatch);
    state.ResumeTiming();
    for (std::size_t i = 0; i < kBatch; ++i) insert(large, i);
    large.next_oldest();
  }
  report(state, measured);
}

const int registered = [] {
  benchmark::RegisterBenchmark("PollIdle", poll_idle);
  benchmark::RegisterBenchmark("PollCompletions/1000",
                               [](benchmark::State& s) { poll_completions(s, 1000); });
  for (const std::size_t nodes : {1'000, 1'000'000}) {
    const std::string suffix = "/nodes:" + std::to_string(nodes);
    benchmark::RegisterBenchmark(("HostEvict" + suffix).c_str(),
                                 [=](benchmark::State& s) { evict_host(s, nodes); });
    benchmark::RegisterBenchmark(("BackupBookkeeping" + suffix).c_str(),
                                 [=](benchmark::State& s) { back_up(s, nodes); });
  }
  return 0;
}();

}  // namespace
}  // namespace pando::bench
