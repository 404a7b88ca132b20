// SPDX-License-Identifier: Apache-2.0
// SlotAllocator: a mask of the free slots and a version per slot. RequestTable takes its rows from
// one, SlotCache its sequences. A version rises exactly when alloc() hands the slot out anew.
#include "pando/slot_allocator.h"

#include <vector>

#include "base/bitmask.h"
#include "base/check.h"

namespace pando {
namespace {

constexpr std::size_t kMaxSlots = std::size_t{1} << 32;

}  // namespace

struct SlotAllocator::Impl {
  explicit Impl(std::size_t num_slots) : free(num_slots), versions(num_slots) { free.fill(); }

  void check_range(std::size_t slot) const {
    PANDO_CHECK(slot < free.size(), "slot {} is outside [0, {})", slot, free.size());
  }

  HierarchicalBitmask free;
  std::vector<std::uint64_t> versions;
};

Result<std::unique_ptr<SlotAllocator>> SlotAllocator::create(std::size_t num_slots) {
  if (num_slots == 0 || num_slots > kMaxSlots) {
    return make_error(ErrorCode::invalid_argument, "num_slots is {}, expected 1 to {}", num_slots,
                      kMaxSlots);
  }
  return std::unique_ptr<SlotAllocator>(new SlotAllocator(std::make_unique<Impl>(num_slots)));
}

SlotAllocator::SlotAllocator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SlotAllocator::~SlotAllocator() = default;

std::optional<std::size_t> SlotAllocator::alloc() {
  const std::optional<std::size_t> slot = impl_->free.find_first();
  if (!slot) return std::nullopt;
  impl_->free.clear(*slot);
  ++impl_->versions[*slot];
  return slot;
}

void SlotAllocator::occupy(std::size_t slot) {
  impl_->check_range(slot);
  const bool was_free = impl_->free.clear(slot);
  PANDO_CHECK(was_free, "occupy of slot {}: it is taken", slot);
}

void SlotAllocator::free(std::size_t slot) {
  impl_->check_range(slot);
  const bool was_taken = impl_->free.set(slot);
  PANDO_CHECK(was_taken, "free of slot {}: it is already free", slot);
}

bool SlotAllocator::is_free(std::size_t slot) const {
  impl_->check_range(slot);
  return impl_->free.test(slot);
}

std::uint64_t SlotAllocator::version(std::size_t slot) const {
  impl_->check_range(slot);
  return impl_->versions[slot];
}

std::size_t SlotAllocator::free_count() const { return impl_->free.count(); }
std::size_t SlotAllocator::size() const { return impl_->free.size(); }

}  // namespace pando
