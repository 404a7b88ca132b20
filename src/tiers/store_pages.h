// SPDX-License-Identifier: Apache-2.0
// Host pages as pages of a store: their keys and the memory they are in. Shared by puts and
// fetches.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pando/key_space.h"
#include "pando/pools.h"
#include "pando/store.h"
#include "tiers/extent.h"

namespace pando {

/// Pages that one call of a store has at most.
inline constexpr std::size_t kPagesPerCall = 128;

class StorePages {
 public:
  /// By component; the pools must outlive it.
  struct Component {
    KeySpace space;
    const HostPool* pool;
  };
  explicit StorePages(std::vector<std::optional<Component>> components)
      : components_(std::move(components)) {}

  std::string key(const PageName& name) const {
    return components_[name.component]->space.key(name.hash);
  }
  StorePage page(const NamedPage& named) const {
    StorePage out{.key = key(named.name)};
    const std::vector<MemoryRegion> regions =
        *components_[named.name.component]->pool->page_regions(named.page);
    for (const MemoryRegion& region : regions)
      out.pieces.emplace_back(region.address, region.size_bytes);
    return out;
  }
  std::size_t page_bytes(std::size_t component) const {
    return components_[component]->pool->page_bytes();
  }
  /// Whether this rank is the one that writes.
  bool writes() const { return components_[0]->space.writes(); }

 private:
  std::vector<std::optional<Component>> components_;
};

}  // namespace pando
