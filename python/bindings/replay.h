// SPDX-License-Identifier: Apache-2.0
// Traces: opening, generating, replaying, planning, explaining.
#pragma once

#include <nanobind/nanobind.h>

namespace pando::python {

void bind_replay(nanobind::module_& m);

}  // namespace pando::python
