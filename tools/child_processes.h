// SPDX-License-Identifier: Apache-2.0
// Runs this program again with other arguments, several at a time, and collects what they print.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "pando/result.h"

namespace pando::tools {

/// Standard output of each, in the order of `commands` (which leave the program's own name out).
/// The first that fails ends the others, and its standard error is the error. Children end with
/// their parent.
Result<std::vector<std::string>> run_children(
    const std::vector<std::vector<std::string>>& commands, std::size_t at_a_time,
    const std::function<void(std::size_t done)>& progress = {});

}  // namespace pando::tools
