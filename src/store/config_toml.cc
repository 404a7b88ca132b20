// SPDX-License-Identifier: Apache-2.0
// Options in TOML: the top table of a file, without others inside.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "base/check.h"
#include "store/config_text.h"

namespace pando {
namespace {

std::string_view describe(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a fraction";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::date:
      return "a date";
    case toml::node_type::time:
      return "a time";
    case toml::node_type::date_time:
      return "a date and time";
    case toml::node_type::none:
      return "nothing";
  }
  return "nothing";
}

Result<Config::Value> value_of(const toml::node& node, std::string_view name,
                               const TextPosition& position) {
  if (const auto* value = node.as_boolean()) return Config::Value(value->get());
  if (const auto* value = node.as_integer()) return Config::Value(value->get());
  if (const auto* value = node.as_floating_point()) return Config::Value(value->get());
  if (const auto* value = node.as_string()) return Config::Value(value->get());
  const toml::array* array = node.as_array();
  if (array == nullptr) return option_error(position, name, describe(node));
  std::vector<std::string> list;
  for (const toml::node& element : *array) {
    if (!element.is_string()) return element_error(position, name, describe(element));
    list.push_back(element.as_string()->get());
  }
  return Config::Value(std::move(list));
}

}  // namespace

Result<Config> parse_toml(std::string_view text, std::string_view where) {
  const toml::parse_result parsed = toml::parse(text, where);
  if (!parsed)
    return text_error({where, parsed.error().source().begin.line}, parsed.error().description());
  Config config;
  for (const auto& [key, node] : parsed.table()) {
    const TextPosition position{where, node.source().begin.line};
    Result<Config::Value> value = value_of(node, key.str(), position);
    if (!value) return value.error();
    const Status added = add_option(config, position, std::string(key.str()), *std::move(value));
    if (!added) return added.error();
  }
  return config;
}

}  // namespace pando
