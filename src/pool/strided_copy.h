// SPDX-License-Identifier: Apache-2.0
// Carries out a CopyPlan on the CPU. What is contiguous at both ends is copied in one piece: heads
// of a row, rows of a page, neighbouring pages. Otherwise the loops run in the order in which the
// source lies in memory: reads wait for memory, stores past the caches do not (1.0 to 1.4 of a
// plain memcpy against 0.6 to 0.7 in the destination's order, host layouts page_first and
// page_head). Safe to call from several threads for different items or layers.
#pragma once

#include <cstddef>
#include <span>

#include "pool/copy_plan.h"

namespace pando {

/// streaming: past the caches, for more bytes than they hold; saves reading what is overwritten.
enum class Stores { cached, streaming };

void copy_rows(const CopyPlan& plan, LayerSpan layers, std::span<const CopyItem> items,
               Stores stores);

/// Which of the two pays for a copy of this size.
Stores stores_for(std::size_t size_bytes);

}  // namespace pando
