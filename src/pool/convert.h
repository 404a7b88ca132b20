// SPDX-License-Identifier: Apache-2.0
// Elements of one type into another, with a scale, on CPU and GPU by the same code: stored is
// value / scale in fp32, rounded by numeric.h. Equal types without a scale are copied as bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pando/pools.h"
#include "pool/numeric.h"

namespace pando {

/// Whether rows of type `from` can be written to a plane of type `to` with this scale.
inline bool can_convert(DType from, DType to, float scale) {
  if (from == to && scale == 1.0F) return true;
  return from == DType::fp16 || from == DType::bf16 || from == DType::fp32;
}

namespace numeric {

PANDO_HD inline float load_element(const void* from, DType dtype, std::size_t i) {
  switch (dtype) {
    case DType::fp16:
      return from_fp16(static_cast<const std::uint16_t*>(from)[i]);
    case DType::bf16:
      return from_bf16(static_cast<const std::uint16_t*>(from)[i]);
    case DType::fp32:
      return static_cast<const float*>(from)[i];
    default:
      return 0;  // can_convert() keeps the others out
  }
}

/// value / scale. NaN keeps its sign and nothing else, because GPUs and CPUs divide it differently.
PANDO_HD inline float scaled(float value, float scale) {
  const std::uint32_t bits = detail::bits_of(value);
  if ((bits & ~detail::kFloatSign) > detail::kFloatInfinity)
    return detail::float_of((bits & detail::kFloatSign) | detail::kFloatNan);
  return value / scale;
}

PANDO_HD inline void store_element(void* to, DType dtype, std::size_t i, float value) {
  switch (dtype) {
    case DType::fp16:
      static_cast<std::uint16_t*>(to)[i] = to_fp16(value);
      return;
    case DType::bf16:
      static_cast<std::uint16_t*>(to)[i] = to_bf16(value);
      return;
    case DType::fp32:
      static_cast<float*>(to)[i] = value;
      return;
    case DType::fp8_e4m3:
      static_cast<std::uint8_t*>(to)[i] = to_e4m3(value);
      return;
    case DType::fp8_e5m2:
      static_cast<std::uint8_t*>(to)[i] = to_e5m2(value);
      return;
    case DType::int8:
      static_cast<std::int8_t*>(to)[i] = to_int8(value);
      return;
  }
}

}  // namespace numeric

/// `n` elements; see can_convert().
void convert(const void* from, DType from_type, void* to, DType to_type, std::size_t n,
             float scale);

}  // namespace pando
