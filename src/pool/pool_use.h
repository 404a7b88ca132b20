// SPDX-License-Identifier: Apache-2.0
// A transfer's hold on the pools it copies between: a pool that goes while it is held stops at a
// check, instead of leaving a copy to run over freed memory.
#pragma once

#include <atomic>
#include <utility>

namespace pando {

class KvPool;
class HostPool;

class PoolUse {
 public:
  PoolUse() = default;
  explicit PoolUse(KvPool& pool);
  explicit PoolUse(HostPool& pool);
  PoolUse(PoolUse&& other) noexcept : uses_(std::exchange(other.uses_, nullptr)) {}
  PoolUse& operator=(PoolUse&& other) noexcept {
    std::swap(uses_, other.uses_);
    return *this;
  }
  ~PoolUse() { release(); }
  void release() {
    if (uses_ != nullptr) uses_->fetch_sub(1, std::memory_order_release);
    uses_ = nullptr;
  }

 private:
  explicit PoolUse(std::atomic<int>& uses) : uses_(&uses) {
    uses.fetch_add(1, std::memory_order_relaxed);
  }
  std::atomic<int>* uses_ = nullptr;
};

}  // namespace pando
