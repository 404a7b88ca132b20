// SPDX-License-Identifier: Apache-2.0
// WindowAllocator: two PagedAllocators, and WindowPairs to say which pages belong together. A call
// first plans (the full side says how many pages it will take, the same on both sides, or refuses)
// and makes sure of room on both; then the full side writes the slots, and each page that begins in
// them gets a window page (PairMaker). What is freed passes through WindowFrees. Belongs to one
// thread.
//
// Invariant: a window page that is handed out is in one pair, or in `frees` until the open group
// ends. The full side's own group is open as long, but empty: it refuses what a group refuses.
#include "pando/allocators.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "alloc/page_layout.h"
#include "alloc/pair_maker.h"
#include "alloc/window_frees.h"
#include "alloc/window_pairs.h"
#include "base/check.h"

namespace pando {
namespace {

PagedAllocator::Options full_side(const WindowAllocator::Options& options) {
  return {options.full_tokens, options.page_size, options.order};
}

PagedAllocator::Options window_side(const WindowAllocator::Options& options) {
  return {options.window_tokens, options.page_size, options.order};
}

Status name_side(std::string_view side, Status status) {
  if (status) return status;
  return make_error(status.error().code, "{} pool: {}", side, status.error().message);
}

Status check_room(std::string_view side, const PagedAllocator& pool, std::size_t pages) {
  if (pages <= pool.available_pages()) return {};
  return make_error(ErrorCode::out_of_capacity,
                    "{} pool: {} tokens needed ({} pages of {}), {} tokens available", side,
                    pages * pool.page_size(), pages, pool.page_size(), pool.available());
}

}  // namespace

struct WindowAllocator::Impl {
  Impl(std::unique_ptr<PagedAllocator> full_pool, std::unique_ptr<PagedAllocator> window_pool)
      : full(std::move(full_pool)), window(std::move(window_pool)), pairs(*full), frees(pairs) {}

  Status refuse_closed_window(std::size_t request, SlotId last) const;
  Status check_room_on_both(std::size_t pages) const;
  void apply_frees();
  Status check_window_pages() const;

  const std::unique_ptr<PagedAllocator> full;
  const std::unique_ptr<PagedAllocator> window;
  WindowPairs pairs;
  WindowFrees frees;
  bool group_open = false;
};

// ---- Allocation.

Status WindowAllocator::Impl::check_room_on_both(std::size_t pages) const {
  if (Status room = check_room("full", *full, pages); !room) return room;
  return check_room("window", *window, pages);
}

// The open page of a request grows on both sides: it must have its window page still.
Status WindowAllocator::Impl::refuse_closed_window(std::size_t request, SlotId last) const {
  const std::size_t page = pairs.layout().page_of(last);
  if (pairs.has(page)) return {};
  return make_error(ErrorCode::invalid_argument,
                    "request {}: last slot {} lies in page {}, which is open, but has no window "
                    "page any more",
                    request, index_of(last), page);
}

Status WindowAllocator::alloc(std::span<SlotId> out) {
  const PageLayout& layout = impl_->pairs.layout();
  if (layout.offset_in_page(out.size()) != 0) return impl_->full->alloc(out);  // refuses
  const std::size_t pages = out.size() >> layout.shift;
  if (Status room = impl_->check_room_on_both(pages); !room) return room;
  if (Status taken = impl_->full->alloc(out); !taken) return taken;

  PairMaker maker(*impl_->window, impl_->pairs, pages);
  for (std::size_t i = 0; i < out.size(); i += layout.page_size) maker.join(layout.page_of(out[i]));
  return {};
}

Status WindowAllocator::alloc_extend(std::span<const std::size_t> prefix_lens,
                                     std::span<const std::size_t> seq_lens,
                                     std::span<const SlotId> last_slots, std::span<SlotId> out) {
  const PageLayout& layout = impl_->pairs.layout();
  const Result<std::size_t> pages =
      impl_->full->plan_extend(prefix_lens, seq_lens, last_slots, out.size());
  if (!pages) return pages.error();
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    if (layout.offset_in_page(prefix_lens[i]) == 0 || seq_lens[i] == prefix_lens[i]) continue;
    if (Status s = impl_->refuse_closed_window(i, last_slots[i]); !s) return s;
  }
  if (Status room = impl_->check_room_on_both(*pages); !room) return room;
  if (Status taken = impl_->full->alloc_extend(prefix_lens, seq_lens, last_slots, out); !taken) {
    return taken;
  }

  PairMaker maker(*impl_->window, impl_->pairs, *pages);
  std::size_t begin = 0;  // of request i in out
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    const std::size_t end = begin + (seq_lens[i] - prefix_lens[i]);
    const std::size_t open = layout.offset_in_page(prefix_lens[i]);
    const std::size_t first_new = begin + (open == 0 ? 0 : layout.page_size - open);
    for (std::size_t at = first_new; at < end; at += layout.page_size) {
      maker.join(layout.page_of(out[at]));
    }
    begin = end;
  }
  return {};
}

Status WindowAllocator::alloc_decode(std::span<const std::size_t> seq_lens,
                                     std::span<const SlotId> last_slots, std::span<SlotId> out) {
  const PageLayout& layout = impl_->pairs.layout();
  const Result<std::size_t> pages = impl_->full->plan_decode(seq_lens, last_slots, out.size());
  if (!pages) return pages.error();
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    if (layout.offset_in_page(seq_lens[i] - 1) == 0) continue;
    if (Status s = impl_->refuse_closed_window(i, last_slots[i]); !s) return s;
  }
  if (Status room = impl_->check_room_on_both(*pages); !room) return room;
  if (Status taken = impl_->full->alloc_decode(seq_lens, last_slots, out); !taken) return taken;

  PairMaker maker(*impl_->window, impl_->pairs, *pages);
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    if (layout.offset_in_page(seq_lens[i] - 1) == 0) maker.join(layout.page_of(out[i]));
  }
  return {};
}

Status WindowAllocator::alloc_full(std::span<SlotId> out) { return impl_->full->alloc(out); }

Status WindowAllocator::alloc_window(std::span<const PageId> pages) {
  if (Status room = check_room("window", *impl_->window, pages.size()); !room) return room;
  for (const PageId page : pages) {
    PANDO_CHECK(impl_->pairs.is_handed_out(index_of(page)),
                "alloc_window for page {}: it is not handed out", index_of(page));
  }
  PairMaker maker(*impl_->window, impl_->pairs, pages.size());
  for (const PageId page : pages) maker.join(index_of(page));
  return {};
}

// ---- Freeing.

void WindowAllocator::Impl::apply_frees() {
  if (group_open) return;
  full->free_pages(frees.full_pages());
  window->free_pages(frees.window_pages());
  frees.clear();
}

void WindowAllocator::free(std::span<const SlotId> slots) {
  impl_->frees.free(slots);
  impl_->apply_frees();
}

void WindowAllocator::free_pages(std::span<const PageId> pages) {
  impl_->frees.free(pages);
  impl_->apply_frees();
}

void WindowAllocator::free_window(std::span<const SlotId> slots) {
  impl_->frees.free_window(slots);
  impl_->apply_frees();
}

void WindowAllocator::free_window_pages(std::span<const PageId> pages) {
  impl_->frees.free_window(pages);
  impl_->apply_frees();
}

void WindowAllocator::begin_free_group() {
  impl_->full->begin_free_group();
  impl_->group_open = true;
}

void WindowAllocator::end_free_group() {
  impl_->full->end_free_group();
  impl_->group_open = false;
  impl_->frees.end_late_pairs();
  impl_->apply_frees();
}

// ---- Pairs.

void WindowAllocator::move_window(PageId from, PageId to) {
  const PageLayout& layout = impl_->pairs.layout();
  PANDO_CHECK(layout.in_range(index_of(from)) && impl_->pairs.has(index_of(from)),
              "move_window from page {}: it has no window page", index_of(from));
  PANDO_CHECK(impl_->pairs.is_handed_out(index_of(to)),
              "move_window to page {}: it is not handed out", index_of(to));
  PANDO_CHECK(!impl_->pairs.has(index_of(to)), "move_window to page {}: it has a window page",
              index_of(to));
  impl_->pairs.join(index_of(to), *impl_->pairs.part(index_of(from)));
}

void WindowAllocator::translate(std::span<const SlotId> full, std::span<SlotId> window) const {
  PANDO_CHECK(full.size() == window.size(), "translate of {} slots into {}", full.size(),
              window.size());
  impl_->pairs.translate(full, window);
}

bool WindowAllocator::has_window(PageId page) const {
  PANDO_CHECK(impl_->pairs.is_handed_out(index_of(page)),
              "has_window of page {}: it is not handed out", index_of(page));
  return impl_->pairs.has(index_of(page));
}

// ---- States. Those of both sides and of the pairs are taken and given up together, so the full
// side's checks, which come first, speak for all three.

WindowAllocatorState WindowAllocator::backup_state() {
  AllocatorState full = impl_->full->backup_state();
  AllocatorState window = impl_->window->backup_state();
  return {this, std::move(full), std::move(window), impl_->pairs.open_state()};
}

void WindowAllocator::restore_state(WindowAllocatorState state) {
  impl_->full->restore_state(std::move(state.full_));
  impl_->window->restore_state(std::move(state.window_));
  impl_->pairs.rewind(state.mark_);
}

WindowAllocatorState::WindowAllocatorState(WindowAllocator* owner, AllocatorState full,
                                           AllocatorState window, std::size_t mark)
    : owner_(owner), full_(std::move(full)), window_(std::move(window)), mark_(mark) {}

WindowAllocatorState::WindowAllocatorState(WindowAllocatorState&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      full_(std::move(other.full_)),
      window_(std::move(other.window_)),
      mark_(other.mark_) {}

WindowAllocatorState& WindowAllocatorState::operator=(WindowAllocatorState&& other) noexcept {
  if (this != &other) {
    if (owner_ != nullptr) owner_->impl_->pairs.close_state(mark_);
    owner_ = std::exchange(other.owner_, nullptr);
    full_ = std::move(other.full_);
    window_ = std::move(other.window_);
    mark_ = other.mark_;
  }
  return *this;
}

WindowAllocatorState::~WindowAllocatorState() {
  if (owner_ != nullptr) owner_->impl_->pairs.close_state(mark_);
}

// ---- Life and figures.

Status WindowAllocator::Options::validate() const {
  if (Status status = name_side("full", full_side(*this).validate()); !status) return status;
  if (window_tokens > full_tokens) {
    return make_error(ErrorCode::invalid_argument,
                      "window pool of {} tokens is larger than the full pool of {}", window_tokens,
                      full_tokens);
  }
  return name_side("window", window_side(*this).validate());
}

Result<std::unique_ptr<WindowAllocator>> WindowAllocator::create(const Options& options) {
  if (Status status = options.validate(); !status) return status.error();
  return std::unique_ptr<WindowAllocator>(new WindowAllocator(
      std::make_unique<Impl>(PagedAllocator::create(full_side(options)).value(),
                             PagedAllocator::create(window_side(options)).value())));
}

WindowAllocator::WindowAllocator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WindowAllocator::~WindowAllocator() = default;

Status WindowAllocator::clear() {
  if (Status cleared = impl_->full->clear(); !cleared) return cleared;
  impl_->window->clear().value();  // holds a state or a group only when the full side does
  impl_->pairs.part_all();
  return {};
}

const PagedAllocator& WindowAllocator::full() const { return *impl_->full; }
const PagedAllocator& WindowAllocator::window() const { return *impl_->window; }

std::size_t WindowAllocator::memory_bytes() const {
  return sizeof(*this) + sizeof(Impl) + full().memory_bytes() + window().memory_bytes() +
         impl_->pairs.memory_bytes() + impl_->frees.memory_bytes();
}

Status WindowAllocator::check() const {
  if (Status status = name_side("full", full().check()); !status) return status;
  if (Status status = name_side("window", window().check()); !status) return status;
  if (Status status = impl_->pairs.check(); !status) return status;
  for (const PageId page : impl_->frees.full_pages()) {
    if (full().is_free(page)) {
      return make_error(ErrorCode::corrupt, "page {} is in a free group, but not handed out",
                        index_of(page));
    }
  }
  return impl_->check_window_pages();
}

/// Each window page that is handed out is in one pair or in the open group, and no other is.
Status WindowAllocator::Impl::check_window_pages() const {
  std::vector<bool> seen(window->num_pages() + 1);
  std::size_t num_seen = 0;
  const auto see = [&](PageId page) -> Status {
    if (index_of(page) > window->num_pages() || window->is_free(page) || seen[index_of(page)]) {
      return make_error(ErrorCode::corrupt, "window page {} is not handed out, or in use twice",
                        index_of(page));
    }
    seen[index_of(page)] = true;
    ++num_seen;
    return {};
  };
  for (std::uint32_t page = 1; page <= full->num_pages(); ++page) {
    const std::optional<PageId> window_page = pairs.find(page);
    if (!window_page) continue;
    if (full->is_free(PageId{page})) {
      return make_error(ErrorCode::corrupt, "page {} is free, but has window page {}", page,
                        index_of(*window_page));
    }
    if (Status status = see(*window_page); !status) return status;
  }
  for (const PageId page : frees.window_pages()) {
    if (Status status = see(page); !status) return status;
  }
  const std::size_t handed_out = window->num_pages() - window->available_pages();
  if (num_seen == handed_out) return {};
  return make_error(ErrorCode::corrupt, "{} window pages are handed out, but {} are in use",
                    handed_out, num_seen);
}

}  // namespace pando
