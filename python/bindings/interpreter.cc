// SPDX-License-Identifier: Apache-2.0
#include "interpreter.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace pando::python {

namespace {

class Gate {
 public:
  /// False once it is closed.
  bool enter() {
    num_inside_.fetch_add(1);
    if (!closed_.load()) return true;
    leave();
    return false;
  }
  void leave() {
    if (num_inside_.fetch_sub(1) != 1 || !closed_.load()) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  /// Waits for those inside; without the GIL, which they want.
  void close() {
    std::unique_lock lock(mutex_);
    exit_thread_ = std::this_thread::get_id();
    closed_.store(true);
    changed_.wait(lock, [this] { return num_inside_.load() == 0; });
  }
  /// The one thread that may still want the GIL when the gate is closed.
  bool is_exit_thread() const { return std::this_thread::get_id() == exit_thread_; }

 private:
  std::atomic<std::size_t> num_inside_ = 0;
  std::atomic<bool> closed_ = false;
  std::thread::id exit_thread_;  // written before closed_
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// Never destroyed: threads may come by after main() has returned.
Gate& gate() {
  static Gate& the_gate = *new Gate;
  return the_gate;
}

/// Entries of this thread: the gate waits for them to end, so it may go in and out meanwhile.
thread_local int num_entries = 0;

/// Those that keep_until_exit() made; some may have gone.
struct KeptUntilExit {
  std::vector<std::weak_ptr<nb::object>> references;
  std::size_t sweep_at = 64;

  void add(const std::shared_ptr<nb::object>& reference) {
    if (references.size() >= sweep_at) {
      std::erase_if(references, [](const auto& known) { return known.expired(); });
      sweep_at = std::max<std::size_t>(64, 2 * references.size());
    }
    references.push_back(reference);
  }
};

KeptUntilExit& kept_until_exit() {
  static KeptUntilExit kept;
  return kept;
}

void at_exit() {
  {
    const nb::gil_scoped_release released;  // this thread is the one that may take it back
    gate().close();
  }
  for (const auto& known : std::exchange(kept_until_exit().references, {}))
    if (const auto reference = known.lock()) reference->reset();
}

}  // namespace

std::shared_ptr<nb::object> keep(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* kept) {
            if (kept->is_valid() && !nb::is_alive()) return;  // there is no interpreter left
            std::unique_ptr<nb::gil_scoped_acquire> gil;
            if (kept->is_valid()) gil = std::make_unique<nb::gil_scoped_acquire>();
            delete kept;
          }};
}

PythonEntry::PythonEntry() {
  if (!gate().enter()) return;
  gil_ = std::make_unique<nb::gil_scoped_acquire>();
  ++num_entries;
}

PythonEntry::~PythonEntry() {
  if (gil_ == nullptr) return;
  --num_entries;
  gil_.reset();
  gate().leave();
}

GilRelease::~GilRelease() {
  if (gate().enter()) {
    PyEval_RestoreThread(state_);
    gate().leave();
    return;
  }
  while (num_entries == 0 && !gate().is_exit_thread())
    std::this_thread::sleep_for(std::chrono::hours(1));
  PyEval_RestoreThread(state_);
}

std::shared_ptr<nb::object> keep_until_exit(nb::object object) {
  std::shared_ptr<nb::object> reference = keep(std::move(object));
  kept_until_exit().add(reference);
  return reference;
}

void bind_interpreter(nb::module_&) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&at_exit));
}

}  // namespace pando::python
