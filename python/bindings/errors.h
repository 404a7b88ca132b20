// SPDX-License-Identifier: Apache-2.0
// Errors of the library as Python exceptions: one class per ErrorCode, all below pando.Error, with
// the library's message. unwrap() is how every binding ends.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>
#include <utility>

#include "pando/result.h"

namespace pando::python {

namespace nb = nanobind;

/// Sets the Python error and throws; needs the GIL.
[[noreturn]] void raise(const Error& error);
[[noreturn]] void raise_invalid(const std::string& message);

template <typename T>
T unwrap(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(result).value();
}
inline void unwrap(const Status& status) {
  if (!status) raise(status.error());
}

/// The class that an error of this code is raised as.
nb::handle error_class(ErrorCode code);

/// The Python error that is set or was caught, as the library's own: for what Python wrote and C++
/// calls. Clears it, and tells sys.unraisablehook of it with `where`. Needs the GIL.
Error contain(nb::python_error& caught, const char* where);

/// Thrown where a contract is broken, with or without the GIL; becomes pando.BrokenContract.
struct BrokenContract {
  std::string message;
};
/// A second thread, or a callback, came while a call was under way; becomes pando.WrongThread.
[[noreturn]] void raise_wrong_thread(const char* call, const char* running);

/// The object was part of a cycle that is being collected.
[[noreturn]] void raise_collected(const char* call);

void bind_errors(nb::module_& m);

}  // namespace pando::python
