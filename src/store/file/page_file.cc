// SPDX-License-Identifier: Apache-2.0
// Headers to bytes and back. Numbers are little-endian, as is every machine this is built for.
#include "store/file/page_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hex.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "PandoPag";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMaxKeyBytes = 255;  // what file systems take as a name

/// The first bytes of a file; the rest of the block is zero.
struct Layout {
  char magic[8];
  std::uint32_t version;
  std::uint32_t key_bytes;
  std::uint64_t page_bytes;
  std::uint64_t checksum_low;
  std::uint64_t checksum_high;
  std::uint64_t header_checksum;  // XXH3 of the block with 0 here
  char key[kMaxKeyBytes + 1];
};
static_assert(sizeof(Layout) == 304 && sizeof(Layout) <= kBlockBytes);

std::uint64_t checksum_of(ConstBlock block) { return XXH3_64bits(block.data(), block.size()); }

}  // namespace

void encode(std::string_view key, const PageTag& tag, Block block) {
  PANDO_CHECK(check_key(key).ok(), "a header for a key of {} bytes that is no name", key.size());
  Layout layout{};
  kMagic.copy(layout.magic, sizeof layout.magic);
  layout.version = kVersion;
  layout.key_bytes = static_cast<std::uint32_t>(key.size());
  layout.page_bytes = tag.size_bytes;
  layout.checksum_low = tag.checksum_low;
  layout.checksum_high = tag.checksum_high;
  key.copy(layout.key, kMaxKeyBytes);
  std::fill(block.begin(), block.end(), std::byte{0});
  std::memcpy(block.data(), &layout, sizeof layout);
  layout.header_checksum = checksum_of(block);
  std::memcpy(block.data(), &layout, sizeof layout);
}

Result<PageHeader> decode(ConstBlock block) {
  Layout layout;
  std::memcpy(&layout, block.data(), sizeof layout);
  if (std::string_view(layout.magic, sizeof layout.magic) != kMagic)
    return make_error(ErrorCode::corrupt, "it does not begin with \"{}\"", kMagic);
  const std::uint64_t written = layout.header_checksum;
  layout.header_checksum = 0;
  alignas(8) std::byte copy[kBlockBytes];
  std::copy(block.begin(), block.end(), copy);
  std::memcpy(copy, &layout, sizeof layout);
  if (const std::uint64_t found = checksum_of(ConstBlock(copy)); found != written)
    return make_error(ErrorCode::corrupt, "the checksum of its header is {:016x}, expected {:016x}",
                      found, written);
  if (layout.version != kVersion)
    return make_error(ErrorCode::unavailable, "it has version {}, expected {}", layout.version,
                      kVersion);
  if (layout.key_bytes > kMaxKeyBytes)
    return make_error(ErrorCode::corrupt, "its key has {} bytes, expected at most {}",
                      layout.key_bytes, kMaxKeyBytes);
  if (layout.page_bytes > kMaxPageBytes)
    return make_error(ErrorCode::corrupt, "its page has {} bytes, expected at most {}",
                      layout.page_bytes, kMaxPageBytes);
  return PageHeader{std::string(layout.key, layout.key_bytes),
                    {layout.page_bytes, layout.checksum_low, layout.checksum_high}};
}

Status check_key(std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes)
    return make_error(ErrorCode::invalid_argument,
                      "the key has {} bytes; a name of a file has 1 to {}", key.size(),
                      kMaxKeyBytes);
  if (key.front() == '.')
    return make_error(ErrorCode::invalid_argument,
                      "the key begins with '.', which names of pages' files do not");
  if (const auto at = key.find_first_of(std::string_view("/\0", 2)); at != key.npos)
    return make_error(ErrorCode::invalid_argument,
                      "the key has a byte {:#04x} at {}, which no name of a file can have",
                      static_cast<unsigned>(key[at]), at);
  return {};
}

std::uint8_t directory_of(std::string_view key) {
  if (key.size() >= 2)
    if (const auto byte = hex_byte(key[0], key[1])) return *byte;
  return static_cast<std::uint8_t>(XXH3_64bits(key.data(), key.size()));
}

}  // namespace pando
