// SPDX-License-Identifier: Apache-2.0
// A histogram of durations (or any non-negative integers) in fixed memory: 15 KiB, whatever is
// recorded. The replayer keeps one per operation. It belongs to one thread.
//
// Each power of two is cut into 32 equal buckets; values below 32 have one each. Error:
// percentile() is never below the true value and less than 1/32 (3.2 %) above it; count, mean and
// max are exact.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pando {

class Histogram {
 public:
  void record(std::uint64_t value) {
    ++buckets_[bucket_of(value)];
    ++count_;
    sum_ += value;
    max_ = std::max(max_, value);
  }

  std::uint64_t count() const { return count_; }
  std::uint64_t sum() const { return sum_; }  ///< wraps at 2^64
  std::uint64_t max() const { return max_; }  ///< 0 when empty
  double mean() const {
    return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }

  /// The smallest value that at least `percent` of all recorded ones do not exceed, rounded up as
  /// said above; 0 when empty. `percent` in (0, 100].
  std::uint64_t percentile(double percent) const {
    const double exact_rank = percent / 100.0 * static_cast<double>(count_);
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < kNumBuckets; ++bucket) {
      seen += buckets_[bucket];
      if (seen != 0 && static_cast<double>(seen) >= exact_rank)
        return std::min(last_of(bucket), max_);
    }
    return max_;
  }

  /// Calls fn(largest value, count) from small to large, with `per_doubling` (a power of two up to
  /// 32) buckets for each power of two; empty ones are left out.
  template <typename Fn>
  void for_each_bucket(Fn&& fn, std::size_t per_doubling = kSubBuckets) const {
    const std::size_t joined = kSubBuckets / per_doubling;
    for (std::size_t first = 0; first < kNumBuckets; first += joined) {
      std::uint64_t count = 0;
      for (std::size_t i = first; i < first + joined; ++i) count += buckets_[i];
      if (count > 0) fn(last_of(first + joined - 1), count);
    }
  }

 private:
  static constexpr std::size_t kSubBits = 5;
  static constexpr std::uint64_t kSubBuckets = 1 << kSubBits;
  // Values below kSubBuckets, then one group of kSubBuckets for each leading bit above.
  static constexpr std::size_t kNumBuckets = (64 - kSubBits + 1) * kSubBuckets;

  static std::size_t bucket_of(std::uint64_t value) {
    if (value < kSubBuckets) return value;
    const auto shift = static_cast<std::size_t>(std::bit_width(value)) - (kSubBits + 1);
    return shift * kSubBuckets + (value >> shift);
  }

  /// The largest value that falls into this bucket.
  static std::uint64_t last_of(std::size_t bucket) {
    if (bucket < 2 * kSubBuckets) return bucket;
    const std::size_t shift = bucket / kSubBuckets - 1;
    const std::uint64_t lead = bucket % kSubBuckets + kSubBuckets;
    return ((lead + 1) << shift) - 1;  // wraps to the largest integer for the last bucket
  }

  std::array<std::uint64_t, kNumBuckets> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace pando
