// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on all that it has: evict, reset, check, take_events; and the ways to
// its parts. It is made in create.cc.
#include "pando/cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/observed.h"
#include "cache/prefix_cache_impl.h"
#include "pando/observer.h"

namespace pando {

// ---- Evicting ----------------------------------------------------------------------------------

void PrefixCacheImpl::give_back() {
  give_back_device(released);
  if (tier) tier->give_back(released);
}

EvictResult PrefixCacheImpl::evict(const Evictor::Goal& goal) {
  const Evicted result = index.evictor().evict(goal, options.evict_whole_nodes, released);
  if (tier) {
    tier->finish_write_back();
    tier->engine.stats.demoted_tokens += result.demoted_pages * index.page_size();
  }
  give_back();
  ledger.flush();
  const EvictResult told{.tokens = result.pages * index.page_size(),
                         .window_tokens = result.window_pages * index.page_size(),
                         .snapshots = result.snapshots,
                         .nodes = result.nodes,
                         .demoted_tokens = result.demoted_pages * index.page_size()};
  stats.evicted_tokens += told.tokens;
  stats.evicted_nodes += told.nodes;
  stats.evicted_window_tokens += told.window_tokens;
  stats.evicted_snapshots += told.snapshots;
  if (observer != nullptr) observer->on_evict(Tier::device, told);
  return told;
}

EvictResult PrefixCacheImpl::evict_for(const EvictGoal& goal) {
  const std::size_t page_size = index.page_size();
  const CauseScope cause(*this, Pressure::evict_call, goal.tokens);
  return evict({.pages = pages_for(goal.tokens, page_size),
                .window_pages = pages_for(goal.window_tokens, page_size),
                .snapshots = goal.snapshots,
                .by = tenants.owner_of(goal.ns)});
}

EvictResult PrefixCache::evict(const EvictGoal& goal) {
  return observed(impl_->observer, CacheCall::evict, [&] { return impl_->evict_for(goal); });
}

// What is being copied is waited for; what leaves the device is not saved. A copy that ends now is
// put into the store, which holds its node: so the store is told last to let go. No eviction in the
// sense of an observer.
void PrefixCacheImpl::evict_all() {
  CacheObserver* const told = std::exchange(observer, nullptr);
  while (!pins.empty()) drop_pin(PinId{pins.begin()->first});
  if (tier) tier->engine.drain();
  if (tier && tier->engine.store() != nullptr) tier->engine.store()->abandon();
  const auto save_to_host = std::exchange(index.evictor().save_to_host, nullptr);
  for (OwnerId owner = 0; owner < tenants.list().size(); ++owner) {  // floors and all
    evict({.pages = SIZE_MAX, .by = owner});
    if (tier) tier->evict({.pages = SIZE_MAX, .by = owner});
  }
  index.evictor().save_to_host = save_to_host;
  observer = told;
}

Status PrefixCacheImpl::reset() {
  if (const std::size_t leases = num_locks + num_host_locks - pins.size(); leases != 0)
    return make_error(ErrorCode::in_use, "reset: {} leases are still held", leases);
  const Residency::OnRemoved on_removed = std::exchange(index.residency().on_removed, nullptr);
  evict_all();
  index.residency().on_removed = on_removed;
  stats = {};
  if (tier) tier->engine.stats = {};
  if (events) events->cleared();
  if (record) record->clear();
  return {};
}

// ---- Telling -----------------------------------------------------------------------------------

const CacheOptions& PrefixCache::options() const { return impl_->options; }
std::size_t PrefixCache::page_size() const { return impl_->index.page_size(); }
Tiers& PrefixCache::tiers() { return impl_->door; }
const Tiers& PrefixCache::tiers() const { return impl_->door; }
Retention& PrefixCache::retention() { return impl_->retention_door; }
const Retention& PrefixCache::retention() const { return impl_->retention_door; }
const Inspector& PrefixCache::inspect() const { return impl_->inspector; }
Paths& PrefixCache::paths() { return impl_->paths_door; }
const Paths& PrefixCache::paths() const { return impl_->paths_door; }

std::vector<KvEvent> PrefixCache::take_events() {
  return impl_->events ? impl_->events->take() : std::vector<KvEvent>{};
}

Status PrefixCache::check() const {
  RadixIndex::HoldCounts holds{impl_->num_locks, impl_->num_snapshot_locks, impl_->num_host_locks};
  if (impl_->tier) impl_->tier->add_holds(holds);
  for (const auto& [id, pin] : impl_->pins) {
    ++holds.pins;
    holds.device_pins += pin.host ? 0 : 1;
  }
  if (Status s = impl_->index.check(holds); !s) return s;
  std::vector<PageId> pages;
  impl_->index.tree().for_each_node([&](NodeIndex, const Node& node) {
    for (std::uint32_t p = 0; node.on_device() && p < node.num_pages; ++p)
      pages.push_back(PageId{node.pages[p]});
  });
  if (Status s = impl_->ledger.check(pages); !s) return s;
  if (Status s = impl_->check_requests(); !s) return s;
  if (Status s = impl_->check_windows(); !s) return s;
  if (impl_->tier) {
    if (Status s = impl_->tier->check(); !s) return s;
  }
  return impl_->check_snapshots();
}

// The tree and the allocator agree about which of the tree's pages have a window side.
Status PrefixCacheImpl::check_windows() const {
  const WindowAllocator* allocator = ledger.window_allocator();
  if (allocator == nullptr) return {};
  Status status;
  index.tree().for_each_node([&](NodeIndex i, const Node& node) {
    for (std::uint32_t p = 0; node.on_device() && p < node.num_pages; ++p) {
      if (allocator->has_window(PageId{node.pages[p]}) != index.residency().has_window(i))
        status = make_error(ErrorCode::corrupt, "page {} of node {} should {}have a window side",
                            node.pages[p], i, index.residency().has_window(i) ? "" : "not ");
    }
  });
  return status;
}

Status PrefixCacheImpl::check_snapshots() const {
  std::vector<StateSlot> slots;
  index.tree().for_each_node([&](NodeIndex i, const Node&) {
    if (index.residency().has_snapshot(i)) slots.push_back(index.residency().snapshot(i));
  });
  return states.check(slots);
}

}  // namespace pando
