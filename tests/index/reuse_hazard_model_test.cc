// SPDX-License-Identifier: Apache-2.0
// ReuseHazard against the dumbest implementation: a list of all lifetimes that ever were, each
// looked at for each bucket at each request, and every stopping age tried for every index. A case
// is a list of phases, each with many requests over some blocks; shrinking drops phases.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <vector>

#include "base/random.h"
#include "index/reuse_hazard.h"

namespace pando {
namespace {

constexpr std::size_t kBuckets = ReuseHazard::kBuckets;
constexpr std::size_t kClasses = ReuseHazard::kClasses;

class Model {
 public:
  explicit Model(std::size_t max_lifetimes) : max_lifetimes_(max_lifetimes) { learn(); }

  void begin_request(std::size_t num_blocks) {
    const double before = now_;
    now_ += static_cast<double>(num_blocks);
    num_blocks_ = static_cast<double>(num_blocks);
    for (const Lifetime& lifetime : lifetimes_) {
      if (!lifetime.live) continue;
      for (std::size_t b = 0; b + 1 < kBuckets; ++b) {
        const double end = lifetime.start + first_age(b + 1);
        if (before < end && end <= now_) expose(lifetime, b);
      }
    }
    if (++num_requests_ % 32 != 0) return;
    for (auto* sums : {&hits, &exposures}) {
      for (double& sum : *sums) sum *= std::exp2(-32.0 / 1000);
    }
    for (auto* sums : {&observed, &expected}) {
      for (double& sum : *sums) sum *= std::exp2(-32.0 / 1000);
    }
    learn();
  }

  void access(std::uint64_t id, std::size_t depth, std::size_t cls) {
    const double chance = std::min(1.0, 4.0 / static_cast<double>(depth + 1));
    if (static_cast<double>(id >> 32) >= chance * std::exp2(32)) return;
    for (Lifetime& lifetime : lifetimes_) {
      if (!lifetime.live || lifetime.id != id) continue;
      const std::size_t bucket = bucket_of(now_ - lifetime.start);
      expose(lifetime, bucket);
      hits[bucket] += lifetime.weight;
      observed[lifetime.cls] += lifetime.weight;
      lifetime.live = false;
    }
    lifetimes_.push_back({id, now_, 1 / (num_blocks_ * chance), cls, true});
    if (lifetimes_.size() > max_lifetimes_) {
      lifetimes_[lifetimes_.size() - 1 - max_lifetimes_].live = false;
    }
  }

  /// The best ratio of hits to time over all buckets to give up behind.
  double index(std::size_t cls, std::size_t bucket) const {
    double best = 0;
    double alive = 1;
    double time = 0;
    for (std::size_t b = bucket; b < kBuckets; ++b) {
      const double hit = std::min(0.95, factor[cls] * hazard[b]);
      const double width = first_age(b + 1) - (b == 0 ? 11 : first_age(b));
      time += alive * ((1 - hit) * width + hit * width / 2);
      alive *= 1 - hit;
      best = std::max(best, (1 - alive) / time);
    }
    return best;
  }

  std::array<double, kBuckets> hits{}, exposures{}, hazard{};
  std::array<double, kClasses> observed{}, expected{}, factor{};

 private:
  struct Lifetime {
    std::uint64_t id;
    double start;
    double weight;
    std::size_t cls;
    bool live;
  };

  static double first_age(std::size_t bucket) {
    if (bucket == 0) return 0;
    return std::ceil(16 * std::pow(2, static_cast<double>(bucket - 1) / 2) - 1e-6);
  }
  static std::size_t bucket_of(double age) {
    std::size_t bucket = 0;
    while (bucket + 1 < kBuckets && age >= first_age(bucket + 1)) ++bucket;
    return bucket;
  }

  void expose(const Lifetime& lifetime, std::size_t bucket) {
    exposures[bucket] += lifetime.weight;
    expected[lifetime.cls] += lifetime.weight * hazard[bucket];
  }

  void learn() {
    for (std::size_t b = 0; b < kBuckets; ++b) {
      double near_hits = 10 * 0.02;
      double near_exposures = 10;
      for (std::size_t other = 0; other < kBuckets; ++other) {
        const double distance = static_cast<double>(b) - static_cast<double>(other);
        if (std::abs(distance) > 4 * 1.5) continue;
        const double nearness = std::exp(-distance * distance / (2 * 1.5 * 1.5));
        near_hits += nearness * hits[other];
        near_exposures += nearness * exposures[other];
      }
      hazard[b] = std::min(0.9, near_hits / near_exposures);
    }
    for (std::size_t c = 0; c < kClasses; ++c) factor[c] = (observed[c] + 3) / (expected[c] + 3);
  }

  std::size_t max_lifetimes_;
  std::vector<Lifetime> lifetimes_;
  double now_ = 0;
  double num_blocks_ = 0;
  int num_requests_ = 0;
};

struct Phase {
  std::uint32_t num_requests = 0;
  std::uint32_t max_blocks = 1;    // of a request
  std::uint32_t num_prefixes = 1;  // requests begin like one of so many
  std::uint32_t pause = 0;         // blocks of other requests in between
  std::uint32_t seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Phase& phase) {
  return out << "{" << phase.num_requests << ", " << phase.max_blocks << ", " << phase.num_prefixes
             << ", " << phase.pause << ", " << phase.seed << "}";
}

class Pair {
 public:
  explicit Pair(std::size_t max_lifetimes) : hazard_(max_lifetimes), model_(max_lifetimes) {}

  void run(const Phase& phase) {
    Random random(phase.seed);
    for (std::uint32_t i = 0; i < phase.num_requests; ++i) {
      if (phase.pause > 0) begin(random.below(phase.pause));
      const std::size_t num_blocks = 1 + random.below(phase.max_blocks);
      const std::uint64_t prefix = random.below(phase.num_prefixes);
      begin(num_blocks);
      for (std::size_t depth = 0; depth < num_blocks; ++depth) {
        const std::uint64_t id = Random(prefix, depth).next();
        const auto cls = static_cast<ReuseHazard::Class>(random.below(kClasses));
        hazard_.access(id, depth, cls);
        model_.access(id, depth, cls);
      }
    }
    compare();
  }

 private:
  void begin(std::size_t num_blocks) {
    hazard_.begin_request(num_blocks);
    model_.begin_request(num_blocks);
  }

  static void near(double a, double b) {
    RC_ASSERT(std::abs(a - b) <= 1e-5 * std::max({1e-3, std::abs(a), std::abs(b)}));
  }

  void compare() const {
    const ReuseHazard::Learned& learned = hazard_.learned();
    for (std::size_t b = 0; b < kBuckets; ++b) {
      near(learned.hits[b], model_.hits[b]);
      near(learned.exposures[b], model_.exposures[b]);
      near(learned.hazard[b], model_.hazard[b]);
    }
    for (std::size_t c = 0; c < kClasses; ++c) {
      near(learned.observed[c], model_.observed[c]);
      near(learned.expected[c], model_.expected[c]);
      near(learned.factor[c], model_.factor[c]);
      for (std::size_t b = 0; b < kBuckets; ++b) {
        const double index = hazard_.index_at(static_cast<ReuseHazard::Class>(c), b);
        RC_ASSERT(std::abs(index / model_.index(c, b) - 1) <= 1e-4);
      }
    }
  }

  ReuseHazard hazard_;
  Model model_;
};

rc::Gen<std::vector<Phase>> any_phases() {
  const auto below = [](std::uint32_t first, std::uint32_t end) {
    return rc::gen::inRange<std::uint32_t>(first, end);
  };
  const auto phase = rc::gen::build<Phase>(
      rc::gen::set(&Phase::num_requests, below(0, 100)),
      rc::gen::set(&Phase::max_blocks, rc::gen::element<std::uint32_t>(1, 5, 40)),
      rc::gen::set(&Phase::num_prefixes, rc::gen::element<std::uint32_t>(1, 4, 30, 1000)),
      rc::gen::set(&Phase::pause, rc::gen::element<std::uint32_t>(0, 0, 100, 1000000)),
      rc::gen::set(&Phase::seed, below(0, 1000)));
  return rc::gen::scale(
      0.08, rc::gen::container<std::vector<Phase>>(rc::gen::resize(rc::kNominalSize, phase)));
}

RC_GTEST_PROP(ReuseHazardModel, AgreesWithAListOfAllLifetimes, ()) {
  const auto phases = *any_phases();
  const auto max_lifetimes = *rc::gen::element<std::size_t>(1, 16, 256, 65536);
  Pair pair(max_lifetimes);
  for (const Phase& phase : phases) pair.run(phase);
}

}  // namespace
}  // namespace pando
