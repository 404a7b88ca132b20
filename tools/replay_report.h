// SPDX-License-Identifier: Apache-2.0
// How a finished replay is told: as a table for people, as JSON for machines. `pando replay` prints
// what these return. Every figure has a unit, in the table behind it, in JSON as the end of its
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "replay/replayer.h"

namespace pando::tools {

struct ReplaySummary {
  std::string workload;                                           ///< its name
  std::vector<std::pair<std::string, std::uint64_t>> parameters;  ///< that make it what it is
  std::string policy;
  std::size_t page_size = 0;
  std::size_t capacity_tokens = 0;

  ReplayReport report;
  Sizes held;  ///< by the tree, at the end
  std::size_t num_nodes = 0;
  std::size_t index_bytes = 0;
  double wall_seconds = 0;
};

std::string replay_table(const ReplaySummary& summary);
std::string replay_json(const ReplaySummary& summary);

}  // namespace pando::tools
