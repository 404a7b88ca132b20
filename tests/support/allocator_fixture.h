// SPDX-License-Identifier: Apache-2.0
// The few words that unit tests of PagedAllocator and WindowAllocator are written in.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pando/allocators.h"

namespace pando::testing {

using Slots = std::vector<SlotId>;
using Lengths = std::vector<std::size_t>;

inline std::unique_ptr<PagedAllocator> make(std::size_t capacity, std::size_t page_size,
                                            ReuseOrder order = ReuseOrder::fifo) {
  return PagedAllocator::create({capacity, page_size, order}).value();
}
inline std::unique_ptr<WindowAllocator> make_window(std::size_t full, std::size_t window,
                                                    std::size_t page_size,
                                                    ReuseOrder order = ReuseOrder::fifo) {
  return WindowAllocator::create({full, window, page_size, order}).value();
}

/// Slots [first, end).
inline Slots range(std::int64_t first, std::int64_t end) {
  Slots slots;
  for (std::int64_t slot = first; slot < end; ++slot) slots.push_back(SlotId{slot});
  return slots;
}

template <typename Allocator>
Slots alloc(Allocator& allocator, std::size_t n) {
  Slots out(n);
  allocator.alloc(out).value();
  return out;
}

inline Slots translate(const WindowAllocator& allocator, const Slots& full) {
  Slots window(full.size(), SlotId{-1});
  allocator.translate(full, window);
  return window;
}

/// Free pages of both sides: {full, window}.
using Counts = std::pair<std::size_t, std::size_t>;
inline Counts free_pages(const WindowAllocator& allocator) {
  return {allocator.full().available_pages(), allocator.window().available_pages()};
}

inline std::string error_of(const Status& status) {
  return status.ok() ? std::string("ok") : status.error().message;
}

#define EXPECT_SOUND(allocator) EXPECT_EQ(error_of((allocator).check()), "ok")

}  // namespace pando::testing
