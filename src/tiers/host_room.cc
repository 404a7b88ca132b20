// SPDX-License-Identifier: Apache-2.0
// Claims on host pages; see the header.
#include "tiers/host_room.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace pando {

HostRoom::HostRoom(std::vector<HostPool*> pools, Agreement& ranks, HostKeeper& keeper)
    : pools_(std::move(pools)),
      ranks_(ranks),
      keeper_(keeper),
      claimed_(pools_.size()),
      claimed_by_(pools_.size()) {
  std::vector<std::int64_t> capacity;
  for (const HostPool* pool : pools_)
    capacity.push_back(pool == nullptr ? 0 : static_cast<std::int64_t>(pool->available_pages()));
  ranks_.least(capacity);
  capacity_.assign(capacity.begin(), capacity.end());
}

std::size_t HostRoom::claimed_by(std::size_t component, OwnerId owner) const {
  const std::vector<std::size_t>& claimed = claimed_by_[component];
  return owner < claimed.size() ? claimed[owner] : 0;
}

// Pages to be had without evicting. Alone, the pool knows, whoever else may use it.
std::size_t HostRoom::free_pages(std::size_t component) const {
  if (ranks_.alone()) return pools_[component]->available_pages();
  const std::size_t used = keeper_.kept_pages(component) + claimed_[component];
  return capacity_[component] - std::min(capacity_[component], used);
}

std::size_t HostRoom::available(std::size_t component, OwnerId owner) const {
  return free_pages(component) + keeper_.evictable_for(component, owner);
}

// An owner at its cap has room for no more than it gives up itself.
bool HostRoom::keep_to_cap(std::size_t component, std::size_t n, OwnerId owner) {
  HostKeeper::Share share = keeper_.share(component, owner);
  if (share.cap == SIZE_MAX) return true;
  const auto excess = [&] {
    const std::size_t wanted = share.kept + claimed_by(component, owner) + n;
    return wanted - std::min(wanted, share.cap);
  };
  if (const std::size_t pages = excess(); pages > 0) {
    if (pages > share.evictable) return false;
    keeper_.evict_host({component, pages, owner, /*over_cap=*/true});
    share = keeper_.share(component, owner);
  }
  return excess() == 0;
}

bool HostRoom::reserve(std::size_t component, std::size_t n, OwnerId owner,
                       std::vector<HostPageId>& out, Claim& claim) {
  if (!keep_to_cap(component, n, owner)) return false;
  if (const std::size_t free = free_pages(component); free < n) {
    if (keeper_.evictable_for(component, owner) < n - free) return false;
    keeper_.evict_host({component, n - free, owner});
    if (free_pages(component) < n) return false;
  }
  claim.owner = owner;
  claimed_[component] += n;
  std::vector<std::size_t>& by = claimed_by_[component];
  if (by.size() <= owner) by.resize(owner + std::size_t{1});
  by[owner] += n;
  const std::size_t first = out.size();
  out.resize(first + n);
  if (pools_[component]->alloc(std::span(out).subspan(first))) return true;
  out.resize(first);
  claim.refused = true;
  return true;
}

Status HostRoom::check(std::span<const Claimed> claims) const {
  std::vector<std::vector<std::size_t>> sums;
  for (const std::vector<std::size_t>& by : claimed_by_) sums.emplace_back(by.size());
  for (const Claimed& claimed : claims) sums[claimed.component][claimed.owner] += claimed.num_pages;
  for (std::size_t c = 0; c < pools_.size(); ++c) {
    const std::size_t sum = std::accumulate(sums[c].begin(), sums[c].end(), std::size_t{0});
    if (sum != claimed_[c] || sums[c] != claimed_by_[c])
      return make_error(ErrorCode::corrupt, "{} host pages of component {} are claimed, counted {}",
                        sum, c, claimed_[c]);
  }
  return {};
}

}  // namespace pando
