// SPDX-License-Identifier: Apache-2.0
// Options of the tiers below the device, as Python gives them: objects that hold references to
// pools and copiers become the library's structs, which hold pointers.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

#include "pando/tiers.h"
#include "threads.h"

namespace pando::python {

/// Of a pando.TierPools, or None. Host pools join the guard of the cache that uses them.
TierPools to_tier_pools(nb::handle pools, Kept& kept, const SharedGuard& guard);
/// Of a pando.Copier, or None.
Copier* to_copier(nb::handle copier, Kept& kept);
/// Of a pando.HostTierOptions.
HostTierOptions to_host_tier(nb::handle options, Kept& kept, const SharedGuard& guard);

/// cache.tiers, of either cache, which it keeps alive.
struct PyTiers {
  nb::object cache;

  std::array<nb::object*, 1> objects() { return {&cache}; }
  template <typename Work>
  decltype(auto) work(const char* name, bool long_call, Work&& work);  // tiers_calls.cc
};

void bind_tiers(nb::module_& m);
void bind_tiers_calls(nb::module_& m);

}  // namespace pando::python
