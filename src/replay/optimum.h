// SPDX-License-Identifier: Apache-2.0
// The offline optimum: what a cache could hit that knows the future and evicts what is used again
// last. Two rules: `same` plays by those of every policy here (all blocks of the running request
// are in the cache, at least as many as it holds), `free` may also choose not to keep a block.
//
// Of a prefix, what comes later is used again no sooner than what comes before, so tails go first
// by themselves. By segments; one run per capacity, O(n log n).
#pragma once

#include <cstdint>

#include "replay/compact_trace.h"

namespace pando {

enum class OptimumRule { same, free };

class Optimum {
 public:
  explicit Optimum(const CompactTrace& trace);
  /// Blocks hit, of all that the trace keeps, by a cache of `capacity` blocks.
  std::uint64_t hits(std::uint64_t capacity, OptimumRule rule) const;

 private:
  const CompactTrace& trace_;
  std::vector<std::uint32_t> next_use_;  // request, by access; num_requests(): never
};

}  // namespace pando
