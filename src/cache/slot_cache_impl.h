// SPDX-License-Identifier: Apache-2.0
// What the parts of SlotCache share. The allocator tells of every slot that changes hands; unless
// occupy() is what takes it, a slot that is taken is going to be overwritten, so what it held is
// forgotten at once.
//
// Invariant: SlotMap has exactly those slots as taken that the allocator has; both slots of a copy
// that is not known to have finished are held.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "cache/slot_map.h"
#include "pando/slot_cache.h"

namespace pando {

struct SlotCache::Impl final : SlotWatcher {
  Impl(const SlotCacheOptions& o, SlotAllocator& s);
  ~Impl() { slots.watch(nullptr); }

  void slot_taken(std::size_t slot) override {
    const auto s = static_cast<SlotMap::Slot>(slot);
    map.set_taken(s, true);
    if (occupying != slot) map.forget(s);
  }
  void slot_freed(std::size_t slot) override {
    map.set_taken(static_cast<SlotMap::Slot>(slot), false);
  }

  struct SlotCopy {
    SlotMap::Slot source;
    SlotMap::Slot target;
    std::size_t length;
    Transfer transfer;
  };

  Status check_key(const Key& key, const char* caller) const;
  Status check_slot(std::size_t slot, const char* caller) const;
  std::optional<SlotMatch> match(const SlotMap::Found& found) const;
  bool can_occupy(SlotMap::Slot slot, std::size_t length) const;
  /// Whether a copy writes to the slot, or reads more than `beyond` tokens of it.
  bool is_written(std::size_t slot) const;
  bool is_read(std::size_t slot, std::size_t beyond) const;
  /// What has been copied is not kept any longer.
  void poll();

  const SlotCacheOptions options;
  SlotAllocator& slots;
  SlotMap map;
  std::deque<SlotCopy> copies = {};  // of one stream, so they finish in order
  std::optional<std::size_t> occupying = {};
};

}  // namespace pando
