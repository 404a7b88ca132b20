// SPDX-License-Identifier: Apache-2.0
// SlotAllocator: a mask of the free slots and a version per slot. RequestTable takes its rows from
// one, SlotCache its sequences. A version rises exactly when the slot is handed out anew.
#include "pando/allocators.h"

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

  // Every change goes through these two.
  void take(std::size_t slot) {
    free.clear(slot);
    if (watcher != nullptr) watcher->slot_taken(slot);
  }
  void give_back(std::size_t slot) {
    free.set(slot);
    if (watcher != nullptr) watcher->slot_freed(slot);
  }

  HierarchicalBitmask free;
  std::vector<std::uint64_t> versions;
  SlotWatcher* watcher = nullptr;
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
  ++impl_->versions[*slot];
  impl_->take(*slot);
  return slot;
}

void SlotAllocator::alloc_at(std::size_t slot) {
  impl_->check_range(slot);
  PANDO_CHECK(impl_->free.test(slot), "alloc_at of slot {}: it is taken", slot);
  ++impl_->versions[slot];
  impl_->take(slot);
}

void SlotAllocator::occupy(std::size_t slot) {
  impl_->check_range(slot);
  PANDO_CHECK(impl_->free.test(slot), "occupy of slot {}: it is taken", slot);
  impl_->take(slot);
}

void SlotAllocator::free(std::size_t slot) {
  impl_->check_range(slot);
  PANDO_CHECK(!impl_->free.test(slot), "free of slot {}: it is already free", slot);
  impl_->give_back(slot);
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

void SlotAllocator::watch(SlotWatcher* watcher) {
  PANDO_CHECK(watcher == nullptr || impl_->watcher == nullptr,
              "two watchers of one slot allocator");
  impl_->watcher = watcher;
}

bool SlotAllocator::is_watched() const { return impl_->watcher != nullptr; }

}  // namespace pando
