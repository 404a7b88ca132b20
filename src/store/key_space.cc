// SPDX-License-Identifier: Apache-2.0
// Keys of stored pages; see the header and docs/formats.md.
#include "pando/key_space.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/check.h"
#include "base/hex.h"
#include "base/page_hash.h"

namespace pando {
namespace {

constexpr std::size_t kMaxModelBytes = 128;  // leaves room for everything else in a file's name

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) append_hex(text, byte);
  return text;
}

char letter_of(ComponentKind component) {
  switch (component) {
    case ComponentKind::full:
      return 'f';
    case ComponentKind::window:
      return 'w';
    case ComponentKind::state:
      return 's';
  }
  return '?';
}

std::optional<ComponentKind> component_of(char letter) {
  for (const ComponentKind kind :
       {ComponentKind::full, ComponentKind::window, ComponentKind::state})
    if (letter == letter_of(kind)) return kind;
  return std::nullopt;
}

// Everything that bytes depend on, in 64 bits of a digest: who collides on purpose owns the model.
std::string fingerprint(const Geometry& geometry, HostLayout layout, std::uint32_t group) {
  std::string text = fmt::format("pando-geometry-v1;{};{}", geometry.describe(), to_string(layout));
  if (group > 0) text += fmt::format(";group {}", group);
  const PageHash digest = digest_of(text);
  return hex(std::span(digest).first(8));
}

constexpr std::size_t kFingerprintDigits = 16;

/// Takes "_<number>" off the end, as it is written: no sign, no zeros ahead.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  const std::size_t at = text.rfind('_');
  if (at == text.npos || at + 1 == text.size()) return std::nullopt;
  const std::string_view digits = text.substr(at + 1);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  text.remove_suffix(digits.size() + 1);
  return number;
}

/// What stands as "_<first>_<second>" at the end of a name.
struct Numbers {
  std::uint32_t first = 0, second = 0;  // 0 and 0: nothing that can be ranks
  std::string_view before;
};

Numbers numbers_at_end(std::string_view text) {
  const std::optional<std::uint32_t> second = take_number(text);
  const std::optional<std::uint32_t> first = second ? take_number(text) : std::nullopt;
  if (!first || text.size() < 2) return {};
  return {first.value_or(0), second.value_or(0), text};
}

// "_{tp_rank}_{tp_size}" has the smaller number first, "_{pp_size}_{pp_rank}" the larger one.
void take_ranks(std::string_view& text, ParsedKey& parts) {
  Numbers numbers = numbers_at_end(text);
  if (numbers.first > numbers.second && numbers.first > 1) {
    parts.pp = RankOf{numbers.second, numbers.first};
    text = numbers.before;
    numbers = numbers_at_end(text);
  }
  if (numbers.first >= numbers.second) return;
  parts.tp = RankOf{numbers.first, numbers.second};
  text = numbers.before;
}

}  // namespace

Status StoreScope::validate() const {
  if (model.empty() || model.size() > kMaxModelBytes)
    return make_error(ErrorCode::invalid_argument, "a model name of {} bytes; expected 1 to {}",
                      model.size(), kMaxModelBytes);
  const auto is_bad = [](char c) { return std::isgraph(static_cast<unsigned char>(c)) == 0; };
  if (const auto at = std::find_if(model.begin(), model.end(), is_bad); at != model.end())
    return make_error(ErrorCode::invalid_argument,
                      "the model name has a byte {:#04x} at {}; expected visible ASCII",
                      static_cast<unsigned char>(*at), at - model.begin());
  if (tp_size == 0 || tp_rank >= tp_size || pp_size == 0 || pp_rank >= pp_size)
    return make_error(ErrorCode::invalid_argument,
                      "tensor rank {} of {}, pipeline rank {} of {}; expected each below its size",
                      tp_rank, tp_size, pp_rank, pp_size);
  return {};
}

KeySpace::KeySpace(const StoreScope& scope, const Geometry& geometry, HostLayout layout,
                   ComponentKind component, std::uint32_t group)
    : writes_(!scope.same_on_all_tp_ranks || scope.tp_rank == 0) {
  std::string model = scope.model;
  std::replace(model.begin(), model.end(), '/', '-');
  sglang_suffix_ = fmt::format("_{}", model);
  if (!scope.same_on_all_tp_ranks)
    sglang_suffix_ += fmt::format("_{}_{}", scope.tp_rank, scope.tp_size);
  if (scope.pp_size > 1) sglang_suffix_ += fmt::format("_{}_{}", scope.pp_size, scope.pp_rank);
  suffix_ = fmt::format("{}_{}{}", sglang_suffix_, letter_of(component),
                        fingerprint(geometry, layout, group));
}

std::string KeySpace::key(const PageHash& hash) const { return hex(hash) + suffix_; }

std::string KeySpace::sglang_name(const PageHash& hash) const { return hex(hash) + sglang_suffix_; }

std::optional<ParsedKey> parse_key(std::string_view key) {
  ParsedKey parts;
  const auto hash = leading_hash(key);
  if (!hash || key.size() < kHashDigits + kFingerprintDigits + 4) return std::nullopt;
  parts.hash = *hash;
  const std::string_view print = key.substr(key.size() - kFingerprintDigits);
  for (std::size_t i = 0; i < print.size(); i += 2)
    if (!hex_byte(print[i], print[i + 1])) return std::nullopt;
  parts.fingerprint = print;
  key.remove_suffix(kFingerprintDigits);
  const std::optional<ComponentKind> component = component_of(key.back());
  key.remove_suffix(1);
  if (!component || key.back() != '_') return std::nullopt;
  parts.component = *component;
  key.remove_suffix(1);
  key.remove_prefix(kHashDigits);
  if (key.size() < 2 || key.front() != '_') return std::nullopt;
  take_ranks(key, parts);
  parts.model = key.substr(1);
  return parts;
}

}  // namespace pando
