// SPDX-License-Identifier: Apache-2.0
#include "interpreter.h"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

namespace pando::python {

namespace {

struct Gate {
  std::mutex mutex;  // never held while the GIL is waited for
  std::condition_variable changed;
  std::size_t num_inside = 0;
  bool closed = false;

  bool enter() {
    const std::lock_guard lock(mutex);
    if (closed) return false;
    ++num_inside;
    return true;
  }
  void leave() {
    // Notified under the lock: nothing of this thread's may run once the last one is out.
    const std::lock_guard lock(mutex);
    --num_inside;
    changed.notify_all();
  }
  void close() {
    std::unique_lock lock(mutex);
    closed = true;
    changed.wait(lock, [this] { return num_inside == 0; });
  }
};

Gate& gate() {
  static Gate the_gate;
  return the_gate;
}

std::vector<std::shared_ptr<nb::object>>& dropped_at_exit() {
  static std::vector<std::shared_ptr<nb::object>> references;
  return references;
}

void at_exit() {
  {
    const nb::gil_scoped_release released;
    gate().close();
  }
  for (const auto& reference : dropped_at_exit()) reference->reset();
  dropped_at_exit().clear();
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
  if (gate().enter()) gil_ = std::make_unique<nb::gil_scoped_acquire>();
}

PythonEntry::~PythonEntry() {
  if (gil_ == nullptr) return;
  gil_.reset();
  gate().leave();
}

void drop_at_exit(std::shared_ptr<nb::object> reference) {
  dropped_at_exit().push_back(std::move(reference));
}

void bind_interpreter(nb::module_&) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&at_exit));
}

}  // namespace pando::python
