// SPDX-License-Identifier: Apache-2.0
// Keys of stored pages; see the header and docs/formats.md.
#include "pando/key_space.h"

#include <algorithm>
#include <cctype>

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

// Everything that bytes depend on, in 64 bits of a digest: who collides on purpose owns the model.
std::string fingerprint(const Geometry& geometry, HostLayout layout, std::uint32_t group) {
  std::string text = fmt::format("pando-geometry-v1;{};{}", geometry.describe(), to_string(layout));
  if (group > 0) text += fmt::format(";group {}", group);
  const PageHash digest = digest_of(text);
  return hex(std::span(digest).first(8));
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

}  // namespace pando
