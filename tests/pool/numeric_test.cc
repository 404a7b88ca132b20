// SPDX-License-Identifier: Apache-2.0
// Element conversions against a reference that shares nothing with them: every number of a format,
// computed in double from the definition of sign, exponent and mantissa, and the nearest found by
// searching that table. All 16-bit inputs are tried; floats at random and around every midpoint.
#include "pool/numeric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace pando::numeric {
namespace {

using Floats = std::vector<float>;
using Limits = std::numeric_limits<float>;

constexpr float kInf = Limits::infinity();
constexpr float kNan = Limits::quiet_NaN();

struct Layout {
  int exponent_bits = 0;
  int mantissa_bits = 0;
  int bias = 0;
  std::uint32_t largest = 0;  // code of the largest finite number
  bool has_infinity = false;
  bool saturates = false;
};

/// A format by its definition.
class Reference {
 public:
  explicit Reference(const Layout& layout) : layout_(layout) {
    // IEEE rounds as if exponents went on, and calls the first number too large infinity.
    const std::uint32_t last = layout.saturates ? layout.largest : layout.largest + 1;
    for (std::uint32_t code = 0; code <= last; ++code) numbers_.push_back(number(code));
  }

  std::uint32_t sign() const { return 1u << (layout_.exponent_bits + layout_.mantissa_bits); }
  std::uint32_t nan() const { return sign() - 1; }
  std::uint32_t num_codes() const { return 2 * sign(); }
  /// Those not negative, by code.
  const std::vector<double>& numbers() const { return numbers_; }

  float decode(std::uint32_t code) const {
    const std::uint32_t magnitude = code % sign();
    const bool is_infinity = layout_.has_infinity && magnitude == layout_.largest + 1;
    const double beyond = is_infinity ? kInf : kNan;
    const double value = magnitude <= layout_.largest ? number(magnitude) : beyond;
    return static_cast<float>(std::copysign(value, code < sign() ? 1.0 : -1.0));
  }

  std::uint32_t encode(float value) const {
    const std::uint32_t sign_bit = std::signbit(value) ? sign() : 0;
    return sign_bit | (std::isnan(value) ? nan() : nearest(std::abs(value)));
  }

 private:
  double number(std::uint32_t code) const {
    const int exponent = static_cast<int>(code >> layout_.mantissa_bits);
    const std::uint32_t mantissa = code % (1u << layout_.mantissa_bits);
    const double fraction = std::ldexp(mantissa, -layout_.mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - layout_.bias)
                         : std::ldexp(1 + fraction, exponent - layout_.bias);
  }

  std::uint32_t nearest(double value) const {
    const auto at_least = std::lower_bound(numbers_.begin(), numbers_.end(), value);
    const auto above = static_cast<std::uint32_t>(at_least - numbers_.begin());
    if (above == numbers_.size()) return above - 1;
    if (above == 0) return 0;
    const double up = numbers_[above] - value;
    const double down = value - numbers_[above - 1];
    if (up == down) return above % 2 == 0 ? above : above - 1;
    return up < down ? above : above - 1;
  }

  Layout layout_;
  std::vector<double> numbers_;
};

const Reference kE4m3({4, 3, 7, 0x7e, false, true});
const Reference kE5m2({5, 2, 15, 0x7b, true, true});
const Reference kFp16({5, 10, 15, 0x7bff, true, false});
const Reference kBf16({8, 7, 127, 0x7f7f, true, false});

/// Every value of a format, NaNs and infinities included.
Floats all_of(const Reference& format) {
  Floats values;
  for (std::uint32_t c = 0; c < format.num_codes(); ++c) values.push_back(format.decode(c));
  return values;
}

/// Where rounding to this format changes its mind, the floats next to there, the extremes, and
/// random patterns of bits, so that all exponents are equally frequent, denormals among them.
Floats floats_for(const Reference& format) {
  const std::vector<double>& numbers = format.numbers();
  std::vector<double> turns = numbers;
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const double half_gap = (numbers[i] - numbers[i - 1]) / 2;
    turns.insert(turns.end(), {numbers[i] - half_gap, numbers[i] + half_gap});
  }
  Floats values = {kNan, -kNan, kInf, -kInf, Limits::max(), -Limits::max()};
  for (const double turn : turns) {
    const float at = static_cast<float>(turn);
    for (const float value : {at, std::nextafter(at, 0.0f), std::nextafter(at, kInf)}) {
      values.insert(values.end(), {value, -value});
    }
  }
  std::mt19937 random(20240607);
  for (int i = 0; i < 1'000'000; ++i) {
    values.push_back(detail::float_of(static_cast<std::uint32_t>(random())));
  }
  return values;
}

template <typename Convert>
void expect_nearest_even(const Reference& format, Convert convert, const Floats& inputs) {
  for (const float input : inputs) {
    const std::uint32_t code = convert(input);
    ASSERT_EQ(code, format.encode(input)) << std::hexfloat << "of " << input;
  }
}

/// NaNs come back as the one NaN of their sign, and infinities as the largest where fp8 saturates.
template <typename Code>
void expect_round_trip(const Reference& format, Code (*to)(float), float (*from)(Code)) {
  for (std::uint32_t code = 0; code < format.num_codes(); ++code) {
    const float expected = format.decode(code);
    const float value = from(static_cast<Code>(code));
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << "code " << code;
    ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)))
        << "code " << code;
    ASSERT_EQ(to(value), std::isfinite(value) ? code : format.encode(expected));
  }
}

TEST(Numeric, E4m3OfEveryFp16IsNearestEven) { expect_nearest_even(kE4m3, to_e4m3, all_of(kFp16)); }
TEST(Numeric, E4m3OfEveryBf16IsNearestEven) { expect_nearest_even(kE4m3, to_e4m3, all_of(kBf16)); }
TEST(Numeric, E5m2OfEveryFp16IsNearestEven) { expect_nearest_even(kE5m2, to_e5m2, all_of(kFp16)); }
TEST(Numeric, E5m2OfEveryBf16IsNearestEven) { expect_nearest_even(kE5m2, to_e5m2, all_of(kBf16)); }
TEST(Numeric, E4m3OfFloatIsNearestEven) { expect_nearest_even(kE4m3, to_e4m3, floats_for(kE4m3)); }
TEST(Numeric, E5m2OfFloatIsNearestEven) { expect_nearest_even(kE5m2, to_e5m2, floats_for(kE5m2)); }
TEST(Numeric, Fp16OfFloatIsNearestEven) { expect_nearest_even(kFp16, to_fp16, floats_for(kFp16)); }
TEST(Numeric, Bf16OfFloatIsNearestEven) { expect_nearest_even(kBf16, to_bf16, floats_for(kBf16)); }

TEST(Numeric, EveryCodeSurvivesTheWayThroughFloat) {
  expect_round_trip(kE4m3, to_e4m3, from_e4m3);
  expect_round_trip(kE5m2, to_e5m2, from_e5m2);
  expect_round_trip(kFp16, to_fp16, from_fp16);
  expect_round_trip(kBf16, to_bf16, from_bf16);
}

TEST(Numeric, Fp8SaturatesAndSixteenBitsOverflowToInfinity) {
  EXPECT_EQ(to_e4m3(464.1f), 0x7e);
  EXPECT_EQ(to_e4m3(-kInf), 0xfe);
  EXPECT_EQ(to_e5m2(-70000.0f), 0xfb);
  EXPECT_EQ(to_e5m2(kInf), 0x7b);
  EXPECT_EQ(to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(to_bf16(-Limits::max()), 0xff80);
}

TEST(Numeric, NanAndZeroKeepTheirSigns) {
  EXPECT_EQ(to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(to_e5m2(-0.0f), 0x80);
  EXPECT_EQ(to_e4m3(-kNan), 0xff);
  EXPECT_EQ(to_e5m2(kNan), 0x7f);
  EXPECT_EQ(to_fp16(-kNan), 0xffff);
  EXPECT_EQ(to_bf16(detail::float_of(0x7f80'0001)), 0x7fff);  // signalling
}

#ifdef __FLT16_MANT_DIG__
TEST(Numeric, Fp16IsWhatTheCompilerMakesOfIt) {
  for (const float input : floats_for(kFp16)) {
    if (std::isnan(input)) continue;  // payloads may differ
    const _Float16 expected = static_cast<_Float16>(input);
    std::uint16_t code = 0;
    __builtin_memcpy(&code, &expected, sizeof(code));
    ASSERT_EQ(to_fp16(input), code) << std::hexfloat << "of " << input;
    ASSERT_EQ(from_fp16(code), static_cast<float>(expected));
  }
}
#endif

TEST(Numeric, Int8IsNearestEvenAndSaturates) {
  for (int eighths = -1100; eighths <= 1100; ++eighths) {
    const float at = static_cast<float>(eighths) / 8;
    for (const float value : {at, std::nextafter(at, -kInf), std::nextafter(at, kInf)}) {
      const float expected = std::clamp(std::nearbyint(value), -128.0f, 127.0f);
      ASSERT_EQ(static_cast<float>(to_int8(value)), expected) << std::hexfloat << "of " << value;
    }
  }
  EXPECT_EQ(to_int8(0.5f), 0);
  EXPECT_EQ(to_int8(1.5f), 2);
  EXPECT_EQ(to_int8(2.5f), 2);
  EXPECT_EQ(to_int8(-0.5f), 0);
  EXPECT_EQ(to_int8(127.5f), 127);
  EXPECT_EQ(to_int8(-128.5f), -128);
  EXPECT_EQ(to_int8(Limits::max()), 127);
  EXPECT_EQ(to_int8(-kInf), -128);
  EXPECT_EQ(to_int8(kNan), 0);
  EXPECT_EQ(to_int8(-kNan), 0);
}

}  // namespace
}  // namespace pando::numeric
