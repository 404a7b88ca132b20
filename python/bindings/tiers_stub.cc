// SPDX-License-Identifier: Apache-2.0
// Stands in for tiers.cc and cache.cc where they are not there yet.
#include "pando/cache.h"
#include "structs.h"
#include "tiers.h"

namespace pando::python {

TierPools to_tier_pools(nb::handle, Kept&, const SharedGuard&) { return {}; }
Copier* to_copier(nb::handle, Kept&) { return nullptr; }
HostTierOptions to_host_tier(nb::handle, Kept&, const SharedGuard&) { return {}; }

void bind_tiers(nb::module_& m) {
  nb::enum_<LoadOrder>(m, "LoadOrder").value("by_layer", LoadOrder::by_layer);
  bind_struct<PollResult>(m, "PollResult", "").field("idle", &PollResult::idle, "bool").done();
  bind_struct<TierStats>(m, "TierStats", "")
      .field("loaded_tokens", &TierStats::loaded_tokens, "int")
      .done();
  nb::enum_<WritePolicy>(m, "WritePolicy")
      .value("write_through", WritePolicy::write_through)
      .value("write_through_selective", WritePolicy::write_through_selective)
      .value("write_back", WritePolicy::write_back);
}

}  // namespace pando::python
