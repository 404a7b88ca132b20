// SPDX-License-Identifier: Apache-2.0
// Options by name, as people write them on a command line or in a file: JSON text, or "@path" of a
// JSON, TOML or YAML file. A flat table of scalars and lists of text. Reading an option as another
// type, or naming one that nobody reads, is an error that names it.
// A value; belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pando/result.h"

namespace pando {

/// Options by name: a flat table of scalars and lists of text, as JSON text or "@path" of a JSON,
/// TOML or YAML file gives them.
class Config {
 public:
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

  Config() = default;
  /// An object as JSON text, "@path" (.json, .toml, .yaml, .yml), or nothing.
  static Result<Config> parse(std::string_view text);

  /// Gives the option this value, whether or not it had one.
  void set(std::string name, Value value) { values_[std::move(name)] = std::move(value); }
  /// Whether the option is given.
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  /// All that is given, by name.
  const std::map<std::string, Value, std::less<>>& values() const { return values_; }

  // What the option says, or `otherwise` where it is not given. A number of another kind than asked
  // for is taken only where nothing is lost.
  /// What the option says, or `otherwise` where it is not given.
  Result<bool> boolean(std::string_view name, bool otherwise) const;
  /// What the option says, or `otherwise` where it is not given. A number with a fraction is
  /// refused.
  Result<std::int64_t> integer(std::string_view name, std::int64_t otherwise) const;
  /// What the option says, or `otherwise` where it is not given. An integer will do where nothing
  /// is lost.
  Result<double> number(std::string_view name, double otherwise) const;
  /// What the option says, or `otherwise` where it is not given.
  Result<std::string> text(std::string_view name, std::string otherwise) const;
  /// The texts that the option lists, none where it is not given. One text counts as a list of one.
  Result<std::vector<std::string>> list(std::string_view name) const;
  /// A size: an integer of bytes, or text like "64GiB", "500MB", "4096".
  Result<std::uint64_t> bytes(std::string_view name, std::uint64_t otherwise) const;

  /// Takes out the named options, for another reader.
  Config extract(std::span<const std::string_view> names);
  /// An error that lists what is not among `known`.
  Status refuse_unknown(std::span<const std::string_view> known) const;

  friend bool operator==(const Config&, const Config&) = default;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace pando
