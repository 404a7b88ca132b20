// SPDX-License-Identifier: Apache-2.0
// Which pages are the tree's, and the way back for slots nobody needs any more: to Pando's
// allocators, or to an engine's through its functions. PrefixCache claims pages before it gives
// them to the index, and flushes once per operation, so that an engine gets one batch.
//
// Invariant: a page's bit is set exactly while a node holds it. A page that is free in the
// allocator, claimed twice, not whole, or out of range is refused by claim(), with a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pando/allocators.h"
#include "pando/paths.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class SlotLedger {
 public:
  explicit SlotLedger(PagedAllocator& allocator);
  explicit SlotLedger(WindowAllocator& allocator);
  explicit SlotLedger(EngineSlots engine);

  std::size_t page_size() const { return page_size_; }
  /// Where full slots come from; nullptr for an engine's.
  const PagedAllocator* full_side() const;
  /// nullptr without a window, and for an engine's slots.
  const WindowAllocator* window_allocator() const { return window_allocator_; }
  /// fn(allocator), whichever it is; there is one.
  template <typename Fn>
  Status with_allocator(Fn&& fn) const {
    return window_allocator_ != nullptr ? fn(*window_allocator_) : fn(*allocator_);
  }

  /// Marks the pages of slots[0, n * page_size) as the tree's and writes them to `pages`. All or
  /// none; the error names the slot and where in the key it stands, given that of the first.
  /// `with_window`: they must have a window side, as far as that can be known here.
  Status claim(const SlotId* slots, std::size_t n, std::uint32_t* pages, std::size_t position,
               bool with_window);
  /// An error unless slots[0, page_size) are one whole page in order.
  Status refuse_broken_page(const SlotId* slots, std::size_t position) const;
  /// An error unless this slot may be a request's own: it exists, and is not the tree's.
  Status refuse_slot(SlotId slot, std::size_t position, const char* caller) const;
  /// The padding page included.
  std::size_t num_pages() const { return static_cast<std::size_t>(end_slot_ / page_size_); }
  /// Whether there is a way to take pages at all.
  bool can_load(bool with_window) const;
  /// Takes pages for the tree, without a window side: appends them to `out`, or nothing.
  Status alloc(std::size_t num_pages, std::vector<PageId>& out);
  /// Gives pages of the tree, which have none, their window side.
  Status alloc_window(std::span<const PageId> pages);
  /// The window page of each page, which has one.
  void window_pages(std::span<const PageId> pages, std::vector<PageId>& out) const;
  void unclaim(PageId page) { word(page) &= ~bit(page); }
  PageId page_of(SlotId slot) const {
    return PageId{
        static_cast<std::uint32_t>(static_cast<std::size_t>(index_of(slot)) / page_size_)};
  }
  bool is_claimed(PageId page) const { return (word(page) & bit(page)) != 0; }

  /// Takes pages that the tree let go of (claimed), or duplicates (not claimed).
  void release(std::span<const PageId> pages);
  /// Takes slots straight from a request. Those of the tree, or out of range, stop at a check.
  void release(std::span<const SlotId> slots);
  /// Takes the window side alone, of the tree's pages, or of whole pages of a request: those of the
  /// tree, or out of range, stop at a check.
  void release_window(std::span<const PageId> pages);
  void release_window(std::span<const SlotId> slots);
  /// The window side of page `from` is page `to`'s.
  void move_window(PageId from, PageId to);
  /// Hands everything since the last flush to the allocator or the engine.
  void flush();

  /// Whether exactly `pages` are claimed and none of them is free in the allocator.
  Status check(std::span<const PageId> pages) const;
  /// Whether these pages, which requests own, differ and are neither claimed nor free.
  Status check_owned(std::vector<PageId> pages) const;
  std::size_t memory_bytes() const { return claimed_.capacity() * sizeof(std::uint64_t); }

 private:
  std::uint64_t& word(PageId page) { return claimed_[index_of(page) / 64]; }
  const std::uint64_t& word(PageId page) const { return claimed_[index_of(page) / 64]; }
  Status refuse(const SlotId* slots, std::size_t position, const char* why) const;
  void check_not_the_trees(SlotId slot, const char* call) const;
  void append_slots(std::span<const PageId> pages, std::vector<SlotId>& to) const;
  void flush_to_engine();
  static std::uint64_t bit(PageId page) { return std::uint64_t{1} << index_of(page) % 64; }

  PagedAllocator* allocator_ = nullptr;
  WindowAllocator* window_allocator_ = nullptr;
  EngineSlots engine_;
  std::size_t page_size_;
  std::uint64_t end_slot_;  // slots in [page_size, end_slot_) exist
  std::vector<std::uint64_t> claimed_;
  // Released, not yet flushed.
  std::vector<PageId> pages_;
  std::vector<SlotId> slots_;
  std::vector<PageId> window_pages_;
  std::vector<SlotId> window_slots_;
  std::vector<PageId> moved_from_, moved_to_;
};

}  // namespace pando
