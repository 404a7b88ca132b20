// SPDX-License-Identifier: Apache-2.0
// Traces that are read without the GIL, for calls that take minutes.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <utility>

#include "replay/trace.h"
#include "threads.h"

namespace pando::python {

/// A trace that is read without the GIL: Ctrl-C ends it with an error, and a progress function that
/// returns False ends it as if there were no more requests.
class WatchedTrace final : public Trace {
 public:
  WatchedTrace(Trace& trace, nb::handle progress) : trace_(trace), progress_(progress) {}

  Result<bool> next(TraceRequest& request) override {
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look_) {
      next_look_ = now + std::chrono::milliseconds(50);
      if (!look()) return Error{ErrorCode::cancelled, "interrupted"};
    }
    if (stopped_) return false;
    const Result<bool> more = trace_.next(request);
    if (more && *more) ++requests_;
    return more;
  }
  double progress() const override { return trace_.progress(); }
  std::size_t block_tokens() const override { return trace_.block_tokens(); }
  std::uint64_t skipped_lines() const override { return trace_.skipped_lines(); }

  /// With the GIL again: raises what interrupted it.
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  bool look() {
    const nb::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!progress_.is_none()) {
        const nb::object answer = progress_(trace_.progress(), requests_);
        stopped_ = answer.ptr() == Py_False;
      }
      return true;
    } catch (...) {
      thrown_ = std::current_exception();
    }
    return false;
  }

  Trace& trace_;
  nb::handle progress_;
  std::chrono::steady_clock::time_point next_look_ = {};
  std::uint64_t requests_ = 0;
  bool stopped_ = false;
  std::exception_ptr thrown_;
};

/// Calls `work` with the trace, without the GIL.
template <typename Work>
auto watched(Trace& trace, nb::handle progress, Work&& work) {
  WatchedTrace watching(trace, progress);
  auto result = run(true, [&] { return work(watching); });
  watching.rethrow();
  return unwrap(std::move(result));
}

}  // namespace pando::python
