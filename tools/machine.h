// SPDX-License-Identifier: Apache-2.0
// What a figure was measured on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pando::tools {

struct Machine {
  std::string cpu;         ///< as the kernel names it, or "unknown"
  std::size_t cores = 0;   ///< of the machine
  std::size_t usable = 0;  ///< by this process
  std::uint64_t memory_bytes = 0;
};
Machine this_machine();

}  // namespace pando::tools
