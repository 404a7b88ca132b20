// SPDX-License-Identifier: Apache-2.0
// Who is told of a cache: metrics, recorders, events, and observers written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "pando/observer.h"

namespace pando::python {

namespace nb = nanobind;

/// The library's own observers (Metrics, TraceRecorder), shared with Python; or an adapter around
/// any object that has some of the methods of CacheObserver; or of several, for a list of them.
/// None gives nothing. The cache keeps the Python object too, and visits it: Metrics may call back
/// into Python (tenant_of).
std::shared_ptr<CacheObserver> to_observer(nb::handle observer);

/// For tp_traverse and tp_clear of a cache that holds what to_observer() gave: an observer may
/// refer to the cache that it observes. One that is cleared is told nothing any more.
int traverse_observer(const CacheObserver* observer, visitproc visit, void* arg);
void clear_observer(CacheObserver* observer);

void bind_observe(nb::module_& m);

}  // namespace pando::python
