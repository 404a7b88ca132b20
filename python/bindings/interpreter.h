// SPDX-License-Identifier: Apache-2.0
// Python seen from threads that are outside it: references that any thread may drop, and a gate
// that threads pass on their way into Python. Python ends a thread that wants the GIL while the
// interpreter shuts down, in the middle of whatever C++ it is in; so before that the gate closes,
// waits for those on their way, and turns away the rest.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace pando::python {

namespace nb = nanobind;

/// A reference for C++ to share: who drops it last takes the GIL for it.
std::shared_ptr<nb::object> keep(nb::object object);

/// Inside Python, with the GIL, for as long as it lives; or turned away, which is false.
class PythonEntry {
 public:
  PythonEntry();
  ~PythonEntry();
  PythonEntry(const PythonEntry&) = delete;
  PythonEntry& operator=(const PythonEntry&) = delete;
  explicit operator bool() const { return gil_ != nullptr; }

 private:
  std::unique_ptr<nb::gil_scoped_acquire> gil_;
};

/// Without the GIL for as long as it lives. A thread that wants it back when the interpreter has
/// begun to shut down stays here for ever; the process ends without it.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

/// Works without the GIL, whether the caller has it or not. (The stable ABI has no way to ask.)
template <typename Work>
void without_gil(Work&& work) {
  const nb::gil_scoped_acquire gil;
  const GilRelease released;
  work();
}

/// As keep(), but let go of when the interpreter shuts down, when nobody enters Python any more:
/// for what Python wrote and the library calls. Such an object leads back to whatever its module
/// has, the library's own objects among them, in circles that no collector sees. Needs the GIL, as
/// does every use; once it is let go of there are no more entries.
std::shared_ptr<nb::object> keep_until_exit(nb::object object);

void bind_interpreter(nb::module_& m);

}  // namespace pando::python
