// SPDX-License-Identifier: Apache-2.0
// Claims and returns of state slots; see the header.
#include "cache/state_ledger.h"

#include <algorithm>

#include "base/check.h"

namespace pando {

Status StateLedger::refuse_foreign(StateSlot slot) const {
  if (pool_ == nullptr || !pool_->is_taken(slot))
    return make_error(ErrorCode::invalid_argument,
                      "state slot {} of pool {} is not one that this cache's pool has handed out",
                      slot.index, slot.pool);
  if (claimed_[slot.index])
    return make_error(ErrorCode::invalid_argument,
                      "state slot {} is the tree's already: it cannot be inserted twice",
                      slot.index);
  return {};
}

void StateLedger::release(std::span<const StateSlot> slots) {
  for (const StateSlot slot : slots) {
    claimed_[slot.index] = false;
    pool_->free(slot);
  }
}

Status StateLedger::check(std::span<const StateSlot> slots) const {
  const auto claimed = static_cast<std::size_t>(std::count(claimed_.begin(), claimed_.end(), true));
  if (claimed != slots.size())
    return make_error(ErrorCode::corrupt, "state ledger: {} slots claimed, the tree has {}",
                      claimed, slots.size());
  for (const StateSlot slot : slots) {
    if (!pool_->is_taken(slot) || !claimed_[slot.index])
      return make_error(ErrorCode::corrupt, "state ledger: slot {} of the tree is not its own",
                        slot.index);
  }
  return {};
}

}  // namespace pando
