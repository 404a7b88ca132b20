// SPDX-License-Identifier: Apache-2.0
// Capacity planning: the hit ratio of a trace at every capacity, for LRU in one pass, for other
// policies by a set of replays, for the offline optimum by a set of runs; and what to make of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/compact_trace.h"

namespace pando {

struct PlanOptions {
  std::vector<std::string> policies = {};                ///< beside lru
  std::size_t max_blocks = CompactTrace::kDefaultLimit;  ///< more are sampled
  std::vector<std::uint64_t> at_blocks = {};             ///< capacities of interest, in blocks
  std::size_t num_threads = 1;                           ///< for replays
};

struct PlanPoint {
  std::uint64_t capacity_blocks = 0;
  double hit_ratio = 0;  ///< by blocks
};

/// Hit ratios of a policy, by capacity.
struct PlanCurve {
  std::string policy;             ///< its name
  std::string method;             ///< how it was found
  std::vector<PlanPoint> points;  ///< by capacity

  /// The hit ratio at this capacity: between two points, on the line from one to the other.
  double at(std::uint64_t capacity_blocks) const;
};

/// The hit ratio of a trace at every capacity.
struct Plan {
  std::uint64_t requests = 0;       ///< requests of the trace
  std::uint64_t blocks = 0;         ///< blocks of all inputs
  std::uint64_t unique_blocks = 0;  ///< different blocks among them
  std::size_t block_tokens = 0;     ///< tokens of a block
  double infinite_hit_ratio = 0;    ///< with room for everything
  double sample_rate = 1;           ///< share of the blocks that was looked at
  /// How far lru's curve may be off: half of how far those of two halves of the sample are apart at
  /// most. 0 where nothing is sampled.
  double sample_error = 0;
  /// "lru" first; "optimum" plays by the same rules as policies, "ceiling" may also not keep.
  std::vector<PlanCurve> curves;
  std::uint64_t knee_blocks = 0;  ///< of lru: where more begins to buy less

  /// The curve of this policy; it must be there.
  const PlanCurve& curve(const std::string& policy) const;
};

/// Reads all of the trace. `progress`, if given, is told the share that is done.
Result<Plan> make_plan(Trace& trace, const PlanOptions& options,
                       const std::function<void(double)>& progress = {});

}  // namespace pando
