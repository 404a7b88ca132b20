// SPDX-License-Identifier: Apache-2.0
// Options of the tiers below the device, as Python gives them: objects that hold references to
// pools and copiers become the library's structs, which hold pointers.
#pragma once

#include <nanobind/nanobind.h>

#include "pando/tiers.h"
#include "threads.h"

namespace pando::python {

/// Of a pando.TierPools, or None. Host pools join the guard of the cache that uses them.
TierPools to_tier_pools(nb::handle pools, Kept& kept, const SharedGuard& guard);
/// Of a pando.Copier, or None.
Copier* to_copier(nb::handle copier, Kept& kept);
/// Of a pando.HostTierOptions.
HostTierOptions to_host_tier(nb::handle options, Kept& kept, const SharedGuard& guard);

void bind_tiers(nb::module_& m);

}  // namespace pando::python
