// SPDX-License-Identifier: Apache-2.0
// Whole-sequence slots: the lowest free one in O(1) at any size, with a version that tells whether
// a slot has been given to someone else since. RequestTable and SlotCache stand on it.
// It belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "pando/result.h"

namespace pando {

/// Told of every slot that changes hands, once it has, on the thread that did it. It may not call
/// the allocator to change anything.
class SlotWatcher {
 public:
  virtual void slot_taken(std::size_t slot) = 0;  ///< by alloc, alloc_at or occupy
  virtual void slot_freed(std::size_t slot) = 0;

 protected:
  ~SlotWatcher() = default;
};

/// Slots for whole sequences, with versions, for SlotCache: the lowest free one in O(1). It belongs
/// to one thread.
class SlotAllocator {
 public:
  static Result<std::unique_ptr<SlotAllocator>> create(std::size_t num_slots);
  ~SlotAllocator();
  SlotAllocator(const SlotAllocator&) = delete;
  SlotAllocator& operator=(const SlotAllocator&) = delete;

  /// The lowest free slot, its version raised by one; `std::nullopt` when all are taken.
  std::optional<std::size_t> alloc();

  /// Takes this slot, which must be free, its version raised by one.
  void alloc_at(std::size_t slot);

  /// Takes this slot, which must be free, and keeps its version: what it held is being reused.
  void occupy(std::size_t slot);

  /// Gives back a taken slot. Its version, and what it holds, stay until the next alloc().
  void free(std::size_t slot);

  bool is_free(std::size_t slot) const;           ///< whether nobody has this slot
  std::uint64_t version(std::size_t slot) const;  ///< raised whenever the slot is handed out anew
  std::size_t free_count() const;                 ///< slots that are free
  std::size_t size() const;                       ///< slots

  /// At most one; nullptr ends it. It must outlive the allocator or end it.
  void watch(SlotWatcher* watcher);
  bool is_watched() const;

 private:
  struct Impl;
  explicit SlotAllocator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
