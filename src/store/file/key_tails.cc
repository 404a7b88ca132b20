// SPDX-License-Identifier: Apache-2.0
// Keys to 36 bytes and back.
#include "store/file/key_tails.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/hex.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

constexpr std::uint32_t kMaxTailBytes = 255;

struct SplitKey {
  PackedKey key;
  bool has_head = false;
  std::string_view tail;
  std::uint32_t hash = 0;
};

SplitKey split(std::string_view key) {
  SplitKey parts;
  const auto head = leading_hash(key);
  if (head) parts.key.head = *head;
  parts.has_head = head.has_value();
  parts.tail = key.substr(head ? kHashDigits : 0);
  parts.hash = static_cast<std::uint32_t>(
      XXH3_64bits_withSeed(parts.tail.data(), parts.tail.size(), parts.has_head ? 1 : 0));
  return parts;
}

}  // namespace

std::optional<PackedKey> KeyTails::find(std::string_view key) {
  SplitKey parts = split(key);
  parts.key.tail = table_.find(parts.hash, [&](const Unit& unit) {
    const TailUnit& tail = unit.tail;
    return tail.kind == UnitKind::tail && tail.hash == parts.hash &&
           tail.has_head == (parts.has_head ? 1u : 0u) && has_text(tail, parts.tail);
  });
  if (parts.key.tail == kNoUnit) return std::nullopt;
  return parts.key;
}

PackedKey KeyTails::hold(std::string_view key) {
  if (const auto found = find(key)) {
    std::uint32_t& num_keys = mapping_.unit(found->tail).tail.num_keys;
    mapping_.set(num_keys, num_keys + 1);
    return *found;
  }
  SplitKey parts = split(key);
  const UnitId text = write_text(parts.tail);
  parts.key.tail = table_.take(UnitKind::tail);
  TailUnit& tail = mapping_.unit(parts.key.tail).tail;
  tail.num_keys = 1;
  tail.hash = parts.hash;
  tail.has_head = parts.has_head ? 1 : 0;
  tail.length_bytes = static_cast<std::uint32_t>(parts.tail.size());
  tail.text = text;
  table_.add(parts.key.tail);
  return parts.key;
}

void KeyTails::release(const PackedKey& key) {
  TailUnit& tail = mapping_.unit(key.tail).tail;
  if (tail.kind != UnitKind::tail || tail.num_keys == 0) return mapping_.set_broken();
  if (tail.num_keys > 1) return mapping_.set(tail.num_keys, tail.num_keys - 1);
  table_.remove(key.tail);
  UnitId text = tail.text;
  for (std::size_t steps = 0; text != kNoUnit && steps <= kMaxTailBytes; ++steps) {
    const UnitId next = mapping_.unit(text).text.next;
    table_.give_back(text);
    text = next;
  }
  table_.give_back(key.tail);
}

std::optional<std::string> KeyTails::text(const PackedKey& key) {
  const TailUnit& tail = mapping_.unit(key.tail).tail;
  std::string text;
  if (tail.has_head != 0)
    for (const std::uint8_t byte : key.head) append_hex(text, byte);
  std::uint32_t left = tail.length_bytes;
  UnitId at = tail.text;
  bool is_good = tail.kind == UnitKind::tail && left <= kMaxTailBytes;
  while (is_good && left > 0) {
    const TextUnit& unit = mapping_.unit(at).text;
    const std::uint32_t n = std::min<std::uint32_t>(left, kTextBytes);
    is_good = unit.kind == UnitKind::text;
    text.append(unit.text, n);
    left -= n;
    at = unit.next;
  }
  // It becomes the path of a file.
  if (is_good && check_key(text)) return text;
  mapping_.set_broken();
  return std::nullopt;
}

bool KeyTails::has_text(const TailUnit& tail, std::string_view text) {
  if (tail.length_bytes != text.size()) return false;
  for (UnitId at = tail.text; !text.empty();) {
    const TextUnit& unit = mapping_.unit(at).text;
    const std::size_t n = std::min(text.size(), kTextBytes);
    if (std::string_view(unit.text, n) != text.substr(0, n)) return false;
    text.remove_prefix(n);
    at = unit.next;
  }
  return true;
}

/// From its end, so that each unit has the one behind it.
UnitId KeyTails::write_text(std::string_view text) {
  UnitId next = kNoUnit;
  const std::size_t num = (text.size() + kTextBytes - 1) / kTextBytes;
  for (std::size_t i = num; i-- > 0;) {
    const UnitId id = table_.take(UnitKind::text);
    TextUnit& unit = mapping_.unit(id).text;
    text.substr(i * kTextBytes).copy(unit.text, kTextBytes);
    unit.next = next;
    next = id;
  }
  return next;
}

}  // namespace pando
