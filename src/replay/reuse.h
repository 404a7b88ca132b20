// SPDX-License-Identifier: Apache-2.0
// What LRU would hit at every capacity, from one pass: the reuse distances of all blocks.
//
// Think of all blocks in a stack, the one used last on top; of one request, its first block on top.
// A cache of C blocks that evicts the least recently used, tails first, holds the C uppermost. So a
// block is hit by every cache larger than its depth when the request arrives, and the blocks before
// it in the prefix are above it. The depth is a sum over what was used since: a Fenwick tree over
// time gives it in O(log n). By segments, whose blocks lie one below the other.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/compact_trace.h"

namespace pando {

/// hits[c]: blocks hit, of all that the trace keeps, by a cache of c blocks; c from 0 to all.
std::vector<std::uint64_t> lru_hits(const CompactTrace& trace);

}  // namespace pando
