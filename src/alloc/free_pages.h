// SPDX-License-Identifier: Apache-2.0
// The free pages of a paged allocator, in the order in which they are handed out. Private to
// PagedAllocator, which validates page ids and room before it calls.
//
// Invariant: a bit per page says whether it is free. With ReuseOrder::fifo a ring holds the same
// pages, longest free first (4 bytes and 1 bit per page). With ReuseOrder::sorted the bits are all
// there is: the lowest free page is found through the levels of the mask, so nothing is ever
// sorted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/bitmask.h"
#include "base/check.h"
#include "pando/allocators.h"

namespace pando {

class FreePages {
 public:
  /// Pages [1, num_pages], all free.
  FreePages(std::uint32_t num_pages, ReuseOrder order)
      : mask_(std::size_t{num_pages} + 1), ring_(order == ReuseOrder::fifo ? num_pages : 0) {
    reset();
  }

  /// All pages are free, ascending.
  void reset() {
    mask_.fill();
    mask_.clear(0);  // the padding page
    head_ = 0;
    std::iota(ring_.begin(), ring_.end(), 1u);
  }

  std::size_t count() const { return mask_.count(); }
  bool contains(std::size_t page) const { return mask_.test(page); }
  /// False for what is no page, or the padding page.
  bool is_handed_out(std::size_t page) const {
    return page != 0 && page < mask_.size() && !mask_.test(page);
  }

  /// Hands out the next out.size() pages; there must be that many.
  void take(std::span<std::uint32_t> out) {
    PANDO_CHECK(out.size() <= count(), "take of {} pages, {} are free", out.size(), count());
    if (ring_.empty()) {
      mask_.take_first(out);
      return;
    }
    const std::size_t to_wrap = std::min(out.size(), ring_.size() - head_);
    std::copy_n(ring_.data() + head_, to_wrap, out.data());
    std::copy_n(ring_.data(), out.size() - to_wrap, out.data() + to_wrap);
    head_ = wrap(head_ + out.size());
    for (const std::uint32_t page : out) mask_.clear(page);
  }

  /// Takes a page back; false, and no change, when it is free already.
  bool put(std::uint32_t page) {
    const std::size_t tail = head_ + count();
    if (!mask_.set(page)) return false;
    if (!ring_.empty()) ring_[wrap(tail)] = page;
    return true;
  }

  /// The reverse of a take of one page, and of a put; the last change is undone first.
  void undo_take(std::uint32_t page) {
    const bool was_taken = mask_.set(page);
    PANDO_CHECK(was_taken, "undo: page {} was handed out, but is free", page);
    if (ring_.empty()) return;
    head_ = head_ == 0 ? ring_.size() - 1 : head_ - 1;
    ring_[head_] = page;
  }
  void undo_put(std::uint32_t page) {
    const bool was_free = mask_.clear(page);
    PANDO_CHECK(was_free, "undo: page {} was freed, but is handed out", page);
    PANDO_CHECK(ring_.empty() || ring_[wrap(head_ + count())] == page,
                "undo: page {} is not the last one freed", page);
  }

  std::size_t memory_bytes() const {
    return mask_.memory_bytes() + ring_.capacity() * sizeof(ring_[0]);
  }

  /// Proves the invariant: the ring holds each free page once and nothing else.
  Status check() const {
    if (Status status = mask_.check(); !status) return status;
    if (mask_.test(0)) return make_error(ErrorCode::corrupt, "the padding page is free");
    if (ring_.empty()) return {};
    HierarchicalBitmask unseen = mask_;
    for (std::size_t i = 0; i < count(); ++i) {
      const std::uint32_t page = ring_[wrap(head_ + i)];
      if (page >= unseen.size() || !unseen.clear(page)) {
        return make_error(ErrorCode::corrupt, "page {} is in the ring, but is {}", page,
                          page < mask_.size() && mask_.test(page) ? "there twice" : "not free");
      }
    }
    return {};
  }

 private:
  std::size_t wrap(std::size_t i) const { return i < ring_.size() ? i : i - ring_.size(); }

  HierarchicalBitmask mask_;         // bit p: page p is free
  std::vector<std::uint32_t> ring_;  // fifo only; count() pages from head_ on
  std::size_t head_ = 0;
};

}  // namespace pando
