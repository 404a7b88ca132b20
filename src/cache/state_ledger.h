// SPDX-License-Identifier: Apache-2.0
// Which state slots are the tree's, and their way back to the pool. The counterpart of SlotLedger
// for snapshots; these are few, and go back at once.
//
// Invariant: a slot's bit is set exactly while a node has it as its snapshot.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pando/allocators.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class StateLedger {
 public:
  /// Without a pool nothing can be claimed.
  explicit StateLedger(StateAllocator* pool)
      : pool_(pool), claimed_(pool == nullptr ? 0 : pool->capacity()) {}

  StateAllocator* pool() const { return pool_; }
  /// An error unless the slot is of this pool, handed out, and not the tree's.
  Status refuse_foreign(StateSlot slot) const;

  void claim(StateSlot slot) { claimed_[slot.index] = true; }
  /// Gives back slots, the tree's or a request's.
  void release(std::span<const StateSlot> slots);

  /// Whether exactly these slots are claimed, and all are handed out.
  Status check(std::span<const StateSlot> slots) const;
  std::size_t memory_bytes() const { return claimed_.capacity() / 8; }

 private:
  StateAllocator* pool_;
  std::vector<bool> claimed_;
};

}  // namespace pando
