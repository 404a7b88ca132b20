// SPDX-License-Identifier: Apache-2.0
// The names of an enumeration's values, in a table of pairs that both ways read.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace pando {

template <typename T>
using Named = std::pair<T, std::string_view>;

template <typename T, std::size_t N>
std::string_view name_of(const Named<T> (&table)[N], T value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "unknown";
}

template <typename T, std::size_t N>
std::optional<T> value_of(const Named<T> (&table)[N], std::string_view name) {
  for (const auto& [value, known] : table) {
    if (known == name) return value;
  }
  return std::nullopt;
}

}  // namespace pando
