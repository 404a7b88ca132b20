// SPDX-License-Identifier: Apache-2.0
// Pages on their way back to the two sides of a WindowAllocator: of the call under way, or of the
// open free group. Private to it; it gives them back when the call, or the group, ends.
//
// Invariant: each full page here is handed out, and may be here twice; each window page here is
// handed out, is in no pair, and is here once. A call is verified as a whole before anything
// changes: a check stops it with the slot or page to blame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "alloc/page_journal.h"
#include "alloc/page_layout.h"
#include "alloc/window_pairs.h"
#include "base/check.h"
#include "pando/types.h"

namespace pando {

class WindowFrees {
 public:
  explicit WindowFrees(WindowPairs& pairs) : pairs_(pairs), layout_(pairs.layout()) {}

  /// Collects the pages of these slots, or these pages, and ends their pairs at once.
  template <typename Id>
  void free(std::span<const Id> named) {
    const std::size_t first = full_pages_.size();
    collect("free", named);
    end_pairs_from(first);
  }

  /// Ends the pairs alone.
  template <typename Id>
  void free_window(std::span<const Id> named) {
    const std::size_t first = full_pages_.size();
    collect("free_window", named);
    end_pairs_from(first);
    full_pages_.resize(first);
  }

  /// Ends the pairs that collected pages have got since they were collected.
  void end_late_pairs() { end_pairs_from(0); }

  std::span<const PageId> full_pages() const { return full_pages_; }
  std::span<const PageId> window_pages() const { return window_pages_; }
  void clear() {
    clear_buffer(full_pages_);
    clear_buffer(window_pages_);
  }

  std::size_t memory_bytes() const {
    return (full_pages_.capacity() + window_pages_.capacity()) * sizeof(PageId);
  }

 private:
  void collect(std::string_view call, std::span<const SlotId> slots) {
    const std::size_t before = full_pages_.size();
    for (std::size_t i = 0; i < slots.size();) {
      const std::size_t page = layout_.page_of(slots[i]);
      if (!pairs_.is_handed_out(page)) [[unlikely]] {
        full_pages_.resize(before);
        refuse(call, slots[i]);
      }
      full_pages_.push_back(PageId{static_cast<std::uint32_t>(page)});
      i = layout_.end_of_run(slots, i, page);
    }
  }

  void collect(std::string_view call, std::span<const PageId> pages) {
    for (const PageId page : pages) {
      PANDO_CHECK(layout_.in_range(index_of(page)), "{} of page {}: outside [1, {}]", call,
                  index_of(page), layout_.num_pages);
      PANDO_CHECK(pairs_.is_handed_out(index_of(page)), "{} of page {}: it is already free", call,
                  index_of(page));
    }
    full_pages_.insert(full_pages_.end(), pages.begin(), pages.end());
  }

  void refuse(std::string_view call, SlotId slot) const {
    const std::size_t page = layout_.page_of(slot);
    PANDO_CHECK(layout_.in_range(page), "{} of slot {}: outside [{}, {})", call, index_of(slot),
                layout_.first_slot(1), layout_.end_slot());
    PANDO_CHECK(pairs_.is_handed_out(page), "{} of slot {}: its page {} is already free", call,
                index_of(slot), page);
  }

  void end_pairs_from(std::size_t first) {
    for (const PageId page : std::span(full_pages_).subspan(first)) {
      if (const std::optional<PageId> window = pairs_.part(index_of(page))) {
        window_pages_.push_back(*window);
      }
    }
  }

  WindowPairs& pairs_;
  const PageLayout& layout_;
  std::vector<PageId> full_pages_;
  std::vector<PageId> window_pages_;
};

}  // namespace pando
