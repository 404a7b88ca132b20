// SPDX-License-Identifier: Apache-2.0
// Tenants by name, and the calls of PrefixCache on them.
#include "cache/tenants.h"

#include <algorithm>

#include "base/check.h"
#include "base/namespace_parts.h"
#include "cache/prefix_cache_impl.h"

namespace pando {
namespace {

constexpr std::size_t kMaxTenants = 4096;

Status validate_tier(const TenantOptions& tenant, const char* tier, std::size_t floor,
                     std::size_t cap, std::size_t capacity) {
  if (floor > cap)
    return make_error(ErrorCode::invalid_argument,
                      "tenant '{}': a floor of {} {} tokens is above its cap of {}", tenant.name,
                      floor, tier, cap);
  if (capacity == 0 && (floor > 0 || cap != TenantOptions::kNoCap))
    return make_error(ErrorCode::invalid_argument,
                      "tenant '{}': a share of {} tokens in a cache that has none", tenant.name,
                      tier);
  return {};
}

}  // namespace

// ---- Names -------------------------------------------------------------------------------------

Status Tenants::validate(const std::vector<TenantOptions>& tenants, const Capacity& capacity) {
  std::size_t device = 0;
  std::size_t host = 0;
  for (const TenantOptions& tenant : tenants) {
    if (Status s = validate_tier(tenant, "device", tenant.device_floor, tenant.device_cap,
                                 capacity.device);
        !s)
      return s;
    if (Status s = validate_tier(tenant, "host", tenant.host_floor, tenant.host_cap, capacity.host);
        !s)
      return s;
    device += std::min(tenant.device_floor, SIZE_MAX - device);
    host += std::min(tenant.host_floor, SIZE_MAX - host);
  }
  for (const auto& [sum, has, tier] :
       {std::tuple{device, capacity.device, "device"}, {host, capacity.host, "host"}}) {
    if (sum > has)
      return make_error(ErrorCode::invalid_argument,
                        "tenants: floors add up to {} {} tokens; expected at most the {} there are",
                        sum, tier, has);
  }
  return {};
}

Result<OwnerId> Tenants::set(const TenantOptions& tenant, const Capacity& capacity) {
  const auto known = by_name_.find(tenant.name);
  const auto owner =
      known != by_name_.end() ? known->second : static_cast<OwnerId>(tenants_.size());
  if (owner >= kMaxTenants)
    return make_error(ErrorCode::out_of_capacity, "tenant '{}': there are {} already, the most",
                      tenant.name, kMaxTenants - 1);
  std::vector<TenantOptions> changed = tenants_;
  changed.resize(std::max<std::size_t>(changed.size(), owner + std::size_t{1}));
  changed[owner] = tenant;
  if (Status s = validate(changed, capacity); !s) return s.error();
  tenants_ = std::move(changed);
  by_name_[tenant.name] = owner;
  last_ = {"", find_owner("")};
  return owner;
}

Result<OwnerId> Tenants::find(std::string_view name) const {
  const auto known = by_name_.find(std::string(name));
  if (known != by_name_.end()) return known->second;
  std::string names;
  for (const TenantOptions& tenant : tenants_) names += fmt::format(" '{}'", tenant.name);
  return make_error(ErrorCode::invalid_argument, "unknown tenant '{}'; there are:{}", name, names);
}

OwnerId Tenants::find_owner(std::string_view ns) const {
  if (!assigned_.empty()) {
    if (const auto said = assigned_.find(std::string(ns)); said != assigned_.end())
      return said->second;
  }
  if (tenants_.size() == 1 || ns.empty()) return kSharedOwner;
  const std::optional<NamespaceParts> parts = parse_namespace(ns);
  if (!parts || parts->tenant.empty()) return kSharedOwner;
  const auto known = by_name_.find(std::string(parts->tenant));
  return known == by_name_.end() ? kSharedOwner : known->second;
}

// ---- Shares ------------------------------------------------------------------------------------

Tenants::Capacity PrefixCacheImpl::shared_capacity() const {
  const std::size_t page_size = index.page_size();
  return {(ledger.num_pages() - 1) * page_size,
          tier ? tier->pools(ComponentKind::full).host->num_pages() * page_size : 0};
}

// Windows and snapshots have pools of other sizes: of each a tenant has the same share.
void PrefixCacheImpl::apply_limits(OwnerId owner) {
  const std::size_t page_size = index.page_size();
  const TenantOptions& tenant = tenants.list()[owner];
  const auto apply = [&](Tier where, std::size_t floor, std::size_t cap) {
    const std::size_t floor_pages = pages_for(floor, page_size);
    const std::size_t all_pages = component_capacity(where, ComponentKind::full);
    index.shelves().set_limits(where, ComponentKind::full, owner,
                               {floor_pages, cap == TenantOptions::kNoCap ? cap : cap / page_size});
    for (const ComponentKind kind : {ComponentKind::window, ComponentKind::state}) {
      const std::size_t has = component_capacity(where, kind);
      index.shelves().set_limits(where, kind, owner,
                                 {floor_pages * has / std::max<std::size_t>(1, all_pages)});
    }
  };
  apply(Tier::device, tenant.device_floor, tenant.device_cap);
  if (tier) apply(Tier::host, tenant.host_floor, tenant.host_cap);
}

std::size_t PrefixCacheImpl::component_capacity(Tier where, ComponentKind kind) const {
  if (where == Tier::host) {
    const HostPool* const pool = tier->pools(kind).host;
    return pool == nullptr ? 0 : pool->num_pages();
  }
  if (kind == ComponentKind::state) return states.pool() == nullptr ? 0 : states.pool()->capacity();
  if (kind == ComponentKind::window && ledger.window_allocator() != nullptr)
    return ledger.window_allocator()->window().num_pages();
  return ledger.num_pages() - 1;
}

void PrefixCacheImpl::enforce_cap(OwnerId owner, NodeIndex end) {
  const std::size_t excess =
      index.shelves().shelf(Tier::device, ComponentKind::full)->over_cap(owner);
  if (excess == 0) return;
  if (end != kNoNode) index.holds().lock(end);
  const CauseScope cause(*this, Pressure::tenant_cap, excess * index.page_size());
  evict({.pages = excess, .by = owner, .only_own = true});
  if (end != kNoNode) index.unlock(end, released);
  give_back();
  ledger.flush();
}

Status Retention::set_tenant(const TenantOptions& tenant) {
  const Result<OwnerId> owner = cache_.tenants.set(tenant, cache_.shared_capacity());
  if (!owner) return owner.error();
  cache_.apply_limits(*owner);
  for (const std::string_view ns : cache_.index.tree().namespaces())
    cache_.index.retention().set_owner(ns, cache_.tenants.owner_of(ns));
  cache_.enforce_cap(*owner);
  return {};
}

Status Retention::assign_namespace(std::string_view ns, std::string_view tenant) {
  const Result<OwnerId> owner = cache_.tenants.find(tenant);
  if (!owner) return Error{owner.error().code, "assign_namespace: " + owner.error().message};
  cache_.tenants.assign(ns, *owner);
  cache_.index.retention().set_owner(ns, *owner);
  cache_.enforce_cap(*owner);
  return {};
}

std::vector<TenantUsage> Retention::tenants() const {
  std::vector<TenantUsage> all;
  for (const TenantOptions& tenant : cache_.tenants.list())
    all.push_back(*tenant_usage(tenant.name));
  return all;
}

Result<TenantUsage> Retention::tenant_usage(std::string_view name) const {
  const Result<OwnerId> owner = cache_.tenants.find(name);
  if (!owner) return owner.error();
  const std::size_t page_size = cache_.index.page_size();
  TenantUsage usage;
  usage.limits = cache_.tenants.list()[*owner];
  usage.name = usage.limits.name;
  const Shelf::Tally device =
      cache_.index.shelves().shelf(Tier::device, ComponentKind::full)->of(*owner);
  usage.device_tokens = device.total * page_size;
  usage.device_evictable = device.evictable * page_size;
  if (!cache_.tier) return usage;
  const Shelf::Tally host =
      cache_.index.shelves().shelf(Tier::host, ComponentKind::full)->of(*owner);
  usage.host_tokens = host.total * page_size;
  usage.host_evictable = host.evictable * page_size;
  return usage;
}

}  // namespace pando
