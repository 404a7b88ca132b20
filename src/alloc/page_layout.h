// SPDX-License-Identifier: Apache-2.0
// Arithmetic between tokens, slots and pages, for a power-of-two page size. Private to the
// allocators. Page 0 is the padding page; pages [1, num_pages] can be handed out.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pando/types.h"

namespace pando {

/// Wraps instead of overflowing: a caller's slot that will be ignored may be any number.
constexpr SlotId next_slot(SlotId slot) {
  return SlotId{static_cast<std::int64_t>(static_cast<std::uint64_t>(index_of(slot)) + 1)};
}

struct PageLayout {
  PageLayout(std::size_t page_size_tokens, std::size_t pages)
      : page_size(page_size_tokens),
        shift(static_cast<unsigned>(std::countr_zero(page_size_tokens))),
        num_pages(pages) {}

  /// May be out of range, as the slot may; a negative slot always is.
  std::size_t page_of(SlotId slot) const {
    return static_cast<std::size_t>(index_of(slot)) >> shift;
  }
  bool in_range(std::size_t page) const { return page - 1 < num_pages; }
  std::int64_t first_slot(std::size_t page) const {
    return static_cast<std::int64_t>(page << shift);
  }
  std::int64_t end_slot() const { return first_slot(num_pages + 1); }

  std::size_t offset_in_page(std::size_t tokens) const { return tokens & (page_size - 1); }
  std::size_t pages_to_hold(std::size_t tokens) const {
    return (tokens >> shift) + (offset_in_page(tokens) != 0);
  }

  /// The first index after i, which is in `page`, whose slot is outside it: one compare per slot.
  /// Large pages are read in strides without a branch, which compile to vector code (stride 8 does
  /// not).
  std::size_t end_of_run(std::span<const SlotId> slots, std::size_t i, std::size_t page) const {
    constexpr std::size_t kStride = 32;
    if (page_size == 1) return i + 1;
    const std::int64_t first = first_slot(page);
    const auto outside = [&](std::size_t k) {
      return static_cast<std::uint64_t>(index_of(slots[k]) ^ first);  // >= page_size when outside
    };
    while (kStride <= page_size && i + kStride <= slots.size() && outside(i) < page_size) {
      std::uint64_t any = 0;
      for (std::size_t k = 0; k < kStride; ++k) any |= outside(i + k);
      if (any >= page_size) break;
      i += kStride;
    }
    while (i < slots.size() && outside(i) < page_size) ++i;
    return i;
  }

  const std::size_t page_size;  // tokens
  const unsigned shift;         // page_size == 1 << shift
  const std::size_t num_pages;
};

}  // namespace pando
