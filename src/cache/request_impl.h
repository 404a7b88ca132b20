// SPDX-License-Identifier: Apache-2.0
// What a running request is made of. PrefixCache lists its running requests, so that check() can
// say who owns every slot.
//
// Invariant, while it runs: slots [0, cached_length) are the tree's, on the path that `lease`
// holds; slots [cached_length, num_slots) are the request's own, and nobody else's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/observed.h"
#include "pando/paths.h"

namespace pando {

/// Slots that grow at the end. What has not been written is not touched.
class SlotBuffer {
 public:
  std::size_t capacity() const { return capacity_; }
  std::span<SlotId> first(std::size_t n) { return {slots_.get(), n}; }
  std::span<const SlotId> first(std::size_t n) const { return {slots_.get(), n}; }
  /// Room for n slots; the first `used` stay.
  void reserve(std::size_t n, std::size_t used) {
    if (n <= capacity_) return;
    const std::size_t larger = capacity_ == 0 ? n : std::max(n, 2 * capacity_);
    auto slots = std::make_unique_for_overwrite<SlotId[]>(larger);
    std::copy_n(slots_.get(), used, slots.get());
    slots_ = std::move(slots);
    capacity_ = larger;
  }

 private:
  std::unique_ptr<SlotId[]> slots_;
  std::size_t capacity_ = 0;
};

struct Request::Impl {
  PrefixCacheImpl* cache = nullptr;  // while it runs
  std::size_t position = 0;          // among the running
  std::vector<Token> tokens;
  std::string ns;
  std::int32_t priority = 0;
  std::vector<RetentionRange> retention;
  SessionId session = {};
  RequestStart started;  // where there is an observer

  Match found;
  Lease lease;
  SlotBuffer slots;
  std::size_t num_slots = 0;
  std::size_t cached_length = 0;
  std::size_t window_released = 0;
  StateSlot snapshot = {};
  std::size_t snapshot_length = 0;
  std::size_t widened_ranges = 0;

  Key key(std::size_t length) const { return {std::span(tokens).first(length), ns}; }
  std::span<const SlotId> own_slots() const {
    return slots.first(num_slots).subspan(cached_length);
  }
};

}  // namespace pando
