// SPDX-License-Identifier: Apache-2.0
// The prefix of a page's value, byte by byte, so that it is the same on every machine.
#include "store/redis/page_value.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace pando::redis {
namespace {

constexpr std::array<std::byte, 4> kMagic = {std::byte{'P'}, std::byte{'N'}, std::byte{'D'},
                                             std::byte{'O'}};
constexpr std::uint64_t kVersion = 1;

void put_little(std::span<std::byte> out, std::uint64_t value) {
  for (std::byte& byte : out) {
    byte = static_cast<std::byte>(value & 0xff);
    value >>= 8;
  }
}

std::uint64_t get_little(std::span<const std::byte> in) {
  std::uint64_t value = 0;
  for (std::size_t i = in.size(); i-- > 0;) value = value << 8 | std::to_integer<unsigned>(in[i]);
  return value;
}

}  // namespace

Prefix encode_prefix(const PageTag& tag) {
  Prefix prefix;
  const std::span<std::byte> out(prefix);
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  put_little(out.subspan(4, 4), kVersion);
  put_little(out.subspan(8, 8), tag.size_bytes);
  put_little(out.subspan(16, 8), tag.checksum_low);
  put_little(out.subspan(24, 8), tag.checksum_high);
  return prefix;
}

std::optional<PageTag> decode_prefix(const Prefix& prefix) {
  const std::span<const std::byte> in(prefix);
  if (!std::equal(kMagic.begin(), kMagic.end(), in.begin())) return std::nullopt;
  if (get_little(in.subspan(4, 4)) != kVersion) return std::nullopt;
  return PageTag{get_little(in.subspan(8, 8)), get_little(in.subspan(16, 8)),
                 get_little(in.subspan(24, 8))};
}

}  // namespace pando::redis
