// SPDX-License-Identifier: Apache-2.0
// How a finished replay is told to people.
#pragma once

#include <string>

#include "replay/replay_json.h"

namespace pando::tools {

std::string replay_table(const ReplayResults& results, const ReplayOptions& options,
                         const ReplaySettings& settings);

}  // namespace pando::tools
