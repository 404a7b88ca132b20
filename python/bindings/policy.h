// SPDX-License-Identifier: Apache-2.0
// Eviction policies: a name, HazardOptions, or an object of Python's with `key(stats)`.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "pando/policy.h"
#include "threads.h"

namespace pando::python {

/// Of a name or HazardOptions, or around an object, which `kept` keeps.
std::unique_ptr<EvictionPolicy> to_policy(nb::handle policy, Kept& kept);

void bind_policy(nb::module_& m);

}  // namespace pando::python
