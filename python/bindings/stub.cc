#include "observe.h"
#include "tiers.h"
namespace pando::python {
TierPools to_tier_pools(nb::handle, Kept&, const SharedGuard&) { return {}; }
Copier* to_copier(nb::handle, Kept&) { return nullptr; }
HostTierOptions to_host_tier(nb::handle, Kept&, const SharedGuard&) { return {}; }
std::shared_ptr<CacheObserver> to_observer(nb::handle) { return {}; }
}  // namespace pando::python
namespace pando::python {
void bind_tiers(nb::module_& m) {
  nb::enum_<LoadOrder>(m, "LoadOrder").value("by_layer", LoadOrder::by_layer);
}
}  // namespace pando::python
