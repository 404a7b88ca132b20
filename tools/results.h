// SPDX-License-Identifier: Apache-2.0
// Where results go: a table on standard output, JSON and a report where asked. Files are opened
// before the work begins, so that a place that cannot be written costs nothing, and appear when all
// of them are complete.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "tools/options.h"
#include "tools/output_file.h"

namespace pando::tools {

class ResultWriter {
 public:
  static Result<ResultWriter> open(const ResultArguments& arguments);
  /// With JSON on standard output the table is left out.
  Status write(nlohmann::ordered_json results, std::string_view table);

 private:
  explicit ResultWriter(const ResultArguments& arguments) : arguments_(arguments) {}

  ResultArguments arguments_;
  std::optional<OutputFile> json_, report_;
};

}  // namespace pando::tools
