// SPDX-License-Identifier: Apache-2.0
// Conversions of single elements between float and the types a pool may hold. pool/ calls them when
// rows are written, on the CPU and, compiled by nvcc, on the GPU. Scales are the caller's: divide
// first, then convert.
//
// Invariant: a float becomes the same bits everywhere. Narrowing is integer arithmetic alone and
// widening is exact, so neither rounding modes nor flushed denormals nor fused operations make a
// difference between devices. All functions are pure and accept every bit pattern.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PANDO_HD __host__ __device__
#else
#define PANDO_HD
#endif

namespace pando::numeric {

namespace detail {

constexpr std::uint32_t kFloatMantissaBits = 23;
constexpr std::uint32_t kFloatBias = 127;
constexpr std::uint32_t kFloatSign = 0x8000'0000;
constexpr std::uint32_t kFloatInfinity = 0x7f80'0000;
constexpr std::uint32_t kFloatNan = 0x7fff'ffff;

// std::bit_cast is not for device code.
PANDO_HD inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

PANDO_HD inline float float_of(std::uint32_t bits) {
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

PANDO_HD inline std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
PANDO_HD inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }

/// A number without its sign: significand * 2^(exponent - bias - mantissa bits of its format).
/// Subnormals are written with the exponent of the smallest normal number, 1, as they are meant;
/// thus code = ((exponent - 1) << mantissa bits) + significand for both kinds.
struct Unpacked {
  std::uint32_t exponent;
  std::uint32_t significand;
};

PANDO_HD inline Unpacked unpack(std::uint32_t magnitude, std::uint32_t mantissa_bits) {
  const std::uint32_t exponent = larger(magnitude >> mantissa_bits, 1);
  return {exponent, magnitude - ((exponent - 1) << mantissa_bits)};
}

/// significand / 2^drop to nearest even, for a float's significand and drop > 0. The significand is
/// below 2^24, so that a drop of 25 leaves less than half, and so does any larger one.
PANDO_HD inline std::uint32_t round_off(std::uint32_t significand, std::uint32_t drop) {
  drop = smaller(drop, kFloatMantissaBits + 2);
  const std::uint32_t just_below_half = (1u << (drop - 1)) - 1;
  const std::uint32_t is_odd = (significand >> drop) & 1;
  return (significand + just_below_half + is_odd) >> drop;
}

/// A binary format of sign, exponent and mantissa, narrower than float. Codes up to `largest` are
/// finite numbers in ascending order. A number beyond becomes `largest` if the format saturates,
/// else the next code, which is infinity. NaN is written with every bit below the sign set.
template <std::uint32_t exponent_bits, std::uint32_t mantissa_bits, std::uint32_t largest,
          bool saturates>
struct SmallFloat {
  static constexpr std::uint32_t kSignShift = exponent_bits + mantissa_bits;
  static constexpr std::uint32_t kMagnitude = (1u << kSignShift) - 1;
  static constexpr std::uint32_t kInfinity = kMagnitude - ((1u << mantissa_bits) - 1);
  static constexpr std::uint32_t kBeyond = saturates ? largest : kInfinity;
  /// What is added to an exponent of ours to say the same in a float.
  static constexpr std::uint32_t kRebias = kFloatBias - ((1u << (exponent_bits - 1)) - 1);

  PANDO_HD static std::uint32_t encode(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & ~kFloatSign;
    const Unpacked from = unpack(magnitude, kFloatMantissaBits);

    // What is too small for our exponents takes the smallest and loses that many bits more. A
    // significand that rounds up to the next power of two carries into the exponent by itself.
    const std::uint32_t exponent = larger(from.exponent, kRebias + 1);
    const std::uint32_t drop = kFloatMantissaBits - mantissa_bits + (exponent - from.exponent);
    const std::uint32_t significand = round_off(from.significand, drop);
    const std::uint32_t rounded = ((exponent - kRebias - 1) << mantissa_bits) + significand;

    const std::uint32_t number = rounded <= largest ? rounded : kBeyond;
    const std::uint32_t sign = (bits >> 31) << kSignShift;
    return sign | (magnitude <= kFloatInfinity ? number : kMagnitude);
  }

  PANDO_HD static float decode(std::uint32_t code) {
    static_assert(kRebias >= mantissa_bits);  // so that `unit` is a normal float
    const std::uint32_t magnitude = code & kMagnitude;
    const Unpacked from = unpack(magnitude, mantissa_bits);

    // The product is exact; it is infinite or NaN where the unit is. A choice of units, unlike one
    // of results, leaves no branch: loops over fp16 vectorise (5 times as fast with AVX2).
    const std::uint32_t scale = (from.exponent + kRebias - mantissa_bits) << kFloatMantissaBits;
    const std::uint32_t beyond = magnitude == kInfinity ? kFloatInfinity : kFloatNan;
    const float unit = float_of(magnitude <= largest ? scale : beyond);
    const float number = static_cast<float>(static_cast<std::int32_t>(from.significand)) * unit;

    const std::uint32_t sign = (code >> kSignShift) << 31;
    return float_of(sign | bits_of(number));
  }
};

using Fp16 = SmallFloat<5, 10, 0x7bff, false>;
using Bf16 = SmallFloat<8, 7, 0x7f7f, false>;
using E4m3 = SmallFloat<4, 3, 0x7e, true>;  // no infinity: its place and those after are numbers
using E5m2 = SmallFloat<5, 2, 0x7b, true>;

}  // namespace detail

/// Exact. NaN stays NaN and keeps its sign, here and below.
PANDO_HD inline float from_fp16(std::uint16_t code) { return detail::Fp16::decode(code); }
PANDO_HD inline float from_bf16(std::uint16_t code) {
  return detail::float_of(std::uint32_t{code} << 16);
}
/// Exact. OCP FP8; E4M3 is the variant without infinities ("fn").
PANDO_HD inline float from_e4m3(std::uint8_t code) { return detail::E4m3::decode(code); }
PANDO_HD inline float from_e5m2(std::uint8_t code) { return detail::E5m2::decode(code); }

/// To nearest even; to infinity beyond the largest finite number, as IEEE 754 has it.
PANDO_HD inline std::uint16_t to_fp16(float value) {
  return static_cast<std::uint16_t>(detail::Fp16::encode(value));
}
PANDO_HD inline std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>(detail::Bf16::encode(value));
}

/// To nearest even; beyond +-448 and +-57344, infinities included, to these.
PANDO_HD inline std::uint8_t to_e4m3(float value) {
  return static_cast<std::uint8_t>(detail::E4m3::encode(value));
}
PANDO_HD inline std::uint8_t to_e5m2(float value) {
  return static_cast<std::uint8_t>(detail::E5m2::encode(value));
}

/// To nearest even within [-128, 127]; NaN to 0.
PANDO_HD inline std::int8_t to_int8(float value) {
  constexpr std::uint32_t kExponentOf128 = detail::kFloatBias + 7;
  constexpr std::uint32_t kExponentOfUnit = detail::kFloatBias + detail::kFloatMantissaBits;
  const std::uint32_t bits = detail::bits_of(value);
  const std::uint32_t magnitude = bits & ~detail::kFloatSign;
  if (magnitude > detail::kFloatInfinity) return 0;

  const detail::Unpacked from = detail::unpack(magnitude, detail::kFloatMantissaBits);
  const std::uint32_t rounded =
      from.exponent < kExponentOf128
          ? detail::round_off(from.significand, kExponentOfUnit - from.exponent)
          : 128;
  const bool is_negative = bits != magnitude;
  const int number = static_cast<int>(is_negative ? rounded : detail::smaller(rounded, 127));
  return static_cast<std::int8_t>(is_negative ? -number : number);
}

}  // namespace pando::numeric
