// SPDX-License-Identifier: Apache-2.0
// What the readers of all stores share.
#include "store/store_reader.h"

#include "base/check.h"

namespace pando {

std::string_view to_string(OddEntry::Kind kind) {
  switch (kind) {
    case OddEntry::Kind::damaged:
      return "damaged";
    case OddEntry::Kind::foreign:
      return "foreign";
    case OddEntry::Kind::unreadable:
      return "unreadable";
  }
  return "unknown";
}

Status check_tag(std::string_view key, std::span<std::byte> bytes, const PageTag& tag) {
  if (tag.size_bytes != bytes.size())
    return make_error(ErrorCode::corrupt, "the page has {} bytes, its header says {}", bytes.size(),
                      tag.size_bytes);
  const PageTag found = make_page_tag({std::string(key), {bytes}});
  if (found == tag) return {};
  return make_error(ErrorCode::corrupt,
                    "the checksum of the page is {:016x}{:016x}, expected {:016x}{:016x}",
                    found.checksum_high, found.checksum_low, tag.checksum_high, tag.checksum_low);
}

}  // namespace pando
