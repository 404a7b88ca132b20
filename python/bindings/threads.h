// SPDX-License-Identifier: Apache-2.0
// A cache, and everything it works on, belongs to one thread at a time. Python makes it easy to
// forget: the GIL keeps short calls apart, but long ones let go of it. Objects that work together
// share a Guard; every call enters it, and one that finds somebody inside is refused.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "errors.h"
#include "interpreter.h"

namespace pando::python {

class Guard {
 public:
  /// Nothing, or the call that is under way.
  const char* enter(const char* call) {
    const char* running = nullptr;
    running_.compare_exchange_strong(running, call, std::memory_order_acquire);
    return running;
  }
  void leave() { running_.store(nullptr, std::memory_order_release); }

 private:
  std::atomic<const char*> running_ = nullptr;
};
using SharedGuard = std::shared_ptr<Guard>;

/// Inside a guard for as long as it lives.
class Entry {
 public:
  Entry(Guard& guard, const char* call) : guard_(guard) {
    if (const char* running = guard.enter(call)) raise_wrong_thread(call, running);
  }
  ~Entry() { guard_.leave(); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  Guard& guard_;
};

/// So many tokens take long enough to let other Python threads run.
inline constexpr std::size_t kLongTokens = 32768;

/// Calls `work`; a long one lets other Python threads run meanwhile.
template <typename Work>
decltype(auto) run(bool is_long, Work&& work) {
  if (!is_long) return work();
  const GilRelease released;
  return work();
}

/// Python objects that a C++ object points to: they live as long as it does. Adapters in C++ borrow
/// from here, so that these are all references there are and a cycle through them can be collected.
using Kept = std::vector<nb::object>;

/// An object of the library as Python holds it, with what it points to. The members go in reverse:
/// the object before what it works on.
template <typename T>
struct Guarded {
  explicit Guarded(std::unique_ptr<T> made) : object(std::move(made)) {}

  Kept kept = {};
  std::vector<std::shared_ptr<void>> owned = {};
  std::unique_ptr<T> object;
  SharedGuard guard = std::make_shared<Guard>();

  /// `self.call("evict", [&](T& object) {…})`: the one way to the object.
  template <typename Work>
  decltype(auto) call(const char* name, Work&& work) {
    const Entry entry(*guard, name);
    require_object(name);
    return work(*object);
  }
  /// The same without the GIL. `work` must not touch Python, and gives a Result where it can fail.
  template <typename Work>
  decltype(auto) call_long(const char* name, Work&& work) {
    const Entry entry(*guard, name);
    require_object(name);
    return run(true, [&]() -> decltype(auto) { return work(*object); });
  }
  /// Gone only while a cycle that it is part of is being collected.
  void require_object(const char* name) const {
    if (object == nullptr) raise_collected(name);
  }
};

/// For nb::type_slots: lets the garbage collector see `kept` of a Guarded<…>.
template <typename Py>
int traverse_kept(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const nb::object& object : nb::inst_ptr<Py>(self)->kept) Py_VISIT(object.ptr());
  return 0;
}
template <typename Py>
int clear_kept(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  Py* held = nb::inst_ptr<Py>(self);
  run(true, [&] { held->object.reset(); });  // before what it points to
  held->kept.clear();
  return 0;
}
template <typename Py>
inline PyType_Slot collected_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_kept<Py>)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_kept<Py>)},
    {0, nullptr}};

}  // namespace pando::python
