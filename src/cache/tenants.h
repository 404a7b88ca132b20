// SPDX-License-Identifier: Apache-2.0
// Who the tenants of a cache are, which namespaces are whose, and that what is promised to them
// fits into the cache. What each has is counted by the shelves of the index.
//
// Owner 0 is not a tenant's: it has all namespaces that are no tenant's, and an empty name.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "index/node.h"
#include "pando/result.h"
#include "pando/retention.h"

namespace pando {

class Tenants {
 public:
  /// What there is to share, in tokens. No host: 0.
  struct Capacity {
    std::size_t device = 0;
    std::size_t host = 0;
  };

  /// An error unless every tenant's limits make sense and all floors together fit.
  static Status validate(const std::vector<TenantOptions>& tenants, const Capacity& capacity);

  /// Adds a tenant, or changes what one may have. Nothing changes if it fails.
  Result<OwnerId> set(const TenantOptions& tenant, const Capacity& capacity);
  Result<OwnerId> find(std::string_view name) const;
  const std::vector<TenantOptions>& list() const { return tenants_; }  // by owner

  void assign(std::string_view ns, OwnerId owner) {
    assigned_[std::string(ns)] = owner;
    last_ = {"", find_owner("")};
  }
  OwnerId owner_of(std::string_view ns) const {
    if (last_.ns != ns) last_ = {std::string(ns), find_owner(ns)};
    return last_.owner;
  }

 private:
  struct Found {
    std::string ns;
    OwnerId owner = kSharedOwner;
  };
  OwnerId find_owner(std::string_view ns) const;

  std::vector<TenantOptions> tenants_ = std::vector<TenantOptions>(1);
  std::unordered_map<std::string, OwnerId> by_name_ = {{"", kSharedOwner}};
  std::unordered_map<std::string, OwnerId> assigned_;
  mutable Found last_;  // many calls in a row ask for one namespace
};

}  // namespace pando
