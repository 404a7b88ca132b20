// SPDX-License-Identifier: Apache-2.0
// The allocators as Python holds them, for the caches that are built on them.
#pragma once

#include "pando/allocators.h"
#include "threads.h"

namespace pando::python {

using PyPagedAllocator = Guarded<PagedAllocator>;
using PyWindowAllocator = Guarded<WindowAllocator>;
using PyStateAllocator = Guarded<StateAllocator>;
using PySlotAllocator = Guarded<SlotAllocator>;

void bind_allocators(nb::module_& m);

}  // namespace pando::python
