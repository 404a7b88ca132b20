// SPDX-License-Identifier: Apache-2.0
// Window pages for new full pages, taken in batches once the full side has written its slots.
// Private to WindowAllocator, which makes sure of room on both sides before.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "alloc/page_layout.h"
#include "alloc/window_pairs.h"
#include "base/check.h"
#include "pando/allocators.h"

namespace pando {

/// Takes `num_pages` window pages, for which there is room, and joins each to a new full page.
class PairMaker {
 public:
  PairMaker(PagedAllocator& window, WindowPairs& pairs, std::size_t num_pages)
      : window_(window), pairs_(pairs), left_(num_pages) {}

  void join(std::size_t page) {
    if (next_ == end_) refill();
    pairs_.join(page, PageId{static_cast<std::uint32_t>(layout_.page_of(batch_[next_++]))});
  }

 private:
  static constexpr std::size_t kBatch = 64;

  void refill() {
    PANDO_CHECK(left_ > 0, "more pages begin than were counted");
    next_ = 0;
    end_ = std::min(left_, kBatch);
    left_ -= end_;
    take_first_slots(std::span(batch_).first(end_)).value();
  }

  /// A page for each of `out`, which gets its first slot: by alloc where that is its only one, else
  /// as the first tokens of so many requests.
  Status take_first_slots(std::span<SlotId> out) {
    if (layout_.page_size == 1) return window_.alloc(out);
    static constexpr auto kLengths = [] {
      std::array<std::size_t, kBatch> lengths{};
      lengths.fill(1);
      return lengths;
    }();
    static constexpr std::array<SlotId, kBatch> kNoSlots{};
    return window_.alloc_decode(std::span(kLengths).first(out.size()),
                                std::span(kNoSlots).first(out.size()), out);
  }

  PagedAllocator& window_;
  WindowPairs& pairs_;
  const PageLayout layout_{window_.page_size(), window_.num_pages()};
  std::size_t left_;
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  std::array<SlotId, kBatch> batch_;
};

}  // namespace pando
