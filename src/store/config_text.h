// SPDX-License-Identifier: Apache-2.0
// From text to a Config, one function per notation, each around the library that reads it. All of
// them take the same flat tables and say the same about anything else. They may throw what the
// libraries throw; Config::parse contains it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "pando/config.h"

namespace pando {

/// Where a message points: "options" or the name of a file, and a line where it is known.
struct TextPosition {
  std::string_view where;
  std::optional<std::size_t> line = {};
};

/// "file:3: message", "options: message".
Error text_error(const TextPosition& position, std::string_view message);
/// An option that is `found`, such as "null": nothing that a Config can hold.
Error option_error(const TextPosition& position, std::string_view name, std::string_view found);
/// A list of text that has something else in it.
Error element_error(const TextPosition& position, std::string_view name, std::string_view found);
/// Refuses a second option of this name, one without a name, and numbers that are not finite.
Status add_option(Config& config, const TextPosition& position, const std::string& name,
                  Config::Value value);

Result<Config> parse_json(std::string_view text, std::string_view where);
Result<Config> parse_toml(std::string_view text, std::string_view where);
Result<Config> parse_yaml(std::string_view text, std::string_view where);

}  // namespace pando
