// SPDX-License-Identifier: Apache-2.0
// A copy of rows between two places, told once and carried out by a CPU (strided_copy.h) or a GPU
// (copy/cuda). Pools make one for move, save and restore; copiers for backups and loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pando/pools.h"

namespace pando {

/// Slots [dst, dst + tokens) receive slots [src, src + tokens); `tokens` is the plan's.
struct CopyItem {
  std::uint64_t dst = 0;
  std::uint64_t src = 0;
};

/// Both ends have the planes, layers and page size of `geometry`. Pointers are not owned.
struct CopyPlan {
  const Geometry* geometry = nullptr;
  const std::vector<PlaneMemory>* dst = nullptr;
  const std::vector<PlaneMemory>* src = nullptr;
  /// Rows of each item: one, or a page. An item does not cross the end of a page at either end.
  std::size_t tokens = 1;
  std::vector<CopyItem> items = {};

  std::size_t size_bytes() const { return items.size() * tokens * geometry->token_bytes(); }
};

/// Layers [first, first + count) of a plan.
struct LayerSpan {
  std::size_t first = 0;
  std::size_t count = 0;
};

}  // namespace pando
