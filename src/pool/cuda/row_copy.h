// SPDX-License-Identifier: Apache-2.0
// Copies rows by a kernel between any two places that a GPU reaches: its own memory and pinned host
// memory, in any strides. The counterpart of strided_copy.h; pools move rows with it, the CUDA
// copier crosses the bus with it.
//
// A plane is one sequence of words of up to 16 bytes: items, three loops (layers, tokens, heads),
// words of a piece. Threads take words in that order, so that a warp reads and writes neighbours;
// the loops are ordered by the host's strides (or the destination's), so that what crosses the bus
// is in order of addresses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "pando/result.h"
#include "pool/copy_plan.h"

namespace pando::cuda {

/// Which end of a copy is host memory, if one is.
enum class Bus { none, from_host, to_host };

struct RowCopy {
  const CopyPlan* plan = nullptr;   ///< its items are not looked at
  const CopyItem* items = nullptr;  ///< the same kind, in memory that the device reads
  std::size_t num_items = 0;
  LayerSpan layers = {};
  Bus bus = Bus::none;
  std::size_t max_blocks = 0;
};

/// Queues the copy; returns at once.
Status queue_copy(const RowCopy& copy, cudaStream_t stream);

}  // namespace pando::cuda
