// SPDX-License-Identifier: Apache-2.0
// Claims and returns of pages; see the header.
#include "cache/slot_ledger.h"

#include <bit>

#include "base/bulk.h"
#include "base/check.h"

namespace pando {
namespace {

constexpr const char* kBroken = "does not begin a whole page in order";

}  // namespace

SlotLedger::SlotLedger(PagedAllocator& allocator)
    : allocator_(&allocator),
      page_size_(allocator.page_size()),
      end_slot_((allocator.num_pages() + 1) * page_size_),
      claimed_(allocator.num_pages() / 64 + 1) {}

SlotLedger::SlotLedger(SlotSink sink, std::size_t max_slots, std::size_t page_size)
    : sink_(std::move(sink)),
      page_size_(page_size),
      end_slot_(max_slots / page_size * page_size),
      claimed_(max_slots / page_size / 64 + 1) {}

Status SlotLedger::refuse(const SlotId* slots, std::size_t position, const char* why) const {
  return make_error(ErrorCode::invalid_argument,
                    "slot {} at position {} {} (page size {}, slots in [{}, {}))",
                    index_of(slots[0]), position, why, page_size_, page_size_, end_slot_);
}

Status SlotLedger::refuse_broken_page(const SlotId* slots, std::size_t position) const {
  std::uint32_t page;
  if (gather_pages(slots, 1, page_size_, &page) == 1) return {};
  return refuse(slots, position, kBroken);
}

Status SlotLedger::claim(const SlotId* slots, std::size_t n, std::uint32_t* pages,
                         std::size_t position) {
  const std::size_t whole = gather_pages(slots, n, page_size_, pages);
  const char* why = nullptr;
  std::size_t i = 0;
  for (; i < whole; ++i) {
    const PageId page{pages[i]};
    why = pages[i] == 0 || pages[i] * std::uint64_t{page_size_} >= end_slot_ ? "is out of range"
          : is_claimed(page) ? "is the tree's already: it cannot be inserted twice"
          : allocator_ != nullptr && allocator_->is_free(page)
              ? "is free: it was never handed out, or was freed"
              : nullptr;
    if (why != nullptr) break;
    word(page) |= bit(page);
  }
  if (i == n) return {};
  for (std::size_t done = 0; done < i; ++done) unclaim(PageId{pages[done]});
  return refuse(slots + i * page_size_, position + i * page_size_, i == whole ? kBroken : why);
}

void SlotLedger::release(std::span<const PageId> pages) {
  for (const PageId page : pages) unclaim(page);
  pages_.insert(pages_.end(), pages.begin(), pages.end());
}

void SlotLedger::release(std::span<const SlotId> slots) {
  for (const SlotId slot : slots) {
    const auto index = static_cast<std::uint64_t>(index_of(slot));
    PANDO_CHECK(index >= page_size_ && index < end_slot_, "free of slot {}: outside [{}, {})",
                index_of(slot), page_size_, end_slot_);
    PANDO_CHECK(!is_claimed(PageId{static_cast<std::uint32_t>(index / page_size_)}),
                "free of slot {}: it is the tree's", index_of(slot));
  }
  slots_.insert(slots_.end(), slots.begin(), slots.end());
}

void SlotLedger::flush() {
  if (pages_.empty() && slots_.empty()) return;
  if (allocator_ != nullptr) {
    allocator_->free_pages(pages_);
    if (!slots_.empty()) allocator_->free(slots_);
  } else {
    const std::size_t first = slots_.size();
    slots_.resize(first + pages_.size() * page_size_);
    expand_pages(pages_, page_size_, slots_.data() + first);
    sink_(slots_);
  }
  pages_.clear();
  slots_.clear();
}

Status SlotLedger::check(std::span<const PageId> pages) const {
  std::size_t claimed = 0;
  for (const std::uint64_t word : claimed_)
    claimed += static_cast<std::size_t>(std::popcount(word));
  if (claimed != pages.size())
    return make_error(ErrorCode::corrupt, "slot ledger: {} pages claimed, the tree has {}", claimed,
                      pages.size());
  for (const PageId page : pages) {
    if (!is_claimed(page) || (allocator_ != nullptr && allocator_->is_free(page)))
      return make_error(ErrorCode::corrupt, "slot ledger: page {} of the tree is {}",
                        index_of(page), is_claimed(page) ? "free in the allocator" : "not claimed");
  }
  return {};
}

}  // namespace pando
