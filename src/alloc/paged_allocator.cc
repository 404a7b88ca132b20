// SPDX-License-Identifier: Apache-2.0
// PagedAllocator: GrowthPlanner validates a call and counts its pages; only then are pages taken
// and slots written. FreePages keeps the free pages and their order, PageJournal what held states
// need to come back. Belongs to one thread.
//
// Invariant: pages in `collected` (the open free group, or the call under way) are handed out until
// the group ends, so a page that is free when they are applied was merely named twice.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "alloc/free_pages.h"
#include "alloc/growth_plan.h"
#include "alloc/page_journal.h"
#include "alloc/page_layout.h"
#include "alloc/page_taker.h"
#include "base/check.h"
#include "pando/allocators.h"

namespace pando {
namespace {

constexpr std::size_t kMaxPages = std::numeric_limits<std::uint32_t>::max() - 1;

std::size_t count_pages(const PagedAllocator::Options& options) {
  return options.capacity_tokens / options.page_size;
}

}  // namespace

struct PagedAllocator::Impl {
  explicit Impl(const Options& options)
      : layout(options.page_size, count_pages(options)),
        free(static_cast<std::uint32_t>(layout.num_pages), options.order) {}

  GrowthPlanner planner() const { return {layout, free}; }
  PageTaker taker(std::size_t pages) { return {layout, free, journal, pages}; }

  std::optional<std::size_t> collect(std::span<const SlotId> slots);
  void collect(std::size_t page) {
    if (collected.empty() || collected.back() != page) {
      collected.push_back(static_cast<std::uint32_t>(page));
    }
  }
  void apply_collected();

  const PageLayout layout;
  FreePages free;
  PageJournal<PageChange> journal;
  std::size_t num_state_handles = 0;  // AllocatorState objects, those given up included
  std::vector<std::uint32_t> collected;
  bool group_open = false;
};

// ---- Freeing: collect and verify first, apply after.

/// Adds the pages of `slots`, or nothing and the index of a slot whose page is not handed out.
std::optional<std::size_t> PagedAllocator::Impl::collect(std::span<const SlotId> slots) {
  const std::size_t before = collected.size();
  for (std::size_t i = 0; i < slots.size();) {
    const std::size_t page = layout.page_of(slots[i]);
    if (!free.is_handed_out(page)) [[unlikely]] {
      collected.resize(before);
      return i;
    }
    collect(page);
    i = layout.end_of_run(slots, i, page);
  }
  return std::nullopt;
}

void PagedAllocator::Impl::apply_collected() {
  for (const std::uint32_t& page : collected) {
    if (free.put(page) && journal.active()) {
      journal.record(PageChange::put, {&page, 1});
    }
  }
  clear_buffer(collected);
}

void PagedAllocator::free(std::span<const SlotId> slots) {
  if (const std::optional<std::size_t> refused = impl_->collect(slots)) {
    const SlotId slot = slots[*refused];
    const std::size_t page = impl_->layout.page_of(slot);
    PANDO_CHECK(impl_->layout.in_range(page), "free of slot {}: outside [{}, {})", index_of(slot),
                impl_->layout.first_slot(1), impl_->layout.end_slot());
    PANDO_CHECK(!impl_->free.contains(page), "free of slot {}: its page {} is already free",
                index_of(slot), page);
  }
  if (!impl_->group_open) impl_->apply_collected();
}

void PagedAllocator::free_pages(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    PANDO_CHECK(impl_->layout.in_range(index_of(page)), "free of page {}: outside [1, {}]",
                index_of(page), num_pages());
    PANDO_CHECK(!impl_->free.contains(index_of(page)), "free of page {}: it is already free",
                index_of(page));
  }
  for (const PageId page : pages) impl_->collect(index_of(page));
  if (!impl_->group_open) impl_->apply_collected();
}

void PagedAllocator::begin_free_group() {
  PANDO_CHECK(!impl_->group_open, "begin_free_group inside a free group");
  impl_->group_open = true;
}

void PagedAllocator::end_free_group() {
  PANDO_CHECK(impl_->group_open, "end_free_group without begin_free_group");
  impl_->group_open = false;
  impl_->apply_collected();
}

// ---- Allocation.

Status PagedAllocator::alloc(std::span<SlotId> out) {
  if (impl_->layout.offset_in_page(out.size()) != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "alloc of {} tokens, expected a multiple of the page size {}", out.size(),
                      page_size());
  }
  const std::size_t pages = out.size() >> impl_->layout.shift;
  if (Status room = impl_->planner().check_room(pages); !room) return room;
  impl_->taker(pages).write(out.data(), out.data() + out.size());
  return {};
}

Result<std::size_t> PagedAllocator::plan_extend(std::span<const std::size_t> prefix_lens,
                                                std::span<const std::size_t> seq_lens,
                                                std::span<const SlotId> last_slots,
                                                std::size_t out_size) const {
  return impl_->planner().plan_extend(prefix_lens, seq_lens, last_slots, out_size);
}

Result<std::size_t> PagedAllocator::plan_decode(std::span<const std::size_t> seq_lens,
                                                std::span<const SlotId> last_slots,
                                                std::size_t out_size) const {
  return impl_->planner().plan_decode(seq_lens, last_slots, out_size);
}

Status PagedAllocator::alloc_extend(std::span<const std::size_t> prefix_lens,
                                    std::span<const std::size_t> seq_lens,
                                    std::span<const SlotId> last_slots, std::span<SlotId> out) {
  const Result<std::size_t> pages =
      impl_->planner().plan_extend(prefix_lens, seq_lens, last_slots, out.size());
  if (!pages) return pages.error();
  if (Status room = impl_->planner().check_room(*pages); !room) return room;

  PageTaker taker = impl_->taker(*pages);
  SlotId* next = out.data();
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    SlotId* const end = next + (seq_lens[i] - prefix_lens[i]);
    if (const std::size_t open = impl_->layout.offset_in_page(prefix_lens[i]); open != 0) {
      const auto length = std::min(page_size() - open, static_cast<std::size_t>(end - next));
      next = write_run(next, index_of(next_slot(last_slots[i])), length);
    }
    taker.write(next, end);
    next = end;
  }
  return {};
}

Status PagedAllocator::alloc_decode(std::span<const std::size_t> seq_lens,
                                    std::span<const SlotId> last_slots, std::span<SlotId> out) {
  const Result<std::size_t> pages = impl_->planner().plan_decode(seq_lens, last_slots, out.size());
  if (!pages) return pages.error();
  if (Status room = impl_->planner().check_room(*pages); !room) return room;

  impl_->taker(*pages).write_next(seq_lens, last_slots, out);
  return {};
}

std::size_t PagedAllocator::pages_for_extend(std::span<const std::size_t> prefix_lens,
                                             std::span<const std::size_t> seq_lens) const {
  PANDO_CHECK(prefix_lens.size() == seq_lens.size(), "{} prefix lengths, {} sequence lengths",
              prefix_lens.size(), seq_lens.size());
  std::size_t pages = 0;
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    PANDO_CHECK(prefix_lens[i] <= seq_lens[i],
                "request {}: sequence length {} is below its prefix length {}", i, seq_lens[i],
                prefix_lens[i]);
    pages += impl_->layout.pages_to_hold(seq_lens[i]) - impl_->layout.pages_to_hold(prefix_lens[i]);
  }
  return pages;
}

std::size_t PagedAllocator::pages_for_decode(std::span<const std::size_t> seq_lens) const {
  std::size_t pages = 0;
  for (const std::size_t seq : seq_lens) {
    PANDO_CHECK(seq > 0, "a sequence length of 0 does not count the new token");
    pages += impl_->layout.offset_in_page(seq - 1) == 0;
  }
  return pages;
}

// ---- States.

AllocatorState PagedAllocator::backup_state() {
  PANDO_CHECK(!impl_->group_open, "backup_state inside a free group");
  ++impl_->num_state_handles;
  return AllocatorState(this, impl_->journal.open());
}

void PagedAllocator::restore_state(AllocatorState state) {
  PANDO_CHECK(state.owner_ != nullptr, "restore of a state that was moved from");
  PANDO_CHECK(state.owner_ == this, "restore of a state of another allocator");
  PANDO_CHECK(!impl_->group_open, "restore_state inside a free group");
  PANDO_CHECK(impl_->journal.holds(state.mark_),
              "restore of a state given up when an older one was restored");
  impl_->journal.rewind(state.mark_, [this](PageChange change, std::uint32_t page) {
    if (change == PageChange::take) {
      impl_->free.undo_take(page);
    } else {
      impl_->free.undo_put(page);
    }
  });
}

void PagedAllocator::drop_state(std::size_t mark) {
  impl_->journal.close(mark);
  --impl_->num_state_handles;
}

AllocatorState::AllocatorState(AllocatorState&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), mark_(other.mark_) {}

AllocatorState& AllocatorState::operator=(AllocatorState&& other) noexcept {
  if (this != &other) {
    if (owner_ != nullptr) owner_->drop_state(mark_);
    owner_ = std::exchange(other.owner_, nullptr);
    mark_ = other.mark_;
  }
  return *this;
}

AllocatorState::~AllocatorState() {
  if (owner_ != nullptr) owner_->drop_state(mark_);
}

// ---- Life and figures.

Status PagedAllocator::Options::validate() const {
  if (!std::has_single_bit(page_size)) {
    return make_error(ErrorCode::invalid_argument, "page_size is {}, expected a power of two",
                      page_size);
  }
  const std::size_t num_pages = count_pages(*this);
  if (num_pages == 0) {
    return make_error(ErrorCode::invalid_argument,
                      "capacity_tokens is {}, expected at least one page of {} tokens",
                      capacity_tokens, page_size);
  }
  if (num_pages > kMaxPages) {
    return make_error(ErrorCode::invalid_argument,
                      "capacity_tokens {} makes {} pages of {}, expected at most {} pages",
                      capacity_tokens, num_pages, page_size, kMaxPages);
  }
  if (page_size > std::numeric_limits<std::int64_t>::max() / (num_pages + 1)) {
    return make_error(
        ErrorCode::invalid_argument,
        "capacity_tokens {} and the padding page of {} exceed what a slot id can name",
        capacity_tokens, page_size);
  }
  return {};
}

Result<std::unique_ptr<PagedAllocator>> PagedAllocator::create(const Options& options) {
  if (Status status = options.validate(); !status) return status.error();
  return std::unique_ptr<PagedAllocator>(new PagedAllocator(std::make_unique<Impl>(options)));
}

PagedAllocator::PagedAllocator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PagedAllocator::~PagedAllocator() {
  PANDO_CHECK(impl_->num_state_handles == 0, "{} states outlive their allocator",
              impl_->num_state_handles);
}

Status PagedAllocator::clear() {
  if (impl_->journal.active()) {
    return make_error(ErrorCode::in_use, "clear while a state is held");
  }
  if (impl_->group_open) return make_error(ErrorCode::in_use, "clear inside a free group");
  impl_->free.reset();
  return {};
}

std::size_t PagedAllocator::page_size() const { return impl_->layout.page_size; }
std::size_t PagedAllocator::num_pages() const { return impl_->layout.num_pages; }
std::size_t PagedAllocator::capacity() const {
  return impl_->layout.num_pages * impl_->layout.page_size;
}
std::size_t PagedAllocator::available() const {
  return impl_->free.count() * impl_->layout.page_size;
}
std::size_t PagedAllocator::available_pages() const { return impl_->free.count(); }

bool PagedAllocator::is_free(PageId page) const {
  PANDO_CHECK(index_of(page) <= num_pages(), "page {} is outside [0, {}]", index_of(page),
              num_pages());
  return impl_->free.contains(index_of(page));
}

std::size_t PagedAllocator::memory_bytes() const {
  return sizeof(*this) + sizeof(Impl) + impl_->free.memory_bytes() + impl_->journal.memory_bytes() +
         impl_->collected.capacity() * sizeof(impl_->collected[0]);
}

Status PagedAllocator::check() const {
  if (Status status = impl_->free.check(); !status) return status;
  for (const std::uint32_t page : impl_->collected) {
    if (!impl_->free.is_handed_out(page)) {
      return make_error(ErrorCode::corrupt, "page {} is in a free group, but not handed out", page);
    }
  }
  return impl_->journal.check();
}

Result<std::unique_ptr<PagedAllocator>> make_token_allocator(std::size_t capacity_tokens,
                                                             ReuseOrder order) {
  return PagedAllocator::create({capacity_tokens, 1, order});
}

}  // namespace pando
