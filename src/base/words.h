// SPDX-License-Identifier: Apache-2.0
// Words of eight bytes at any address, in the byte order of the machine.
#pragma once

#include <cstdint>
#include <cstring>

namespace pando {

inline std::uint64_t load_word(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline void store_word(std::uint8_t* at, std::uint64_t word) {
  std::memcpy(at, &word, sizeof word);
}

}  // namespace pando
