// SPDX-License-Identifier: Apache-2.0
// SlotCache: prefix reuse for engines that keep each sequence in one slot.
#pragma once

#include <nanobind/nanobind.h>

namespace pando::python {

void bind_slot_cache(nanobind::module_& m);

}  // namespace pando::python
