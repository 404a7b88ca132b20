// SPDX-License-Identifier: Apache-2.0
// The calls of a Store that wait for a thread: first in, first out, bounded in pages. A clear runs
// alone: it waits for the calls before it to end, and those behind it wait for the clear.
//
// Every call that was pushed is finished exactly once: by the thread that takes it, by whoever
// finds it stopped before that (StoreBatch::abandon), or by close(). Calls come from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "pando/store.h"

namespace pando {

class CallQueue {
 public:
  explicit CallQueue(std::size_t max_pages) : max_pages_(max_pages) {}

  /// out_of_capacity where it would be over its bound and other calls are queued: one that is
  /// larger than the bound all by itself still gets its turn.
  Status push(std::shared_ptr<StoreBatch> call);
  /// Blocks until there is a call, which the caller then runs, finishes and releases. Null once the
  /// queue is closed.
  std::shared_ptr<StoreBatch> take();
  void release(const std::shared_ptr<StoreBatch>& call);
  /// Finishes what is queued as cancelled, and cancels what runs. The last call but take().
  void close();
  /// Of calls that wait or run.
  std::size_t pending_pages() const;

 private:
  /// Stopped calls keep their place until somebody looks: here, when room is short.
  void drop_finished();
  bool may_begin(const StoreBatch& call) const;

  const std::size_t max_pages_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<StoreBatch>> queued_;
  std::size_t queued_pages_ = 0;
  std::vector<std::shared_ptr<StoreBatch>> running_;
  bool closed_ = false;
};

}  // namespace pando
