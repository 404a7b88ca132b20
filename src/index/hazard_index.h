// SPDX-License-Identifier: Apache-2.0
// What a candidate is worth under the hazard policy: hits per unit of remaining time, as learned by
// ReuseHazard, and, if that is wanted, times what it costs to compute the block again. Shelves and
// block pools draw victims by it.
//
// A candidate's key is when it was used last and its class then, in one number: so keys of
// candidates that were not used since stay as they are, though their worth changes with time.
#pragma once

#include <cstdint>

#include "index/reuse_hazard.h"

namespace pando {

class HazardIndex {
 public:
  using Key = std::uint64_t;
  static constexpr Key pack(std::uint64_t last, ReuseHazard::Class cls) { return last << 8 | cls; }
  static constexpr std::uint64_t last_of(Key key) { return key >> 8; }

  /// Of a candidate whose last block is the `depth`th of its prefix. The smallest goes first.
  float of(Key key, std::uint32_t depth) const {
    const float index = learner.index(static_cast<ReuseHazard::Class>(key), last_of(key), ahead);
    if (cost_per_depth == 0) return index;
    return index * (1 + cost_per_depth * static_cast<float>(depth));
  }

  ReuseHazard learner;
  /// Blocks of the request that wants room: time has advanced by them, though it has not finished.
  std::uint64_t ahead = 0;
  /// By how much a block costs more to compute than one without anything before it, for each block
  /// before it; 0: all cost the same.
  float cost_per_depth = 0;
};

}  // namespace pando
