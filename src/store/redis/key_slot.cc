// SPDX-License-Identifier: Apache-2.0
// CRC16 by a table of 256 entries, made by the compiler from the polynomial.
#include "store/redis/key_slot.h"

#include <array>

namespace pando::redis {
namespace {

constexpr unsigned kPolynomial = 0x1021;

constexpr std::array<std::uint16_t, 256> make_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    unsigned crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) ? (crc << 1) ^ kPolynomial : crc << 1;
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}
constexpr std::array<std::uint16_t, 256> kTable = make_table();

}  // namespace

std::uint16_t crc16(std::string_view bytes) {
  unsigned crc = 0;
  for (const char c : bytes)
    crc = ((crc << 8) & 0xffff) ^ kTable[(crc >> 8) ^ static_cast<unsigned char>(c)];
  return static_cast<std::uint16_t>(crc);
}

std::uint16_t key_slot(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1)
      key = key.substr(open + 1, close - open - 1);
  }
  return crc16(key) % kNumSlots;
}

}  // namespace pando::redis
