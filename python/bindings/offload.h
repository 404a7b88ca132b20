// SPDX-License-Identifier: Apache-2.0
// OffloadTable for Python: keys are bytes, in any iterable.
#pragma once

#include <nanobind/nanobind.h>

namespace pando::python {

namespace nb = nanobind;

void bind_offload(nb::module_& m);

}  // namespace pando::python
