// SPDX-License-Identifier: Apache-2.0
// Config: reading options as what they should be. Parsing text and files is in config_parse.cc.
#include "pando/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "store/option_types.h"

namespace pando {
namespace {

Error wrong_type(std::string_view name, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::invalid_argument, "{} must be {}, got {}", name, expected, found);
}

// The integer that a floating-point number is, if it is one.
std::optional<std::int64_t> whole(double number) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (!(number >= -kEnd && number < kEnd) || number != std::trunc(number)) return {};
  return static_cast<std::int64_t>(number);
}

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"K", std::uint64_t{1} << 10},
                                          {"M", std::uint64_t{1} << 20},
                                          {"G", std::uint64_t{1} << 30},
                                          {"T", std::uint64_t{1} << 40},
                                          {"KiB", std::uint64_t{1} << 10},
                                          {"MiB", std::uint64_t{1} << 20},
                                          {"GiB", std::uint64_t{1} << 30},
                                          {"TiB", std::uint64_t{1} << 40},
                                          {"kB", 1'000},
                                          {"MB", 1'000'000},
                                          {"GB", 1'000'000'000},
                                          {"TB", 1'000'000'000'000}}};

// A whole number and a unit, with or without blanks between them.
std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return {};
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto unit = std::find_if(kUnits.begin(), kUnits.end(),
                                 [&](const Unit& known) { return known.name == text; });
  if (unit == kUnits.end() || number > std::numeric_limits<std::uint64_t>::max() / unit->bytes)
    return {};
  return number * unit->bytes;
}

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::string_view describe(const Config::Value& value) {
  switch (value.index()) {
    case 0:
      return "a boolean";
    case 1:
      return "an integer";
    case 2:
      return "a fraction";
    case 3:
      return "text";
    default:
      return "a list";
  }
}

Result<bool> Config::boolean(std::string_view name, bool otherwise) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return otherwise;
  if (const auto* value = std::get_if<bool>(&at->second)) return *value;
  return wrong_type(name, "a boolean", describe(at->second));
}

Result<std::int64_t> Config::integer(std::string_view name, std::int64_t otherwise) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return otherwise;
  if (const auto* value = std::get_if<std::int64_t>(&at->second)) return *value;
  const auto* number = std::get_if<double>(&at->second);
  if (number == nullptr) return wrong_type(name, "an integer", describe(at->second));
  if (const std::optional<std::int64_t> value = whole(*number)) return *value;
  return wrong_type(name, "an integer", fmt::format("{}", *number));
}

Result<double> Config::number(std::string_view name, double otherwise) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return otherwise;
  if (const auto* value = std::get_if<double>(&at->second)) return *value;
  const auto* integer = std::get_if<std::int64_t>(&at->second);
  if (integer == nullptr) return wrong_type(name, "a number", describe(at->second));
  const auto number = static_cast<double>(*integer);
  if (whole(number) == *integer) return number;
  return wrong_type(name, "a number of at most 53 bits", fmt::format("{}", *integer));
}

Result<std::string> Config::text(std::string_view name, std::string otherwise) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return otherwise;
  if (const auto* value = std::get_if<std::string>(&at->second)) return *value;
  return wrong_type(name, "text", describe(at->second));
}

Result<std::vector<std::string>> Config::list(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return std::vector<std::string>();
  if (const auto* value = std::get_if<std::vector<std::string>>(&at->second)) return *value;
  if (const auto* value = std::get_if<std::string>(&at->second)) return std::vector{*value};
  return wrong_type(name, "a list of text", describe(at->second));
}

Result<std::uint64_t> Config::bytes(std::string_view name, std::uint64_t otherwise) const {
  constexpr std::string_view kExpected = "a size such as 4096, \"500MB\" or \"64GiB\"";
  const auto at = values_.find(name);
  if (at == values_.end()) return otherwise;
  if (const auto* value = std::get_if<std::string>(&at->second)) {
    if (const std::optional<std::uint64_t> size_bytes = parse_bytes(*value)) return *size_bytes;
    return wrong_type(name, kExpected, fmt::format("\"{}\"", *value));
  }
  if (!std::holds_alternative<std::int64_t>(at->second) &&
      !std::holds_alternative<double>(at->second))
    return wrong_type(name, kExpected, describe(at->second));
  const Result<std::int64_t> value = integer(name, 0);
  if (!value) return value.error();
  if (*value < 0) return wrong_type(name, kExpected, fmt::format("{}", *value));
  return static_cast<std::uint64_t>(*value);
}

Config Config::extract(std::span<const std::string_view> names) {
  Config taken;
  for (const std::string_view name : names)
    if (const auto at = values_.find(name); at != values_.end())
      taken.values_.insert(values_.extract(at));
  return taken;
}

Status Config::refuse_unknown(std::span<const std::string_view> known) const {
  std::vector<std::string_view> unknown;
  for (const auto& [name, value] : values_)
    if (std::find(known.begin(), known.end(), name) == known.end()) unknown.push_back(name);
  if (unknown.empty()) return {};
  return make_error(ErrorCode::invalid_argument, "unknown option{} {}; expected some of {}",
                    unknown.size() == 1 ? "" : "s", joined(unknown), joined(known));
}

}  // namespace pando
