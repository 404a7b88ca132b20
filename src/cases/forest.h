// SPDX-License-Identifier: Apache-2.0
// A tree with many leaves to evict one by one. They are used in random order first, so that victims
// are scattered in memory. Retained, it has everything that keeps things longer: tenants with
// floors and caps, sessions, pins, priorities that end some time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/tree.h"
#include "pando/inspect.h"

namespace pando::bench {

inline constexpr std::size_t kForestPage = 64;

// Leaves of one page below one page shared by groups of 50. With a window there is a page of their
// own in between, so that of two victims one becomes a tombstone, and one is a leaf that takes it
// along.
class Forest {
 public:
  struct Options {
    bool window = false;
    bool retained = false;
    std::string_view policy = "lru";
  };
  Forest(std::size_t leaves, const Options& options)
      : window_(options.window),
        num_pages_(options.window ? 3 : 2),
        sequences_(leaves, num_pages_ * kForestPage, kForestPage, kGroup),
        tree_(leaves * num_pages_ * kForestPage, kForestPage,
              cache_options(options, leaves * num_pages_ * kForestPage), options.policy) {
    if (options.retained) {
      for (std::size_t i = 0; i < kTenants; ++i)
        namespaces_.push_back(make_namespace({.tenant = tenant(i)}));
      for (std::size_t i = 0; i < 8; ++i)
        sessions_.push_back(*tree_.cache->retention().open_session());
    }
    fill();
    for (std::size_t i = 0; options.retained && i < 8; ++i)
      require(
          tree_.cache->retention().pin(key(i * leaves / 8), {.ttl = std::chrono::hours(1)}).ok(),
          "pin");
  }

  /// Evicts up to `n` times one by one; ns each.
  double evict(std::size_t n) {
    EvictGoal goal =
        window_ ? EvictGoal{.window_tokens = kForestPage} : EvictGoal{.tokens = kForestPage};
    if (!namespaces_.empty()) goal.ns = namespaces_[0];
    const double ns = time_each(n, [&](std::size_t) { keep(tree_.cache->evict(goal).tokens); });
    gone_ += n;
    return ns;
  }
  /// How many may go before the tree is half of what it was.
  std::size_t spare() const { return sequences_.size() * (num_pages_ - 1) / 2 - gone_; }
  void fill() {
    for (const std::size_t i : shuffled(sequences_.size(), ++seed_)) {
      if (window_) tree_.insert(sequences_[i].first(2 * kForestPage));
      tree_.insert(key(i), options_of(i));
    }
    gone_ = 0;
  }
  bool whole() const {
    return tree_.cache->inspect().sizes().total >=
           sequences_.size() * (num_pages_ - 1) * kForestPage;
  }

 private:
  static constexpr std::size_t kGroup = 50;
  static constexpr std::size_t kTenants = 8;
  static std::string tenant(std::size_t i) { return "tenant " + std::to_string(i); }

  static CacheOptions cache_options(const Options& options, std::size_t capacity_tokens) {
    CacheOptions o{.window = options.window ? std::optional(kForestPage) : std::nullopt};
    for (std::size_t i = 0; options.retained && i < kTenants; ++i)
      o.retention.tenants.push_back({.name = tenant(i),
                                     .device_floor = capacity_tokens / (4 * kTenants),
                                     .device_cap = capacity_tokens / 2});
    return o;
  }
  Key key(std::size_t i) const {
    if (namespaces_.empty()) return {sequences_[i]};
    return {sequences_[i], namespaces_[i / kGroup % kTenants]};
  }
  InsertOptions options_of(std::size_t i) const {
    static const RetentionRange kept{
        .to = kForestPage, .priority = 2, .duration = std::chrono::hours(1)};
    if (namespaces_.empty()) return {};
    InsertOptions options;
    if (i % 4 == 0) options.retention = {&kept, 1};
    if (i % 500 == 1) options.session = sessions_[i / 500 % sessions_.size()];
    return options;
  }

  const bool window_;
  const std::size_t num_pages_;
  Sequences sequences_;
  Tree tree_;
  std::vector<std::string> namespaces_;  // a tenant's each, if retained
  std::vector<SessionId> sessions_;
  std::uint64_t seed_ = 0;
  std::size_t gone_ = 0;
};

}  // namespace pando::bench
