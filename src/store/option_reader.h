// SPDX-License-Identifier: Apache-2.0
// Fills an options struct from a Config, field by field: each read() names an option and the field
// it goes to, which keeps its value where the option is not given. The names that were read are the
// ones that are known. The first error is kept for finish(); fields are then not to be used.
// Lives on the stack of one factory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/config.h"

namespace pando {

class OptionReader {
 public:
  /// `what` begins the messages: "file store". The names are literals.
  OptionReader(const Config& config, std::string_view what) : config_(config), what_(what) {}

  void read(std::string_view name, bool& field);
  void read(std::string_view name, double& field);
  void read(std::string_view name, std::string& field);
  void read(std::string_view name, std::vector<std::string>& field);
  /// In seconds, fractions too.
  void read(std::string_view name, std::chrono::milliseconds& field);
  void read(std::string_view name, std::optional<std::chrono::milliseconds>& field);
  /// A size: see Config::bytes.
  void read_bytes(std::string_view name, std::uint64_t& field);
  void read_count(std::string_view name, std::size_t& field);

  /// The first error, or one that lists the options nobody read.
  Status finish() const;

 private:
  bool given(std::string_view name);
  /// True: value is there and goes to the field.
  template <typename T>
  bool take(const Result<T>& value);
  void fail(Error error);

  const Config& config_;
  const std::string_view what_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace pando
