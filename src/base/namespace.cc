// SPDX-License-Identifier: Apache-2.0
// The text of a namespace: each non-empty part as "<letter><length>:<bytes>", in fixed order, so
// that different parts never give one text.
#include <fmt/format.h>

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

}  // namespace pando
