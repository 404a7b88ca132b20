// SPDX-License-Identifier: Apache-2.0
// Config::parse: text or a file, and what all notations have in common. Nothing is thrown from
// here.
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>

#include "base/check.h"
#include "store/config_text.h"
#include "store/option_types.h"

namespace pando {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;  // options, not data

using Parser = Result<Config> (*)(std::string_view text, std::string_view where);

struct Notation {
  std::string_view suffix;
  Parser parse;
};
constexpr std::array<Notation, 4> kNotations = {
    {{".json", parse_json}, {".toml", parse_toml}, {".yaml", parse_yaml}, {".yml", parse_yaml}}};

Result<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return make_error(ErrorCode::not_found, "cannot open options file '{}': {}", path,
                      std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof()))
    return make_error(ErrorCode::io_error, "cannot read options file '{}': {}", path,
                      std::strerror(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() <= kMaxFileBytes) return text;
  return make_error(ErrorCode::invalid_argument, "options file '{}' has more than {} bytes", path,
                    kMaxFileBytes);
}

Result<Config> parse_file(const std::string& path) {
  for (const Notation& notation : kNotations) {
    if (!path.ends_with(notation.suffix)) continue;
    const Result<std::string> text = read_file(path);
    if (!text) return text.error();
    return notation.parse(*text, path);
  }
  return make_error(ErrorCode::invalid_argument,
                    "options file '{}': expected a name that ends in .json, .toml, .yaml or .yml",
                    path);
}

Result<Config> parse_text(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return Config();
  if (text[first] == '@') return parse_file(std::string(text.substr(first + 1)));
  if (text[first] == '{') return parse_json(text, "options");
  return make_error(ErrorCode::invalid_argument,
                    "options: '{}' is neither a JSON object nor @ and the name of a file",
                    text.substr(first, 40));
}

}  // namespace

Error text_error(const TextPosition& position, std::string_view message) {
  if (!position.line)
    return make_error(ErrorCode::invalid_argument, "{}: {}", position.where, message);
  return make_error(ErrorCode::invalid_argument, "{}:{}: {}", position.where, *position.line,
                    message);
}

Error option_error(const TextPosition& position, std::string_view name, std::string_view found) {
  return text_error(position, fmt::format("{} must be {}, got {}", name, kOptionTypes, found));
}

Error element_error(const TextPosition& position, std::string_view name, std::string_view found) {
  return text_error(position,
                    fmt::format("{} must be a list of text, got one with {} in it", name, found));
}

Status add_option(Config& config, const TextPosition& position, const std::string& name,
                  Config::Value value) {
  if (name.empty()) return text_error(position, "an option has no name");
  if (config.has(name)) return text_error(position, fmt::format("{} is given twice", name));
  if (const auto* number = std::get_if<double>(&value);
      number != nullptr && !std::isfinite(*number))
    return text_error(position, fmt::format("{} must be finite, got {}", name, *number));
  config.set(name, std::move(value));
  return {};
}

Result<Config> Config::parse(std::string_view text) try {
  return parse_text(text);
} catch (const std::exception& e) {
  return make_error(ErrorCode::invalid_argument, "options cannot be read: {}", e.what());
}

}  // namespace pando
