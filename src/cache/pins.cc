// SPDX-License-Identifier: Apache-2.0
// Pins: paths that stay without a request. A hard pin holds as a lease does. So does a soft one,
// until the host has all that its end needs: then it holds that, and the device may evict.
//
// Invariant: the index counts every pin's path, and among those on the device the ones held there.
#include <algorithm>

#include "base/check.h"
#include "cache/prefix_cache_impl.h"

namespace pando {

std::string_view to_string(PinKind kind) { return kind == PinKind::hard ? "hard" : "soft"; }

namespace {

std::size_t share_of(double share, std::size_t pages) {
  return static_cast<std::size_t>(share * static_cast<double>(pages));
}

}  // namespace

Status PrefixCacheImpl::refuse_pin(NodeIndex end) {
  const std::size_t page_size = index.page_size();
  const double share = options.retention.max_pinned_share;
  const std::size_t device = component_capacity(Tier::device, ComponentKind::full);
  const std::size_t all = device + (tier ? component_capacity(Tier::host, ComponentKind::full) : 0);
  for (const bool on_device : {true, false}) {
    const std::size_t limit = share_of(share, on_device ? device : all);
    const std::size_t pinned = index.retention().pinned_pages(on_device);
    const std::size_t more = index.retention().pages_to_pin(end, on_device);
    if (pinned + more > limit)
      return make_error(ErrorCode::out_of_capacity,
                        "pin: {} tokens more beside {} that are pinned{}; at most {} may be, which "
                        "is max_pinned_share {} of {}",
                        more * page_size, pinned * page_size, on_device ? " on the device" : "",
                        limit * page_size, share, (on_device ? device : all) * page_size);
  }
  return {};
}

Result<Pinned> Retention::pin(const Key& key, const PinOptions& pin) {
  if (pin.ttl && pin.ttl->count() <= 0)
    return make_error(ErrorCode::invalid_argument, "pin: a ttl of {} ms; expected more than 0",
                      pin.ttl->count());
  RadixIndex& index = cache_.index;
  const Tree::Cursor cursor =
      cache_.options.disabled
          ? Tree::Cursor{}
          : index.matcher().valid_end(index.tree().descend(key, nullptr), Matcher::Reach::device);
  if (cursor.pages == 0)
    return make_error(ErrorCode::invalid_argument,
                      "pin: nothing of this key of {} tokens is on the device", key.tokens.size());
  const NodeIndex end = index.tree().split_at(cursor);
  if (Status s = cache_.refuse_pin(end); !s) return s.error();
  const PinId id{cache_.next_id()};
  PrefixCacheImpl::HeldPin& held = cache_.pins[id.value];
  held.kind = pin.kind;
  held.device = cache_.hold_path(end);
  held.node = held.device.node;
  index.retention().count_pin(end, /*on_device=*/false);
  index.retention().count_pin(end, /*on_device=*/true);
  if (pin.ttl) {
    held.until = cache_.after(*pin.ttl);
    cache_.timers.push({.at = held.until, .pin = id});
  }
  if (pin.kind == PinKind::soft && cache_.tier) {
    cache_.tier->back_up(end);
    cache_.soft_pins.push_back(id);
    cache_.loosen_soft_pins();
  }
  cache_.give_back();
  cache_.ledger.flush();
  return Pinned{id, cursor.pages * index.page_size()};
}

// Those whose path the host has by now hold it there.
void PrefixCacheImpl::loosen_soft_pins() {
  std::erase_if(soft_pins, [this](PinId id) {
    const auto at = pins.find(id.value);
    if (at == pins.end()) return true;
    HeldPin& held = at->second;
    const NodeIndex end = index.resolve(held.node);
    if (!index.matcher().is_on_host(end)) return false;
    index.holds().lock_host(end);
    ++num_host_locks;
    held.host = held.node;
    index.retention().uncount_pin(end, /*on_device=*/true);
    release_hold(held.device);
    return true;
  });
}

void PrefixCacheImpl::drop_pin(PinId id) {
  const auto at = pins.find(id.value);
  if (at == pins.end()) return;
  HeldPin& held = at->second;
  const NodeIndex end = index.resolve(held.node);
  index.retention().uncount_pin(end, /*on_device=*/false);
  if (held.host) {
    release_host(held.host);
  } else {
    index.retention().uncount_pin(end, /*on_device=*/true);
    release_hold(held.device);
  }
  pins.erase(at);
}

// Of nodes that a failed load has cut off nothing is left to keep.
void PrefixCacheImpl::drop_broken_pins() {
  std::vector<PinId> broken;
  for (const auto& [id, held] : pins) {
    if (index.node(index.resolve(held.node)).cut_off) broken.push_back(PinId{id});
  }
  for (const PinId id : broken) drop_pin(id);
}

Status Retention::unpin(PinId id) {
  if (!cache_.pins.contains(id.value))
    return make_error(ErrorCode::stale_handle,
                      "unpin: there is no pin {}; it has ended, or never was", id.value);
  cache_.drop_pin(id);
  cache_.give_back();
  cache_.ledger.flush();
  return {};
}

std::vector<Pin> Retention::pins() const {
  std::vector<Pin> all;
  for (const auto& [id, held] : cache_.pins) {
    const NodeIndex end = cache_.index.resolve(held.node);
    Pin& pin = all.emplace_back();
    pin.id = PinId{id};
    pin.kind = held.kind;
    pin.ns = cache_.index.tree().namespace_of(end);
    pin.length = cache_.index.node(end).end_pages * cache_.index.page_size();
    pin.on_device = !held.host;
    if (held.until != kForever)
      pin.remaining = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::nanoseconds(std::max<Ticks>(0, held.until - cache_.now())));
  }
  return all;
}

std::size_t Retention::pinned_tokens() const {
  return cache_.index.retention().pinned_pages(/*on_device=*/false) * cache_.index.page_size();
}

}  // namespace pando
