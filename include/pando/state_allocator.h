// SPDX-License-Identifier: Apache-2.0
// Slots for snapshots of recurrent state (Mamba, SSM): one slot holds one snapshot of all recurrent
// layers. The engine takes one, copies its state in, and gives it to the cache; or keeps one as the
// working state of a request. A slot knows its pool, so that one of another pool is refused.
// It belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// Slots for snapshots of recurrent state (Mamba, SSM): one slot holds one snapshot of all
/// recurrent layers. It belongs to one thread.
class StateAllocator {
 public:
  static Result<std::unique_ptr<StateAllocator>> create(std::size_t num_slots);
  ~StateAllocator();
  StateAllocator(const StateAllocator&) = delete;
  StateAllocator& operator=(const StateAllocator&) = delete;

  std::optional<StateSlot> alloc();  ///< the lowest free slot; `std::nullopt` when all are taken
  /// Gives back a slot of this pool that is handed out; anything else stops at a check.
  void free(StateSlot slot);

  /// Whether the slot is of this pool and handed out.
  bool is_taken(StateSlot slot) const;
  std::size_t capacity() const;   ///< slots
  std::size_t available() const;  ///< slots that are free

 private:
  struct Impl;
  explicit StateAllocator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
