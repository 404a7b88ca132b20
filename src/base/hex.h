// SPDX-License-Identifier: Apache-2.0
// Lower-case hexadecimal digits, as in the text of a page hash. Values only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pando {

inline std::optional<std::uint8_t> hex_byte(char high, char low) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::size_t h = kDigits.find(high);
  const std::size_t l = kDigits.find(low);
  if (h == kDigits.npos || l == kDigits.npos) return std::nullopt;
  return static_cast<std::uint8_t>(h << 4 | l);
}

inline constexpr std::size_t kHashDigits = 64;

/// Of the hash whose text the given text begins with.
inline std::optional<std::array<std::uint8_t, 32>> leading_hash(std::string_view text) {
  if (text.size() < kHashDigits) return std::nullopt;
  std::array<std::uint8_t, 32> hash;
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const std::optional<std::uint8_t> byte = hex_byte(text[2 * i], text[2 * i + 1]);
    if (!byte) return std::nullopt;
    hash[i] = *byte;
  }
  return hash;
}

inline void append_hex(std::string& text, std::uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  text += kDigits[byte >> 4];
  text += kDigits[byte & 15];
}

}  // namespace pando
