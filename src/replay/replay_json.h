// SPDX-License-Identifier: Apache-2.0
// Replay results as JSON, for machines, for reports, and for other languages. docs/formats.md has
// the names; every figure has its unit at the end of its name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "replay/replayer.h"

namespace pando {

/// What the results are of, as far as the command line knows it.
struct ReplaySettings {
  std::vector<std::string> files;
  std::string format;
  std::uint64_t skipped_lines = 0;
  std::string model;  ///< empty: none
};

nlohmann::ordered_json to_json(const ReplayResults& results, const ReplayOptions& options,
                               const ReplaySettings& settings);

}  // namespace pando
