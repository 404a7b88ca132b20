// SPDX-License-Identifier: Apache-2.0
// Which window page belongs to which full page: one 32-bit entry per full page, 0 where there is
// none (window page 0 is the padding page). Private to WindowAllocator, which hands out and takes
// back the pages themselves; a page in a pair is always handed out.
//
// Invariant: while a state is held, each change is journalled as the page and the entry it had, so
// that a state comes back by undoing in reverse; while none is held, the journal is empty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "alloc/page_journal.h"
#include "alloc/page_layout.h"
#include "base/check.h"
#include "pando/allocators.h"
#include "pando/types.h"

namespace pando {

class WindowPairs {
 public:
  explicit WindowPairs(const PagedAllocator& full)
      : full_(full),
        layout_(full.page_size(), full.num_pages()),
        window_of_(layout_.num_pages + 1) {}

  const PageLayout& layout() const { return layout_; }  ///< of the full side

  /// Whether the full page is; false for what is no page. Most have a window page, which says so.
  bool is_handed_out(std::size_t page) const {
    if (!layout_.in_range(page)) return false;
    return has(page) || !full_.is_free(PageId{static_cast<std::uint32_t>(page)});
  }

  /// From here on, `page` is one of the full side's.
  bool has(std::size_t page) const { return window_of_[page] != 0; }
  std::optional<PageId> find(std::size_t page) const {
    if (!has(page)) return std::nullopt;
    return PageId{window_of_[page]};
  }

  /// Makes `window` the window page of a full page that has none.
  void join(std::size_t page, PageId window) {
    PANDO_CHECK(!has(page), "page {} already has window page {}", page, window_of_[page]);
    change(page, index_of(window));
  }

  /// Ends the pair; returns the window page it had, if any.
  std::optional<PageId> part(std::size_t page) {
    const std::optional<PageId> window = find(page);
    if (window) change(page, 0);
    return window;
  }

  void part_all() { std::fill(window_of_.begin(), window_of_.end(), 0); }

  /// The window slot of each slot, or 0. No branch depends on what is paired: whether a slot has
  /// left the window is as good as random to the processor.
  void translate(std::span<const SlotId> full, std::span<SlotId> window) const {
    const unsigned shift = layout_.shift;
    const std::uint64_t offset_mask = layout_.page_size - 1;
    const std::size_t end_page = window_of_.size();
    for (std::size_t i = 0; i < full.size(); ++i) {
      const auto slot = static_cast<std::uint64_t>(index_of(full[i]));
      PANDO_CHECK(slot >> shift < end_page, "translate of slot {}: outside [0, {})",
                  index_of(full[i]), layout_.end_slot());
      const std::uint64_t page = window_of_[slot >> shift];
      const std::uint64_t keep = page == 0 ? 0 : offset_mask;
      window[i] = SlotId{static_cast<std::int64_t>((page << shift) | (slot & keep))};
    }
  }

  /// As PageJournal's, for the pairs.
  std::size_t open_state() { return journal_.open(); }
  void close_state(std::size_t state) { journal_.close(state); }
  void rewind(std::size_t state) {
    journal_.rewind(
        state, [this](std::uint32_t before, std::uint32_t page) { window_of_[page] = before; });
  }

  std::size_t memory_bytes() const {
    return window_of_.capacity() * sizeof(window_of_[0]) + journal_.memory_bytes();
  }

  Status check() const {
    if (has(0)) return make_error(ErrorCode::corrupt, "the padding page has a window page");
    return journal_.check();
  }

 private:
  void change(std::size_t page, std::uint32_t window) {
    if (journal_.active()) {
      const auto changed = static_cast<std::uint32_t>(page);
      journal_.record(window_of_[page], {&changed, 1});
    }
    window_of_[page] = window;
  }

  const PagedAllocator& full_;
  const PageLayout layout_;
  std::vector<std::uint32_t> window_of_;  // [num_pages + 1]
  PageJournal<std::uint32_t> journal_;    // the entry before a change
};

}  // namespace pando
