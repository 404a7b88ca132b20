// SPDX-License-Identifier: Apache-2.0
// The format of one page's file: a header block with the key and the tag, then the bytes of the
// page, padded with zeros to whole blocks so that all of it can go past the page cache. The padding
// stays: cutting it off after a direct write waits for the write to end, half a millisecond a
// page. docs/formats.md. Values only; whoever reads or writes files comes here first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pando/result.h"
#include "pando/store.h"

namespace pando {

/// Files consist of these, and so does the memory that is aligned for them.
inline constexpr std::size_t kBlockBytes = 4096;
using Block = std::span<std::byte, kBlockBytes>;
using ConstBlock = std::span<const std::byte, kBlockBytes>;

constexpr std::uint64_t whole_blocks(std::uint64_t size_bytes) {
  return (size_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}
/// Of the file of a page of so many bytes.
constexpr std::uint64_t file_bytes(std::uint64_t page_bytes) {
  return kBlockBytes + whole_blocks(page_bytes);
}

/// More is no page: what a header says takes memory, and must not wrap with header and padding.
inline constexpr std::uint64_t kMaxPageBytes = std::uint64_t{1} << 34;

struct PageHeader {
  std::string key;
  PageTag tag;
};

/// The key must be a valid one.
void encode(std::string_view key, const PageTag& tag, Block block);
/// corrupt, with what is wrong, unless every byte of the block is as encode() wrote it.
/// unavailable: it is whole, and of a version that this one does not know.
Result<PageHeader> decode(ConstBlock block);

/// Keys are names of files, so not every text can be one.
Status check_key(std::string_view key);
/// Which of the 256 directories a key's file is in: its first two characters where these are
/// lower-case hexadecimal digits, as in every key of a KeySpace, else a byte of its hash.
std::uint8_t directory_of(std::string_view key);

}  // namespace pando
