// SPDX-License-Identifier: Apache-2.0
// Python seen from threads of the library: references that any thread may drop, and a gate that
// such threads pass on their way into Python. Python ends a thread that wants the GIL while the
// interpreter shuts down, in the middle of whatever it does; so before that the gate closes, waits
// for those inside, and turns away the rest.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

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

/// Let go of when the interpreter shuts down, before modules do: for what the library's own tables
/// hold for ever. Needs the GIL, as does every use of the reference.
void drop_at_exit(std::shared_ptr<nb::object> reference);

void bind_interpreter(nb::module_& m);

}  // namespace pando::python
