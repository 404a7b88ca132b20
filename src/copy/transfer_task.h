// SPDX-License-Identifier: Apache-2.0
// The shared state behind Transfer: what to copy, how far it is, and who waits. A copier begins it,
// reports layers, and ends it once; anyone may wait, and cancel as long as it has not begun.
// Invariant: the pools are held until it has ended, and no byte is touched before begin() or after.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

#include "pando/copier.h"
#include "pool/copy_plan.h"
#include "pool/pool_use.h"

namespace pando {

class TransferTask : public LayerSignal {
 public:
  TransferTask(CopyPlan plan, std::vector<PoolUse> uses)
      : plan_(std::move(plan)), size_bytes_(plan_.size_bytes()), uses_(std::move(uses)) {}

  const CopyPlan& plan() const { return plan_; }
  /// Who has begun it may put its items in another order.
  std::vector<CopyItem>& items() { return plan_.items; }
  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t num_layers() const { return plan_.geometry->num_layers; }

  // For the copier.
  /// False: it was cancelled, and must not be touched.
  bool begin();
  /// Layers [0, n) are in place.
  void set_layers_ready(std::size_t n);
  void finish();
  void fail(Error error);

  // For everyone.
  bool cancel();
  TransferState state() const { return state_.load(std::memory_order_acquire); }
  std::size_t layers_ready() const { return layers_ready_.load(std::memory_order_acquire); }
  /// Only when it has ended.
  std::chrono::nanoseconds duration() const { return ended_at_ - begun_at_; }
  Status wait();
  Status wait_layer(std::size_t layer) override;
  Status wait_layer_on(std::size_t layer, void* stream) override;
  bool done() const override { return state() == TransferState::done; }

 protected:
  bool ended() const { return state() > TransferState::running; }

 private:
  /// For copiers whose waiters wait elsewhere too.
  virtual void on_cancelled() {}
  void end(TransferState state);
  Status outcome() const;

  CopyPlan plan_;
  std::size_t size_bytes_;
  std::vector<PoolUse> uses_;
  std::atomic<bool> claimed_ = false;  // by the one of begin() and cancel() that came first
  std::atomic<TransferState> state_ = TransferState::queued;
  std::atomic<std::size_t> layers_ready_ = 0;
  std::chrono::steady_clock::time_point begun_at_ = {}, ended_at_ = {};  // written before state_
  Error error_ = {};  // written before state_ becomes failed
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace pando
