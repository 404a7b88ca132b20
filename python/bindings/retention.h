// SPDX-License-Identifier: Apache-2.0
// What is kept longer than the policy would keep it: options and values of pando/retention.h as
// Python has them. Its calls of PrefixCache are in cache_retention.cc. Durations are seconds; ids
// are ints.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <optional>

#include "arrays.h"
#include "pando/retention.h"
#include "threads.h"

namespace pando::python {

/// RetentionOptions, with a clock of Python's.
struct PyRetentionOptions {
  RetentionOptions plain;  ///< its `now` is not used
  nb::object now = nb::none();

  /// What a cache has of them: all but the clock.
  static PyRetentionOptions of(const RetentionOptions& options);
  /// What a cache is made with; `kept` keeps the clock.
  RetentionOptions resolve(Kept& kept) const;
  std::array<nb::object*, 1> objects() { return {&now}; }
};

/// What open_session() gives. It only names the session: one that is forgotten stays open.
class PyOpenSession {
 public:
  PyOpenSession(nb::object cache, SessionId id) : cache_(std::move(cache)), id_(id) {}
  SessionId id() const { return id_; }
  nb::handle cache() const { return cache_; }
  std::array<nb::object*, 1> objects() { return {&cache_}; }

 private:
  nb::object cache_;
  SessionId id_;
};

/// An argument that names a session: as open_session() gave it, its id, or None.
struct SessionArg {
  nb::handle object;
  SessionId id() const;
};

void bind_retention(nb::module_& m);

}  // namespace pando::python

namespace nanobind::detail {
PANDO_ARG_CASTER(pando::python::SessionArg, "OpenSession | int");
}  // namespace nanobind::detail
