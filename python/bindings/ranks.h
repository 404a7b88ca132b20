// SPDX-License-Identifier: Apache-2.0
// Ranks that mirror one cache: those of the library, or an object of Python's with rank, size,
// min(values), max(values) and barrier(), such as one over torch.distributed.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "pando/ranks.h"
#include "threads.h"

namespace pando::python {

/// The library's own ranks, shared with Python; or around an object, which `kept` keeps.
std::shared_ptr<Ranks> to_ranks(nb::handle ranks, Kept& kept);

void bind_ranks(nb::module_& m);

}  // namespace pando::python
