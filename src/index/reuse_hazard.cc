// SPDX-License-Identifier: Apache-2.0
// Following lifetimes, and making the table from their sums. The constants come from a search over
// traces, where none of them mattered much: hit ratios stay within about half a point. So they do
// with a kernel of sum 1, or when a hit counts the whole of its bucket as waiting time.
#include "index/reuse_hazard.h"

#include "base/check.h"

namespace pando {
namespace {

constexpr double kDecay = 0.97806347345;  // 2^(-32/1000): half of it in 1000 requests

// A neighbour i buckets away counts exp(-i^2 / (2 * 1.5^2)), up to four sigma; the bucket itself 1,
// so the prior weighs as much as 10 requests in that bucket alone.
constexpr std::array<double, 7> kKernel = {1,           0.8007374029, 0.4111122905, 0.1353352832,
                                           0.028565501, 0.0038659201, 0.0003354626};

constexpr double kPriorHazard = 0.02;
constexpr double kPriorExposure = 10;
constexpr double kPriorExpected = 3;
constexpr double kMaxBaseHazard = 0.9;
constexpr double kMaxHazard = 0.95;

constexpr std::size_t kBuckets = ReuseHazard::kBuckets;

/// Sums of a bucket and its neighbours, by nearness.
double smoothed(const std::array<double, kBuckets>& sums, std::size_t bucket) {
  double total = kKernel[0] * sums[bucket];
  for (std::size_t i = 1; i < kKernel.size(); ++i) {
    if (bucket >= i) total += kKernel[i] * sums[bucket - i];
    if (bucket + i < kBuckets) total += kKernel[i] * sums[bucket + i];
  }
  return total;
}

/// The time that a block spends in a bucket which it passes: in the last one as if another
/// followed, in the first as if it began at 11. So it rises from bucket to bucket, and equal
/// hazards make lru.
constexpr double time_in(std::size_t bucket) {
  const std::uint64_t begin = bucket == 0 ? 11 : ReuseHazard::age_of(bucket);
  return static_cast<double>(ReuseHazard::age_of(bucket + 1) - begin);
}

/// Waiting through some buckets in a row, for a block that reaches the first of them.
struct Wait {
  double hit;   // the chance of a hit meanwhile
  double time;  // that is expected to pass until the hit or the end
  double ratio() const { return hit / time; }
  Wait then(const Wait& next) const {
    return {hit + (1 - hit) * next.hit, time + (1 - hit) * next.time};
  }
};

}  // namespace

ReuseHazard::ReuseHazard(std::size_t max_lifetimes) : max_lifetimes_(max_lifetimes) {
  PANDO_CHECK(std::has_single_bit(max_lifetimes), "{} lifetimes, not a power of two",
              max_lifetimes);
  learn();
}

ReuseHazard::Class ReuseHazard::class_of(std::size_t new_blocks, std::uint32_t hits, bool is_last) {
  const std::size_t new_bin = new_blocks < 2 ? 0 : new_blocks < 7 ? 1 : new_blocks < 22 ? 2 : 3;
  const auto hit_bin = std::min(static_cast<std::size_t>(std::bit_width(hits)), kHitBins - 1);
  return static_cast<Class>((new_bin * kHitBins + hit_bin) * 2 + (is_last ? 1 : 0));
}

void ReuseHazard::begin_request(std::size_t num_blocks) {
  now_ += num_blocks;
  request_weight_ = num_blocks == 0 ? 0 : 1 / static_cast<double>(num_blocks);
  pass_buckets();
  if (++num_requests_ % kRequestsPerTable != 0) return;
  decay();
  learn();
}

void ReuseHazard::pass_buckets() {
  for (std::size_t bucket = 0; bucket < passed_.size(); ++bucket) {
    std::uint64_t& at = passed_[bucket];
    at = std::max(at, oldest());
    double passed = 0;
    for (; at < next_; ++at) {
      const Lifetime& passing = lifetime(at);
      if (now_ - passing.start < age_of(bucket + 1)) break;
      passed += passing.weight;
      learned_.expected[passing.cls] += passing.weight * learned_.hazard[bucket];
    }
    learned_.exposures[bucket] += passed;
  }
}

void ReuseHazard::track(std::uint64_t id, std::size_t depth, Class cls) {
  if (const auto at = live_.find(id)) end(ring_[*at]);
  const double inverse_chance =
      std::max(1.0, static_cast<double>(depth + 1) / static_cast<double>(kSampledDepth));
  start({id, now_, static_cast<float>(request_weight_ * inverse_chance), cls});
}

/// With a hit.
void ReuseHazard::end(Lifetime& ending) {
  const std::size_t bucket = bucket_of(now_ - ending.start);
  learned_.hits[bucket] += ending.weight;
  learned_.exposures[bucket] += ending.weight;
  learned_.observed[ending.cls] += ending.weight;
  learned_.expected[ending.cls] += ending.weight * learned_.hazard[bucket];
  ending.weight = 0;
}

/// In the place of the oldest, which is followed no longer.
void ReuseHazard::start(const Lifetime& starting) {
  const auto at = static_cast<std::uint32_t>(next_ & (max_lifetimes_ - 1));
  if (ring_.size() < max_lifetimes_) {
    ring_.push_back(starting);
  } else {
    if (live_.find(ring_[at].id) == at) live_.erase(ring_[at].id);
    ring_[at] = starting;
  }
  live_.set(starting.id, at);
  ++next_;
}

void ReuseHazard::decay() {
  for (auto* sums : {&learned_.hits, &learned_.exposures}) {
    for (double& sum : *sums) sum *= kDecay;
  }
  for (auto* sums : {&learned_.observed, &learned_.expected}) {
    for (double& sum : *sums) sum *= kDecay;
  }
}

void ReuseHazard::learn() {
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const double hits = smoothed(learned_.hits, bucket) + kPriorHazard * kPriorExposure;
    const double exposures = smoothed(learned_.exposures, bucket) + kPriorExposure;
    learned_.hazard[bucket] = std::min(kMaxBaseHazard, hits / exposures);
  }
  for (std::size_t cls = 0; cls < kClasses; ++cls) {
    learned_.factor[cls] =
        (learned_.observed[cls] + kPriorExpected) / (learned_.expected[cls] + kPriorExpected);
  }
  make_table();
}

/// The index of a bucket is the best ratio of hits to time over all ages to give up at (the Gittins
/// index): waiting on is worth it as long as what follows has a better ratio than what was so far.
/// From the last bucket to the first, `waits` has the best waits that follow one another, ratios
/// falling from its end to its beginning; each is joined to others at most once.
void ReuseHazard::make_table() {
  std::array<Wait, kBuckets> waits;
  for (std::size_t cls = 0; cls < kClasses; ++cls) {
    std::size_t num_waits = 0;
    for (std::size_t bucket = kBuckets; bucket-- > 0;) {
      const double hit = std::min(kMaxHazard, learned_.factor[cls] * learned_.hazard[bucket]);
      Wait wait{hit, time_in(bucket) * (1 - hit / 2)};  // a hit comes in the middle
      while (num_waits > 0 && waits[num_waits - 1].ratio() > wait.ratio()) {
        wait = wait.then(waits[--num_waits]);
      }
      waits[num_waits++] = wait;
      table_[cls][bucket] = static_cast<float>(wait.ratio());
    }
  }
}

std::size_t ReuseHazard::memory_bytes() const {
  return sizeof *this + ring_.capacity() * sizeof(Lifetime) + live_.memory_bytes();
}

}  // namespace pando
