// SPDX-License-Identifier: Apache-2.0
// Traces: opening, generating, replaying, planning, explaining. Options have the names of the
// command's flags.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "errors.h"
#include "replay/trace.h"

namespace pando::python {

/// A trace as Python holds it: how to open it, so that it can be read more than once.
struct PyTrace {
  std::function<Result<std::unique_ptr<Trace>>()> open;
  std::vector<std::string> files;
  bool once = false;  ///< standard input
};

/// A PyTrace, or one path or several.
PyTrace to_trace(nb::handle trace);
std::vector<std::string> to_paths(nb::handle paths);

/// Takes arguments by name; what is left at the end is a TypeError.
class NamedArguments {
 public:
  NamedArguments(const char* function, const nb::kwargs& given)
      : function_(function), left_(nb::steal<nb::dict>(PyDict_Copy(given.ptr()))) {}

  /// None, or left out: nothing.
  nb::object take(const char* name) {
    nb::object value = left_.attr("pop")(name, nb::none());
    return value;
  }
  template <typename T>
  void take(const char* name, T& target) {
    const nb::object value = take(name);
    if (!value.is_none() && !nb::try_cast(value, target))
      raise_invalid(fmt::format("{}: {} is {}, of another type than expected", function_, name,
                                nb::cast<std::string>(nb::repr(value))));
  }
  void finish() {
    for (const auto& [name, value] : left_)
      throw nb::type_error(
          fmt::format("{}() has no option '{}'", function_, nb::cast<std::string>(name)).c_str());
  }

 private:
  const char* function_;
  nb::dict left_;
};

void bind_traces(nb::module_& m);
void bind_replay(nb::module_& m);

}  // namespace pando::python
