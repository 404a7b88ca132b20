// SPDX-License-Identifier: Apache-2.0
// What python/bench measures with.
#pragma once

#include <nanobind/nanobind.h>

namespace pando::python {

void bind_benchmark(nanobind::module_& m);

}  // namespace pando::python
