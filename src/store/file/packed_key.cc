// SPDX-License-Identifier: Apache-2.0
// Keys to 36 bytes and back.
#include "store/file/packed_key.h"

#include "base/check.h"
#include "base/hex.h"

namespace pando {
namespace {

struct Parts {
  PackedKey key;
  std::string tail;  // as in the table
};

Parts split(std::string_view key) {
  Parts parts;
  const auto head = leading_hash(key);
  if (head) parts.key.head = *head;
  parts.tail = fmt::format("{}{}", head ? '+' : '-', key.substr(head ? kHashDigits : 0));
  return parts;
}

}  // namespace

std::optional<PackedKey> KeyTails::find(std::string_view key) const {
  Parts parts = split(key);
  const auto at = numbers_.find(parts.tail);
  if (at == numbers_.end()) return std::nullopt;
  parts.key.tail = at->second;
  return parts.key;
}

PackedKey KeyTails::hold(std::string_view key) {
  Parts parts = split(key);
  auto at = numbers_.find(parts.tail);
  if (at == numbers_.end()) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(tails_.size()));
      tails_.emplace_back();
    }
    at = numbers_.emplace(std::move(parts.tail), free_.back()).first;
    free_.pop_back();
    tails_[at->second] = {.text = std::string_view(at->first).substr(1),
                          .has_head = at->first.front() == '+'};
  }
  ++tails_[at->second].num_keys;
  parts.key.tail = at->second;
  return parts.key;
}

void KeyTails::release(const PackedKey& key) {
  Tail& tail = tails_[key.tail];
  PANDO_CHECK(tail.num_keys > 0, "tail {} is held by no key", key.tail);
  if (--tail.num_keys > 0) return;
  numbers_.erase(fmt::format("{}{}", tail.has_head ? '+' : '-', tail.text));
  tail = {};
  free_.push_back(key.tail);
}

std::string KeyTails::text(const PackedKey& key) const {
  const Tail& tail = tails_[key.tail];
  std::string text;
  text.reserve(kHashDigits + tail.text.size());
  if (tail.has_head)
    for (const std::uint8_t byte : key.head) append_hex(text, byte);
  text += tail.text;
  return text;
}

}  // namespace pando
