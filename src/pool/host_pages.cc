// SPDX-License-Identifier: Apache-2.0
// HostPages: the table of legal transitions, and the one function that applies a row of it.
// A call numbers itself and leaves its number on each page that it checks, so that a page named
// twice is found in O(1) without sorting, and a refused call has nothing to take back.
#include "pool/host_pages.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.h"

namespace pando {

struct PageTransition {
  std::string_view name;
  unsigned from;  // a bit per state
  PageState to;
};

namespace {

using enum PageState;

constexpr std::size_t kMaxPages = std::size_t{1} << 32;

constexpr unsigned bit(PageState state) { return 1u << static_cast<unsigned>(state); }

constexpr PageTransition kAlloc{"alloc", bit(idle), reserved};
constexpr PageTransition kProtectWrite{"protect_write", bit(reserved), writing};
constexpr PageTransition kCompleteBackup{"complete_write", bit(writing), synced};
constexpr PageTransition kCompletePrefetch{"complete_write", bit(writing), backed_up};
constexpr PageTransition kAbortWrite{"abort_write", bit(writing), reserved};
constexpr PageTransition kDeviceGone{"device_gone", bit(synced), backed_up};
constexpr PageTransition kDeviceCame{"device_came", bit(backed_up), synced};
constexpr PageTransition kProtectLoad{"protect_load", bit(backed_up), loading};
constexpr PageTransition kCompleteLoad{"complete_load", bit(loading), synced};
constexpr PageTransition kAbortLoad{"abort_load", bit(loading), backed_up};
constexpr PageTransition kFree{"free", bit(reserved) | bit(backed_up) | bit(synced), idle};

std::size_t checked_size(std::size_t num_pages) {
  PANDO_CHECK(num_pages <= kMaxPages, "{} host pages, expected at most {}", num_pages, kMaxPages);
  return num_pages;
}

std::string names_of(unsigned states) {
  std::string names;
  for (std::size_t s = 0; s < HostPages::kNumStates; ++s) {
    const auto state = static_cast<PageState>(s);
    if (!(states & bit(state))) continue;
    if (!names.empty()) names += " or ";
    names += to_string(state);
  }
  return names;
}

}  // namespace

std::string_view to_string(PageState state) {
  switch (state) {
    case idle:
      return "idle";
    case reserved:
      return "reserved";
    case writing:
      return "writing";
    case backed_up:
      return "backed_up";
    case synced:
      return "synced";
    case loading:
      return "loading";
  }
  return "unknown";
}

HostPages::HostPages(std::size_t num_pages)
    : states_(checked_size(num_pages), idle), free_(num_pages), named_in_(num_pages) {
  free_.fill();
  counts_[static_cast<std::size_t>(idle)] = num_pages;
}

// ---- Transitions.

void HostPages::apply(const PageTransition& transition, std::span<const HostPageId> pages) {
  ++num_calls_;
  for (const HostPageId page : pages) {
    const std::size_t i = index_of(page);
    PANDO_CHECK(i < size(), "{} of host page {}: outside [0, {})", transition.name, i, size());
    PANDO_CHECK(transition.from & bit(states_[i]), "{} of host page {}: it is {}, expected {}",
                transition.name, i, to_string(states_[i]), names_of(transition.from));
    PANDO_CHECK(named_in_[i] != num_calls_, "{} of host page {}: it is {} and named twice",
                transition.name, i, to_string(states_[i]));
    named_in_[i] = num_calls_;
  }
  for (const HostPageId page : pages) move(index_of(page), transition.to);
}

void HostPages::move(std::size_t page, PageState to) {
  const PageState from = states_[page];
  states_[page] = to;
  --counts_[static_cast<std::size_t>(from)];
  ++counts_[static_cast<std::size_t>(to)];
  if (from == idle) free_.clear(page);
  if (to == idle) free_.set(page);
}

Status HostPages::alloc(std::span<HostPageId> out) {
  if (out.size() > available()) {
    return make_error(ErrorCode::out_of_capacity, "alloc of {} host pages: {} of {} are free",
                      out.size(), available(), size());
  }
  std::size_t from = 0;
  for (HostPageId& page : out) {
    const std::optional<std::size_t> lowest = free_.find_first_from(from);
    PANDO_CHECK(lowest, "{} host pages are counted free, fewer are", available());
    page = HostPageId{static_cast<std::uint32_t>(*lowest)};
    from = *lowest + 1;
  }
  apply(kAlloc, out);
  return {};
}

void HostPages::protect_write(std::span<const HostPageId> pages) { apply(kProtectWrite, pages); }
void HostPages::complete_write(std::span<const HostPageId> pages, bool on_device) {
  apply(on_device ? kCompleteBackup : kCompletePrefetch, pages);
}
void HostPages::abort_write(std::span<const HostPageId> pages) { apply(kAbortWrite, pages); }
void HostPages::device_gone(std::span<const HostPageId> pages) { apply(kDeviceGone, pages); }
void HostPages::device_came(std::span<const HostPageId> pages) { apply(kDeviceCame, pages); }
void HostPages::protect_load(std::span<const HostPageId> pages) { apply(kProtectLoad, pages); }
void HostPages::complete_load(std::span<const HostPageId> pages) { apply(kCompleteLoad, pages); }
void HostPages::abort_load(std::span<const HostPageId> pages) { apply(kAbortLoad, pages); }
void HostPages::free(std::span<const HostPageId> pages) { apply(kFree, pages); }

Status HostPages::clear() {
  if (count(writing) + count(loading) > 0) {
    return make_error(ErrorCode::in_use,
                      "clear of {} host pages: {} are writing and {} loading, expected none",
                      size(), count(writing), count(loading));
  }
  std::fill(states_.begin(), states_.end(), idle);
  free_.fill();
  counts_ = {};
  counts_[static_cast<std::size_t>(idle)] = size();
  return {};
}

// ---- Questions.

PageState HostPages::state(HostPageId page) const {
  PANDO_CHECK(index_of(page) < size(), "state of host page {}: outside [0, {})", index_of(page),
              size());
  return states_[index_of(page)];
}

std::size_t HostPages::memory_bytes() const {
  return states_.capacity() * sizeof(states_[0]) + named_in_.capacity() * sizeof(named_in_[0]) +
         free_.memory_bytes();
}

Status HostPages::check() const {
  if (Status mask = free_.check(); !mask) return mask;
  std::array<std::size_t, kNumStates> recount{};
  for (std::size_t i = 0; i < size(); ++i) {
    const auto s = static_cast<std::size_t>(states_[i]);
    if (s >= kNumStates) {
      return make_error(ErrorCode::corrupt, "host page {} has state {}, expected below {}", i, s,
                        kNumStates);
    }
    ++recount[s];
    if (free_.test(i) != (states_[i] == idle)) {
      return make_error(ErrorCode::corrupt, "host page {} is {}, the free mask {} it", i,
                        to_string(states_[i]), free_.test(i) ? "has" : "lacks");
    }
    if (named_in_[i] > num_calls_) {
      return make_error(ErrorCode::corrupt, "host page {} was named in call {} of {}", i,
                        named_in_[i], num_calls_);
    }
  }
  for (std::size_t s = 0; s < kNumStates; ++s) {
    if (recount[s] != counts_[s]) {
      return make_error(ErrorCode::corrupt, "{} host pages are counted {}, {} are", counts_[s],
                        to_string(static_cast<PageState>(s)), recount[s]);
    }
  }
  return {};
}

}  // namespace pando
