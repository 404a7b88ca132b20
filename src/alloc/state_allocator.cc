// SPDX-License-Identifier: Apache-2.0
// StateAllocator: a SlotAllocator whose slots carry the id of their pool. Ids count up from 1
// through the whole process and are never used twice, so that a slot of a pool that has gone is
// refused as well.
#include "pando/allocators.h"

#include <atomic>
#include <utility>

#include "base/check.h"

namespace pando {
namespace {

std::uint32_t next_pool_id() {
  static std::atomic<std::uint32_t> last{0};
  const std::uint32_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  PANDO_CHECK(id != 0, "no pool ids are left");
  return id;
}

}  // namespace

struct StateAllocator::Impl {
  Impl(std::unique_ptr<SlotAllocator> pool_slots, std::uint32_t pool_id)
      : slots(std::move(pool_slots)), pool(pool_id) {}

  const std::unique_ptr<SlotAllocator> slots;
  const std::uint32_t pool;
};

Result<std::unique_ptr<StateAllocator>> StateAllocator::create(std::size_t num_slots) {
  Result<std::unique_ptr<SlotAllocator>> slots = SlotAllocator::create(num_slots);
  if (!slots) return slots.error();
  return std::unique_ptr<StateAllocator>(
      new StateAllocator(std::make_unique<Impl>(*std::move(slots), next_pool_id())));
}

StateAllocator::StateAllocator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StateAllocator::~StateAllocator() = default;

std::optional<StateSlot> StateAllocator::alloc() {
  const std::optional<std::size_t> index = impl_->slots->alloc();
  if (!index) return std::nullopt;
  return StateSlot{static_cast<std::uint32_t>(*index), impl_->pool};
}

void StateAllocator::free(StateSlot slot) {
  PANDO_CHECK(slot.pool == impl_->pool, "free of state slot {} of pool {}: this is pool {}",
              slot.index, slot.pool, impl_->pool);
  PANDO_CHECK(is_taken(slot), "free of state slot {} of pool {}: it is not handed out", slot.index,
              slot.pool);
  impl_->slots->free(slot.index);
}

bool StateAllocator::is_taken(StateSlot slot) const {
  return slot.pool == impl_->pool && slot.index < capacity() && !impl_->slots->is_free(slot.index);
}

std::size_t StateAllocator::capacity() const { return impl_->slots->size(); }
std::size_t StateAllocator::available() const { return impl_->slots->free_count(); }

}  // namespace pando
