// SPDX-License-Identifier: Apache-2.0
// Who is told of a cache: metrics, recorders, events, and observers written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "pando/observer.h"
#include "threads.h"

namespace pando::python {

namespace nb = nanobind;

/// The library's own observers (Metrics, TraceRecorder), shared with Python; or an adapter around
/// any object that has some of the methods of CacheObserver; or of several, for a list of them.
/// None gives nothing. Adapters borrow from `kept`.
std::shared_ptr<CacheObserver> to_observer(nb::handle observer, Kept& kept);

/// Python is told nothing any more: for a cache that outlives what it keeps, while a cycle is being
/// collected.
void mute(CacheObserver* observer);

/// Of a Metrics; nothing of anything else.
std::shared_ptr<CacheObserver> metrics_of(nb::handle observer);

void bind_observe(nb::module_& m);
// Its parts.
void bind_explain(nb::module_& m);
void bind_metrics(nb::module_& m);

}  // namespace pando::python
