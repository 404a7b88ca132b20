// SPDX-License-Identifier: Apache-2.0
// A plan as JSON, under the names of docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "replay/plan.h"

namespace pando {

/// What the plan is of.
struct PlanSettings {
  std::vector<std::string> files = {};
  std::uint64_t skipped_lines = 0;
  std::string model = {};                       ///< empty: none
  std::optional<std::size_t> token_bytes = {};  ///< of the model
};

nlohmann::ordered_json to_json(const Plan& plan, const PlanSettings& settings);

}  // namespace pando
