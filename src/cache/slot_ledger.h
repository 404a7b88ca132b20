// SPDX-License-Identifier: Apache-2.0
// Which pages are the tree's, and the way back for slots nobody needs any more: to Pando's
// allocator, or to an engine's through its sink. PrefixCache claims pages before it gives them to
// the index, and flushes once per operation, so that an engine gets one batch.
//
// Invariant: a page's bit is set exactly while a node holds it. A page that is free in the
// allocator, claimed twice, not whole, or out of range is refused by claim(), with a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pando/allocator.h"
#include "pando/cache.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class SlotLedger {
 public:
  explicit SlotLedger(PagedAllocator& allocator);
  SlotLedger(SlotSink sink, std::size_t max_slots, std::size_t page_size);

  std::size_t page_size() const { return page_size_; }
  PagedAllocator* allocator() const { return allocator_; }

  /// Marks the pages of slots[0, n * page_size) as the tree's and writes them to `pages`. All or
  /// none; the error names the slot and where in the key it stands, given that of the first.
  Status claim(const SlotId* slots, std::size_t n, std::uint32_t* pages, std::size_t position);
  /// An error unless slots[0, page_size) are one whole page in order.
  Status refuse_broken_page(const SlotId* slots, std::size_t position) const;
  void unclaim(PageId page) { word(page) &= ~bit(page); }
  bool is_claimed(PageId page) const { return (word(page) & bit(page)) != 0; }

  /// Takes pages that the tree let go of (claimed), or duplicates (not claimed).
  void release(std::span<const PageId> pages);
  /// Takes slots straight from a request. Those of the tree, or out of range, stop at a check.
  void release(std::span<const SlotId> slots);
  /// Hands everything released since the last flush to the allocator or the sink.
  void flush();

  /// Whether exactly `pages` are claimed and none of them is free in the allocator.
  Status check(std::span<const PageId> pages) const;
  std::size_t memory_bytes() const { return claimed_.capacity() * sizeof(std::uint64_t); }

 private:
  std::uint64_t& word(PageId page) { return claimed_[index_of(page) / 64]; }
  const std::uint64_t& word(PageId page) const { return claimed_[index_of(page) / 64]; }
  Status refuse(const SlotId* slots, std::size_t position, const char* why) const;
  static std::uint64_t bit(PageId page) { return std::uint64_t{1} << index_of(page) % 64; }

  PagedAllocator* allocator_ = nullptr;
  SlotSink sink_;
  std::size_t page_size_;
  std::uint64_t end_slot_;  // slots in [page_size, end_slot_) exist
  std::vector<std::uint64_t> claimed_;
  std::vector<PageId> pages_;  // released, not yet flushed
  std::vector<SlotId> slots_;
};

}  // namespace pando
