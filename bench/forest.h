// SPDX-License-Identifier: Apache-2.0
// A tree with many leaves to evict one by one. They are used in random order first, so that victims
// are scattered in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tree.h"

namespace pando::bench {

inline constexpr std::size_t kForestPage = 64;

// Leaves of one page below one page shared by groups of 50. With a window there is a page of their
// own in between, so that of two victims one becomes a tombstone, and one is a leaf that takes it
// along.
class Forest {
 public:
  Forest(std::size_t leaves, bool window)
      : window_(window),
        num_pages_(window ? 3 : 2),
        sequences_(leaves, num_pages_ * kForestPage, kForestPage, 50),
        tree_(leaves * num_pages_ * kForestPage, kForestPage,
              {.window = window ? std::optional(kForestPage) : std::nullopt}) {
    fill();
  }

  /// Evicts up to `n` times one by one; ns each.
  double evict(std::size_t n) {
    const EvictGoal goal =
        window_ ? EvictGoal{.window_tokens = kForestPage} : EvictGoal{.tokens = kForestPage};
    const double ns = time_each(n, [&](std::size_t) { keep(tree_.cache->evict(goal).tokens); });
    gone_ += n;
    return ns;
  }
  /// How many may go before the tree is half of what it was.
  std::size_t spare() const { return sequences_.size() * (num_pages_ - 1) / 2 - gone_; }
  void fill() {
    for (const std::size_t i : shuffled(sequences_.size(), ++seed_)) {
      if (window_) tree_.insert(sequences_[i].first(2 * kForestPage));
      tree_.insert(sequences_[i]);
    }
    gone_ = 0;
  }
  bool whole() const {
    return tree_.cache->sizes().total >= sequences_.size() * (num_pages_ - 1) * kForestPage;
  }

 private:
  const bool window_;
  const std::size_t num_pages_;
  Sequences sequences_;
  Tree tree_;
  std::uint64_t seed_ = 0;
  std::size_t gone_ = 0;
};

}  // namespace pando::bench
