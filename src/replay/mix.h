// SPDX-License-Identifier: Apache-2.0
// Mixes numbers into numbers, for ids of blocks. The same on every machine; not for secrets.
#pragma once

#include <cstdint>

namespace pando {

/// A bijection that changes half of all bits when one changes.
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93;
  return z ^ (z >> 32);
}

constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return mix(mix(a) + b * 0x9e3779b97f4a7c15);
}

}  // namespace pando
