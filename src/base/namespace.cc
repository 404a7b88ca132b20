// SPDX-License-Identifier: Apache-2.0
// The text of a namespace: each non-empty part as "<letter><length>:<bytes>", in fixed order, so
// that different parts never give one text.
#include <fmt/format.h>

#include <charconv>

#include "base/namespace_parts.h"
#include "pando/types.h"

namespace pando {

std::string make_namespace(const NamespaceParts& parts) {
  std::string text;
  const auto add = [&text](char letter, std::string_view part) {
    if (!part.empty()) text += fmt::format("{}{}:{}", letter, part.size(), part);
  };
  add('l', parts.lora);
  add('t', parts.tenant);
  add('s', parts.salt);
  add('x', parts.extra);
  return text;
}

std::optional<NamespaceParts> parse_namespace(std::string_view text) {
  NamespaceParts parts;
  std::string_view rest = text;
  for (const auto& [letter, part] : {std::pair{'l', &parts.lora},
                                     {'t', &parts.tenant},
                                     {'s', &parts.salt},
                                     {'x', &parts.extra}}) {
    if (rest.empty() || rest.front() != letter) continue;
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), length);
    const std::size_t head = static_cast<std::size_t>(end - rest.data()) + 1;
    if (error != std::errc{} || head > rest.size() || *end != ':' || length == 0 ||
        length > rest.size() - head)
      return std::nullopt;
    *part = rest.substr(head, length);
    rest.remove_prefix(head + length);
  }
  // Lengths may have been written in other ways than ours.
  if (!rest.empty() || make_namespace(parts) != text) return std::nullopt;
  return parts;
}

}  // namespace pando
