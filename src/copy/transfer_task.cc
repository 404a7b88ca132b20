// SPDX-License-Identifier: Apache-2.0
#include "copy/transfer_task.h"

#include "base/check.h"

namespace pando {

std::string_view to_string(TransferState state) {
  constexpr std::string_view kNames[] = {"queued", "running", "done", "cancelled", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

bool TransferTask::begin() {
  if (claimed_.exchange(true)) return false;
  begun_at_ = std::chrono::steady_clock::now();
  state_.store(TransferState::running, std::memory_order_release);
  return true;
}

bool TransferTask::cancel() {
  if (claimed_.exchange(true)) return false;
  end(TransferState::cancelled);
  on_cancelled();
  return true;
}

void TransferTask::set_layers_ready(std::size_t n) {
  const std::lock_guard lock(mutex_);
  layers_ready_.store(n, std::memory_order_release);
  changed_.notify_all();
}

void TransferTask::finish() {
  set_layers_ready(num_layers());
  end(TransferState::done);
}

void TransferTask::fail(Error error) {
  error_ = std::move(error);
  end(TransferState::failed);
}

void TransferTask::end(TransferState state) {
  if (state != TransferState::cancelled) ended_at_ = std::chrono::steady_clock::now();
  uses_.clear();  // before anyone can see that it has ended, and drop the pools
  const std::lock_guard lock(mutex_);
  state_.store(state, std::memory_order_release);
  changed_.notify_all();
}

Status TransferTask::outcome() const {
  switch (state()) {
    case TransferState::done:
      return {};
    case TransferState::failed:
      return error_;
    default:
      return make_error(ErrorCode::unavailable, "the transfer was cancelled before it began");
  }
}

Status TransferTask::wait() {
  if (!ended()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended(); });
  }
  return outcome();
}

Status TransferTask::wait_layer(std::size_t layer) {
  if (layer >= num_layers())
    return make_error(ErrorCode::invalid_argument, "transfer: no layer {}; it has {}", layer,
                      num_layers());
  if (layers_ready() > layer) return {};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return layers_ready() > layer || ended(); });
  if (layers_ready() > layer) return {};
  return outcome();
}

Status TransferTask::wait_layer_on(std::size_t layer, void* /*stream*/) {
  return wait_layer(layer);  // no stream can wait for a CPU: the caller does
}

Transfer::Transfer(std::shared_ptr<TransferTask> task) : task_(std::move(task)) {}
TransferState Transfer::state() const { return task_->state(); }
bool Transfer::finished() const { return task_->state() > TransferState::running; }
Status Transfer::wait() const { return task_->wait(); }
std::size_t Transfer::layers_ready() const { return task_->layers_ready(); }
Status Transfer::wait_layer(std::size_t layer) const { return task_->wait_layer(layer); }
bool Transfer::cancel() { return task_->cancel(); }
std::chrono::nanoseconds Transfer::duration() const {
  return finished() ? task_->duration() : std::chrono::nanoseconds{};
}
std::size_t Transfer::size_bytes() const { return task_->size_bytes(); }
std::shared_ptr<LayerSignal> Transfer::signal() const { return task_; }

}  // namespace pando
