// SPDX-License-Identifier: Apache-2.0
// Scattered pages for the benchmarks of copiers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"

namespace pando::bench {

/// `n` of the ids [first, first + num), in random order.
template <typename Id>
std::vector<Id> scattered(std::size_t first, std::size_t num, std::size_t n, std::uint64_t seed) {
  std::vector<Id> ids(num);
  for (std::size_t i = 0; i < num; ++i) ids[i] = static_cast<Id>(first + i);
  Random random(seed);
  for (std::size_t i = 0; i < n; ++i) std::swap(ids[i], ids[i + random.below(num - i)]);
  ids.resize(n);
  return ids;
}

}  // namespace pando::bench
