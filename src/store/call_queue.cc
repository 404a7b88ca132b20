// SPDX-License-Identifier: Apache-2.0
// The queue of a Store; see the header.
#include "store/call_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pando {
namespace {

// A clear, and a call without pages, take the room of one: nothing queues for free.
std::size_t pages_of(const StoreBatch& call) { return std::max<std::size_t>(1, call.size()); }

bool is_clear(const StoreBatch& call) { return call.kind() == StoreBatch::Kind::clear; }

}  // namespace

Status CallQueue::push(std::shared_ptr<StoreBatch> call) {
  const std::size_t num_pages = pages_of(*call);
  {
    const std::lock_guard lock(mutex_);
    if (queued_pages_ + num_pages > max_pages_) drop_finished();
    if (!queued_.empty() && queued_pages_ + num_pages > max_pages_)
      return make_error(ErrorCode::out_of_capacity,
                        "a call of {} pages: {} are queued already; expected at most {} in all",
                        num_pages, queued_pages_, max_pages_);
    queued_.push_back(std::move(call));
    queued_pages_ += num_pages;
  }
  changed_.notify_one();
  return {};
}

std::shared_ptr<StoreBatch> CallQueue::take() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (queued_.empty()) {
      changed_.wait(lock);
      continue;
    }
    std::shared_ptr<StoreBatch> call = queued_.front();
    call->abandon();
    if (!call->finished() && !may_begin(*call)) {
      changed_.wait_until(lock, call->deadline());  // after which it is in nobody's way
      continue;
    }
    queued_.pop_front();
    queued_pages_ -= pages_of(*call);
    if (!call->begin()) continue;  // stopped, and finished by who noticed
    running_.push_back(call);
    return call;
  }
  return nullptr;
}

void CallQueue::release(const std::shared_ptr<StoreBatch>& call) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find(running_.begin(), running_.end(), call);
    PANDO_CHECK(at != running_.end(), "a call of {} pages that does not run is released",
                call->size());
    running_.erase(at);
  }
  changed_.notify_all();
}

void CallQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& call : queued_) {
      call->cancel();
      call->abandon();
    }
    queued_.clear();
    queued_pages_ = 0;
    for (const auto& call : running_) call->cancel();
  }
  changed_.notify_all();
}

std::size_t CallQueue::pending_pages() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = queued_pages_;
  for (const auto& call : running_) sum += pages_of(*call);
  return sum;
}

void CallQueue::drop_finished() {
  std::erase_if(queued_, [this](const std::shared_ptr<StoreBatch>& call) {
    call->abandon();
    if (!call->finished()) return false;
    queued_pages_ -= pages_of(*call);
    return true;
  });
}

bool CallQueue::may_begin(const StoreBatch& call) const {
  if (is_clear(call)) return running_.empty();
  return running_.empty() || !is_clear(*running_.front());
}

}  // namespace pando
