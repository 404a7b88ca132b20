// SPDX-License-Identifier: Apache-2.0
// The plain loops over many tokens and slots. They stand in one file because each is compiled
// several times, for the widest vectors a machine may have, and the right one is bound at load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pando/types.h"

namespace pando {

/// out[i * page_size + j] = pages[i] * page_size + j: the slots of n pages.
void expand_pages(const std::uint32_t* pages, std::size_t n, std::size_t page_size, SlotId* out);
inline void expand_pages(std::span<const PageId> pages, std::size_t page_size, SlotId* out) {
  // PageId is a uint32_t by another name.
  expand_pages(reinterpret_cast<const std::uint32_t*>(pages.data()), pages.size(), page_size, out);
}

/// The way back: pages[i] = the page whose slots are slots[i * page_size, (i + 1) * page_size).
/// Stops before the first group that is not a whole page in order, and returns how many were.
std::size_t gather_pages(const SlotId* slots, std::size_t n, std::size_t page_size,
                         std::uint32_t* pages);

bool has_negative(const Token* tokens, std::size_t n);

}  // namespace pando
