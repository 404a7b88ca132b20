// SPDX-License-Identifier: Apache-2.0
// Keys in 36 bytes. A key of a KeySpace is 64 hexadecimal digits and a tail that all keys of the
// space share: the digits are kept as 32 bytes and the tail as a number (key_tails.h). Any other
// key is all tail. Values only.
#pragma once

#include <array>
#include <cstdint>

namespace pando {

struct PackedKey {
  std::array<std::uint8_t, 32> head = {};  // zero where there is none
  std::uint32_t tail = 0;                  // of a KeyTails

  friend bool operator==(const PackedKey&, const PackedKey&) = default;
};

}  // namespace pando
