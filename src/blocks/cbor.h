// SPDX-License-Identifier: Apache-2.0
// Writes canonical CBOR (RFC 8949, 4.2), as much of it as block hashes need: integers, byte and
// text strings, arrays, null. Every head has its shortest form. The buffer is reused from message
// to message; a caller makes room before it writes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/memory.h"
#include "blocks/cbor_tokens.h"
#include "pando/types.h"

namespace pando {

class CborWriter {
 public:
  void clear() { at_ = bytes_.get(); }
  /// Room for so many bytes more.
  void reserve(std::size_t size_bytes) {
    const std::size_t used = size();
    if (used + size_bytes + kSlack <= capacity_) return;
    capacity_ = 2 * (used + size_bytes + kSlack);
    Table<std::uint8_t> more = make_table<std::uint8_t>(capacity_);
    if (used > 0) std::memcpy(more.get(), bytes_.get(), used);
    bytes_ = std::move(more);
    at_ = bytes_.get() + used;
  }

  void null() { *at_++ = 0xf6; }
  void array(std::size_t n) { head(0x80, n); }
  void integer(std::int64_t value) {
    value < 0 ? head(0x20, ~static_cast<std::uint64_t>(value))
              : head(0x00, static_cast<std::uint64_t>(value));
  }
  template <std::size_t N>
  void bytes(std::span<const std::uint8_t, N> value) {
    head(0x40, value.size());
    raw(value.data(), value.size());
  }
  void text(std::string_view value) {
    head(0x60, value.size());
    raw(value.data(), value.size());
  }
  /// An array of tokens, none negative. At most 5 bytes each and 9 for the head.
  void tokens(std::span<const Token> values) {
    array(values.size());
    at_ = write_cbor_tokens(values.data(), values.size(), at_);
  }
  /// Bytes that are no CBOR.
  void raw(const void* data, std::size_t size_bytes) {
    std::memcpy(at_, data, size_bytes);
    at_ += size_bytes;
  }

  const std::uint8_t* data() const { return bytes_.get(); }
  std::uint8_t* data() { return bytes_.get(); }
  std::size_t size() const { return static_cast<std::size_t>(at_ - bytes_.get()); }

 private:
  static constexpr std::size_t kSlack = kCborTokenRoom;
  static_assert(std::endian::native == std::endian::little);

  static constexpr std::size_t follow_bytes(std::uint64_t value) {
    if (value < 24) return 0;
    if (value < 0x100) return 1;
    if (value < 0x10000) return 2;
    return value < 0x100000000 ? 4 : 8;
  }

  void head(std::uint8_t major, std::uint64_t value) {
    const std::size_t n = follow_bytes(value);
    const auto low = static_cast<std::uint8_t>(n == 0 ? value : 23 + std::bit_width(n));
    *at_++ = static_cast<std::uint8_t>(major | low);
    for (std::size_t i = n; i > 0; --i) *at_++ = static_cast<std::uint8_t>(value >> (8 * (i - 1)));
  }

  Table<std::uint8_t> bytes_;  // on a cache line: hashes read what was just written in pieces
  std::size_t capacity_ = 0;
  std::uint8_t* at_ = nullptr;
};

}  // namespace pando
