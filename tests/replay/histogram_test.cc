// SPDX-License-Identifier: Apache-2.0
// Histogram against the truth, a sorted vector: never below it, and less than 1/32 above.
#include "base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"

namespace pando {
namespace {

constexpr double kPercents[] = {0.1, 1, 10, 25, 50, 75, 90, 99, 99.9, 100};

std::uint64_t true_percentile(const std::vector<std::uint64_t>& sorted, double percent) {
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(rank) - 1];
}

void expect_close(std::vector<std::uint64_t> values) {
  Histogram histogram;
  for (const std::uint64_t value : values) histogram.record(value);
  std::sort(values.begin(), values.end());
  for (const double percent : kPercents) {
    const std::uint64_t exact = true_percentile(values, percent);
    const std::uint64_t reported = histogram.percentile(percent);
    EXPECT_GE(reported, exact) << "p" << percent;
    EXPECT_LE(reported - exact, exact / 32) << "p" << percent << " of exact " << exact;
  }
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.percentile(100), values.back());
  EXPECT_EQ(histogram.count(), values.size());
}

TEST(Histogram, EmptyReportsZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.mean(), 0.0);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.percentile(50), 0u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (std::uint64_t value = 0; value < 64; ++value) histogram.record(value);
  for (std::uint64_t value = 0; value < 64; ++value)
    EXPECT_EQ(histogram.percentile(static_cast<double>(value + 1) / 64 * 100), value);
}

TEST(Histogram, MeanIsExact) {
  Histogram histogram;
  for (const std::uint64_t value : {1'000'003u, 5u, 70'001u}) histogram.record(value);
  EXPECT_EQ(histogram.sum(), 1'070'009u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 1'070'009.0 / 3);
}

TEST(Histogram, OneValueIsItsOwnPercentiles) {
  expect_close({0});
  expect_close({123'456'789});
  expect_close({std::numeric_limits<std::uint64_t>::max()});
}

TEST(Histogram, BucketEdgesStayWithinTheError) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    expect_close({power - 1, power, power + 1, power + power / 2});
  }
}

TEST(Histogram, PercentilesMatchASortedVector) {
  Random random(7);
  for (const int spread_bits : {4, 10, 20, 40, 63}) {
    std::vector<std::uint64_t> values;
    for (int i = 0; i < 5'000; ++i) values.push_back(random.next() >> (64 - spread_bits));
    expect_close(values);  // uniform: nearly all in the top octave
    for (std::uint64_t& value : values) value >>= random.below(64);
    expect_close(values);  // spread over all magnitudes
  }
}

}  // namespace
}  // namespace pando
