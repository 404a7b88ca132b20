// SPDX-License-Identifier: Apache-2.0
// Claims and returns of pages; see the header.
#include "cache/slot_ledger.h"

#include <bit>

#include "base/append.h"
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

SlotLedger::SlotLedger(WindowAllocator& allocator)
    : window_allocator_(&allocator),
      page_size_(allocator.page_size()),
      end_slot_((allocator.full().num_pages() + 1) * page_size_),
      claimed_(allocator.full().num_pages() / 64 + 1) {}

SlotLedger::SlotLedger(EngineSlots engine)
    : engine_(std::move(engine)),
      page_size_(engine_.page_size),
      end_slot_(engine_.max_slots / page_size_ * page_size_),
      claimed_(engine_.max_slots / page_size_ / 64 + 1) {}

const PagedAllocator* SlotLedger::full_side() const {
  return window_allocator_ != nullptr ? &window_allocator_->full() : allocator_;
}

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

Status SlotLedger::refuse_slot(SlotId slot, std::size_t position, const char* caller) const {
  const std::int64_t i = index_of(slot);
  const bool exists =
      i >= static_cast<std::int64_t>(page_size_) && static_cast<std::uint64_t>(i) < end_slot_;
  if (exists && !is_claimed(page_of(slot))) return {};
  return make_error(ErrorCode::invalid_argument,
                    "{}: slot {} at position {} {} (page size {}, slots in [{}, {}))", caller, i,
                    position, exists ? "is the tree's" : "does not exist", page_size_, page_size_,
                    end_slot_);
}

Status SlotLedger::claim(const SlotId* slots, std::size_t n, std::uint32_t* pages,
                         std::size_t position, bool with_window) {
  const std::size_t whole = gather_pages(slots, n, page_size_, pages);
  const PagedAllocator* const full = full_side();
  const WindowAllocator* const windows = with_window ? window_allocator_ : nullptr;
  const char* why = nullptr;
  std::size_t i = 0;
  for (; i < whole; ++i) {
    const PageId page{pages[i]};
    why = pages[i] == 0 || pages[i] * std::uint64_t{page_size_} >= end_slot_ ? "is out of range"
          : is_claimed(page) ? "is the tree's already: it cannot be inserted twice"
          : full != nullptr && full->is_free(page)
              ? "is free: it was never handed out, or was freed"
          : windows != nullptr && !windows->has_window(page)
              ? "has given back its window side, beyond what window_released says"
              : nullptr;
    if (why != nullptr) break;
    word(page) |= bit(page);
  }
  if (i == n) return {};
  for (std::size_t done = 0; done < i; ++done) unclaim(PageId{pages[done]});
  return refuse(slots + i * page_size_, position + i * page_size_, i == whole ? kBroken : why);
}

// ---- For pages that come back from the host ----------------------------------------------------

bool SlotLedger::can_load(bool with_window) const {
  if (full_side() != nullptr) return true;
  return engine_.alloc && (!with_window || (engine_.alloc_window && engine_.translate));
}

Status SlotLedger::alloc(std::size_t num_pages, std::vector<PageId>& out) {
  std::vector<SlotId> slots(num_pages * page_size_);
  Status status;
  if (window_allocator_ != nullptr) {
    status = window_allocator_->alloc_full(slots);
  } else if (allocator_ != nullptr) {
    status = allocator_->alloc(slots);
  } else if (!engine_.alloc(slots)) {
    status = make_error(ErrorCode::out_of_capacity, "the engine has no {} slots", slots.size());
  }
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < num_pages; ++i) {
    if (Status s = refuse_broken_page(slots.data() + i * page_size_, i * page_size_); !s) {
      release(std::span<const SlotId>(slots));
      return s;
    }
  }
  for (std::size_t i = 0; i < slots.size(); i += page_size_) {
    const PageId page{
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(index_of(slots[i])) / page_size_)};
    PANDO_CHECK(!is_claimed(page), "page {} was handed out, but is the tree's", index_of(page));
    word(page) |= bit(page);
    out.push_back(page);
  }
  return {};
}

Status SlotLedger::alloc_window(std::span<const PageId> pages) {
  if (window_allocator_ != nullptr) return window_allocator_->alloc_window(pages);
  std::vector<SlotId> slots;
  append_slots(pages, slots);
  if (engine_.alloc_window(slots)) return {};
  return make_error(ErrorCode::out_of_capacity, "the engine has no {} window slots", slots.size());
}

void SlotLedger::window_pages(std::span<const PageId> pages, std::vector<PageId>& out) const {
  std::vector<SlotId> first;
  for (const PageId page : pages)
    first.push_back(SlotId{static_cast<std::int64_t>(index_of(page) * page_size_)});
  std::vector<SlotId> window(first.size());
  if (window_allocator_ != nullptr) {
    window_allocator_->translate(first, window);
  } else {
    engine_.translate(first, window);
  }
  for (const SlotId slot : window)
    out.push_back(PageId{
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(index_of(slot)) / page_size_)});
}

// ---- Going back --------------------------------------------------------------------------------

void SlotLedger::release(std::span<const PageId> pages) {
  for (const PageId page : pages) unclaim(page);
  append(pages_, pages);
}

void SlotLedger::check_not_the_trees(SlotId slot, const char* call) const {
  const auto index = static_cast<std::uint64_t>(index_of(slot));
  PANDO_CHECK(index >= page_size_ && index < end_slot_, "{} of slot {}: outside [{}, {})", call,
              index_of(slot), page_size_, end_slot_);
  PANDO_CHECK(!is_claimed(PageId{static_cast<std::uint32_t>(index / page_size_)}),
              "{} of slot {}: it is the tree's", call, index_of(slot));
}

void SlotLedger::release(std::span<const SlotId> slots) {
  for (const SlotId slot : slots) check_not_the_trees(slot, "free");
  append(slots_, slots);
}

void SlotLedger::release_window(std::span<const PageId> pages) { append(window_pages_, pages); }

void SlotLedger::release_window(std::span<const SlotId> slots) {
  for (std::size_t i = 0; i < slots.size(); i += page_size_)
    check_not_the_trees(slots[i], "release_window");
  append(window_slots_, slots);
}

void SlotLedger::move_window(PageId from, PageId to) {
  moved_from_.push_back(from);
  moved_to_.push_back(to);
}

void SlotLedger::flush() {
  if (window_allocator_ != nullptr) {
    for (std::size_t i = 0; i < moved_from_.size(); ++i)
      window_allocator_->move_window(moved_from_[i], moved_to_[i]);
    if (!window_pages_.empty()) window_allocator_->free_window_pages(window_pages_);
    if (!window_slots_.empty()) window_allocator_->free_window(window_slots_);
    if (!pages_.empty()) window_allocator_->free_pages(pages_);
    if (!slots_.empty()) window_allocator_->free(slots_);
  } else if (allocator_ != nullptr) {
    if (!pages_.empty()) allocator_->free_pages(pages_);
    if (!slots_.empty()) allocator_->free(slots_);
  } else {
    flush_to_engine();
  }
  pages_.clear();
  slots_.clear();
  window_pages_.clear();
  window_slots_.clear();
  moved_from_.clear();
  moved_to_.clear();
}

void SlotLedger::append_slots(std::span<const PageId> pages, std::vector<SlotId>& to) const {
  const std::size_t first = to.size();
  to.resize(first + pages.size() * page_size_);
  expand_pages(pages, page_size_, to.data() + first);
}

void SlotLedger::flush_to_engine() {
  if (!moved_from_.empty()) {
    std::vector<SlotId> from, to;
    append_slots(moved_from_, from);
    append_slots(moved_to_, to);
    engine_.move_window(from, to);
  }
  append_slots(window_pages_, window_slots_);
  if (!window_slots_.empty()) engine_.free_window(window_slots_);
  append_slots(pages_, slots_);
  if (!slots_.empty()) engine_.free(slots_);
}

Status SlotLedger::check(std::span<const PageId> pages) const {
  std::size_t claimed = 0;
  for (const std::uint64_t word : claimed_)
    claimed += static_cast<std::size_t>(std::popcount(word));
  if (claimed != pages.size())
    return make_error(ErrorCode::corrupt, "slot ledger: {} pages claimed, the tree has {}", claimed,
                      pages.size());
  for (const PageId page : pages) {
    if (!is_claimed(page) || (full_side() != nullptr && full_side()->is_free(page)))
      return make_error(ErrorCode::corrupt, "slot ledger: page {} of the tree is {}",
                        index_of(page), is_claimed(page) ? "free in the allocator" : "not claimed");
  }
  return {};
}

Status SlotLedger::check_owned(std::vector<PageId> pages) const {
  std::sort(pages.begin(), pages.end());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const char* const wrong = i > 0 && pages[i] == pages[i - 1] ? "is another one's too"
                              : is_claimed(pages[i])            ? "is the tree's"
                              : full_side() != nullptr && full_side()->is_free(pages[i])
                                  ? "is free in the allocator"
                                  : nullptr;
    if (wrong != nullptr)
      return make_error(ErrorCode::corrupt, "slot ledger: page {} of a request {}",
                        index_of(pages[i]), wrong);
  }
  return {};
}

}  // namespace pando
