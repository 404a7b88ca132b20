// SPDX-License-Identifier: Apache-2.0
// Options in YAML: one document that is a mapping. What is not quoted is null, a boolean, an
// integer, a fraction or text by the core schema of YAML 1.2, so that `no` and `1:30` are text.
// yaml-cpp reports errors by throwing: those are caught here.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "store/config_text.h"

namespace pando {
namespace {

constexpr std::string_view kDigits = "0123456789";

TextPosition position_of(const YAML::Node& node, std::string_view where) {
  const YAML::Mark mark = node.Mark();
  if (mark.is_null()) return {where};
  return {where, static_cast<std::size_t>(mark.line) + 1};
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

bool is_digits(std::string_view text, std::string_view digits = kDigits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

// Digits, digits and a point, or a point and digits; then perhaps an exponent.
bool is_fraction(std::string_view text) {
  text = without_sign(text);
  if (const std::size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    if (!is_digits(without_sign(text.substr(e + 1)))) return false;
    text = text.substr(0, e);
  }
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos) return is_digits(text);
  const std::string_view before = text.substr(0, point), after = text.substr(point + 1);
  return (before.empty() || is_digits(before)) && (after.empty() || is_digits(after)) &&
         !(before.empty() && after.empty());
}

template <typename T, typename... Format>
std::optional<T> convert(std::string_view text, Format... format) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, format...);
  if (error != std::errc() || rest != text.data() + text.size()) return {};
  return value;
}

// Of a scalar that is not quoted. Null is nothing that an option can be.
Result<Config::Value> resolve(const std::string& text, std::string_view name,
                              const TextPosition& position) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"}))
    return option_error(position, name, "null");
  if (is_one_of(text, {"true", "True", "TRUE"})) return Config::Value(true);
  if (is_one_of(text, {"false", "False", "FALSE"})) return Config::Value(false);
  const std::string_view view = text;
  std::optional<std::optional<std::int64_t>> integer;
  if (is_digits(without_sign(view)))
    integer = convert<std::int64_t>(view, 10);
  else if (view.starts_with("0x") && is_digits(view.substr(2), "0123456789abcdefABCDEF"))
    integer = convert<std::int64_t>(view.substr(2), 16);
  else if (view.starts_with("0o") && is_digits(view.substr(2), "01234567"))
    integer = convert<std::int64_t>(view.substr(2), 8);
  if (integer && !*integer)
    return text_error(position, fmt::format("{} must fit 64 bits with a sign, got {}", name, text));
  if (integer) return Config::Value(**integer);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (is_one_of(without_sign(view), {".inf", ".Inf", ".INF"}))
    return Config::Value(view[0] == '-' ? -kInfinity : kInfinity);
  if (is_one_of(view, {".nan", ".NaN", ".NAN"}))
    return Config::Value(std::numeric_limits<double>::quiet_NaN());
  if (!is_fraction(view)) return Config::Value(text);
  if (const auto number = convert<double>(view)) return Config::Value(*number);
  return text_error(position,
                    fmt::format("{} must be in the range of a double, got {}", name, text));
}

Result<Config::Value> scalar_of(const YAML::Node& node, std::string_view name,
                                const TextPosition& position) {
  if (node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str")
    return Config::Value(node.Scalar());
  if (node.Tag().empty() || node.Tag() == "?") return resolve(node.Scalar(), name, position);
  return option_error(position, name, fmt::format("a value with the tag {}", node.Tag()));
}

Result<Config::Value> value_of(const YAML::Node& node, std::string_view name,
                               const TextPosition& position) {
  if (node.IsNull()) return option_error(position, name, "null");
  if (node.IsScalar()) return scalar_of(node, name, position);
  if (!node.IsSequence()) return option_error(position, name, "a mapping");
  std::vector<std::string> list;
  for (const YAML::Node& element : node) {
    if (!element.IsScalar())
      return element_error(position, name, element.IsNull() ? "null" : "more than text");
    const Result<Config::Value> value = scalar_of(element, name, position);
    if (!value) return value.error();
    if (!std::holds_alternative<std::string>(*value))
      return element_error(position, name,
                           fmt::format("{}, which is not text unless quoted,", element.Scalar()));
    list.push_back(element.Scalar());
  }
  return Config::Value(std::move(list));
}

}  // namespace

Result<Config> parse_yaml(std::string_view text, std::string_view where) try {
  const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
  Config config;
  if (documents.empty() || (documents.size() == 1 && documents[0].IsNull())) return config;
  if (documents.size() > 1)
    return text_error(position_of(documents[1], where), "a second document; expected one");
  if (!documents[0].IsMap())
    return text_error(
        position_of(documents[0], where),
        fmt::format("expected a mapping, got {}", documents[0].IsScalar() ? "a scalar" : "a list"));
  for (const auto& item : documents[0]) {
    const TextPosition position = position_of(item.first, where);
    if (!item.first.IsScalar()) return text_error(position, "the name of an option must be text");
    const std::string& name = item.first.Scalar();
    Result<Config::Value> value = value_of(item.second, name, position);
    if (!value) return value.error();
    const Status added = add_option(config, position, name, *std::move(value));
    if (!added) return added.error();
  }
  return config;
} catch (const YAML::Exception& e) {
  if (e.mark.is_null()) return text_error({where}, e.msg);
  return text_error({where, static_cast<std::size_t>(e.mark.line) + 1}, e.msg);
}

}  // namespace pando
