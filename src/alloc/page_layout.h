// SPDX-License-Identifier: Apache-2.0
// Arithmetic between tokens, slots and pages, for a power-of-two page size. Private to
// PagedAllocator. Page 0 is the padding page; pages [1, num_pages] can be handed out.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

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

  const std::size_t page_size;  // tokens
  const unsigned shift;         // page_size == 1 << shift
  const std::size_t num_pages;
};

}  // namespace pando
