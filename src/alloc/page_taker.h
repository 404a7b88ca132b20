// SPDX-License-Identifier: Apache-2.0
// Takes free pages and writes their slots. Private to PagedAllocator, which has made sure that
// there is room. Pages are taken in batches and journalled while a state is held; a taker must
// write as many as it was made for, so that none is lost between the free pages and the caller.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "alloc/free_pages.h"
#include "alloc/page_journal.h"
#include "alloc/page_layout.h"
#include "base/check.h"

namespace pando {

/// What PagedAllocator must know of a change to undo it.
enum class PageChange : std::uint32_t { take, put };

/// first, first + 1, ... The stride of constant length compiles to vector stores that do not wait
/// for one another: twice as fast as the plain loop.
inline SlotId* write_run(SlotId* out, std::int64_t first, std::size_t length) {
  constexpr std::int64_t kStride = 8;
  SlotId* const end = out + length;
  for (; end - out >= kStride; out += kStride, first += kStride) {
    for (std::int64_t k = 0; k < kStride; ++k) out[k] = SlotId{first + k};
  }
  while (out != end) *out++ = SlotId{first++};
  return out;
}

/// Takes `num_pages` free pages, in small batches, and hands them out one by one.
class PageTaker {
 public:
  PageTaker(const PageLayout& layout, FreePages& free, PageJournal<PageChange>& journal,
            std::size_t num_pages)
      : layout_(layout), free_(free), journal_(journal), left_(num_pages) {}

  std::int64_t next_first_slot() {
    if (next_ == end_) refill();
    return layout_.first_slot(batch_[next_++]);
  }

  /// One slot per request: the next in its open page, or the first of a new one.
  void write_next(std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                  std::span<SlotId> out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool opens_page = layout_.offset_in_page(seq_lens[i] - 1) == 0;
      out[i] = opens_page ? SlotId{next_first_slot()} : next_slot(last_slots[i]);
    }
  }

  /// Whole pages, then the head of one more, until `end`.
  void write(SlotId* out, SlotId* end) {
    if (layout_.page_size == 1) {
      write_tokens(out, end);
      return;
    }
    while (out != end) {
      const auto length = std::min(layout_.page_size, static_cast<std::size_t>(end - out));
      out = write_run(out, next_first_slot(), length);
    }
  }

 private:
  /// write() at page size 1: a page is a slot, so a batch is copied as it is.
  void write_tokens(SlotId* out, SlotId* end) {
    while (out != end) {
      if (next_ == end_) refill();
      const auto length = std::min(end_ - next_, static_cast<std::size_t>(end - out));
      out = std::transform(&batch_[next_], &batch_[next_] + length, out,
                           [](std::uint32_t page) { return SlotId{page}; });
      next_ += length;
    }
  }

  void refill() {
    PANDO_CHECK(left_ > 0, "more pages were written than planned");
    next_ = 0;
    end_ = std::min(left_, batch_.size());
    left_ -= end_;
    const std::span<std::uint32_t> pages(batch_.data(), end_);
    free_.take(pages);
    if (journal_.active()) journal_.record(PageChange::take, pages);
  }

  const PageLayout layout_;  // a copy: stores to slots then do not make it reload
  FreePages& free_;
  PageJournal<PageChange>& journal_;
  std::size_t left_;
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  std::array<std::uint32_t, 256> batch_;
};

}  // namespace pando
