// SPDX-License-Identifier: Apache-2.0
// The rules of the groups and the search over them; see the header.
#include "blocks/hit_search.h"

#include <algorithm>
#include <numeric>

#include "blocks/host_blocks.h"

namespace pando {

std::size_t needed_from(const BlockGroup& group, std::size_t length) {
  std::size_t token = 0;
  switch (group.kind) {
    case GroupKind::full:
      break;
    case GroupKind::sliding_window:
      token = length >= group.span ? length - group.span + 1 : 0;
      break;
    case GroupKind::chunked_local:
      token = length / group.span * group.span;
      break;
    case GroupKind::recurrent:
      token = length > 0 ? length - 1 : 0;
      break;
  }
  return token / group.block_size;
}

HitSearch::HitSearch(std::span<const BlockGroup> groups, const BlockPool& pool,
                     const HostBlocks* host)
    : groups_(groups), pool_(pool), host_(host), found_(groups.size()) {
  for (const BlockGroup& group : groups) align_ = std::lcm(align_, group.block_size);
  order_.resize(groups.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_partition(order_.begin(), order_.end(),
                        [&](std::size_t g) { return groups_[g].kind == GroupKind::full; });
}

void HitSearch::begin(const BlockKeys& keys) {
  keys_ = keys;
  const std::size_t num_tokens = keys.hashes.size() * keys.unit;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::size_t n = num_tokens / groups_[g].block_size;
    found_[g].device.assign(n, kUnknown);
    found_[g].host.assign(host_ != nullptr ? n : 0, index_of(kUnknown));
    found_[g].in_store.assign(host_ != nullptr ? n : 0, false);
  }
  for (std::vector<std::size_t>& runs : run_) runs.assign(groups_.size(), 0);
}

PageId HitSearch::device(std::size_t group, std::size_t i) {
  PageId& found = found_[group].device[i];
  if (found == kUnknown)
    found =
        pool_.find(keys_.content(static_cast<std::uint32_t>(group), groups_[group].block_size, i));
  return found;
}

std::optional<HostPageId> HitSearch::host(std::size_t group, std::size_t i) {
  if (host_ == nullptr) return std::nullopt;
  std::uint32_t& found = found_[group].host[i];
  if (found == index_of(kUnknown)) {
    const auto page =
        host_->find(keys_.content(static_cast<std::uint32_t>(group), groups_[group].block_size, i));
    found = page ? index_of(*page) + 1 : 0;
  }
  if (found == 0) return std::nullopt;
  return HostPageId{found - 1};
}

bool HitSearch::has(std::size_t group, std::size_t i, Reach reach) {
  if (device(group, i) != kNullBlock) return true;
  if (reach == Reach::device) return false;
  return host(group, i).has_value() || (reach == Reach::store && found_[group].in_store[i]);
}

// From the start: all at once what the device has, then one by one.
void HitSearch::extend_run(std::size_t group, std::size_t end, Reach reach, std::size_t& run) {
  std::vector<PageId>& device = found_[group].device;
  if (run == 0 && end > 0 && device[0] == kUnknown) {
    const std::size_t size = groups_[group].block_size;
    run = pool_.find_run(keys_.content(static_cast<std::uint32_t>(group), size, 0),
                         size / keys_.unit, std::span(device).first(end));
  }
  while (run < end && has(group, run, reach)) ++run;
}

std::size_t HitSearch::longest_of(std::size_t group, std::size_t limit, Reach reach) {
  const BlockGroup& rule = groups_[group];
  const std::size_t size = rule.block_size;
  if (rule.kind == GroupKind::full) {
    std::size_t& run = run_[static_cast<std::size_t>(reach)][group];
    extend_run(group, limit / size, reach, run);
    return std::min(run * size, limit) / align_ * align_;
  }
  std::size_t length = limit / align_ * align_;
  while (length > 0) {
    const std::size_t from = needed_from(rule, length);
    std::size_t i = length / size;
    while (i > from && has(group, i - 1, reach)) --i;
    if (i == from) return length;
    length = (i - 1) * size / align_ * align_;
  }
  return 0;
}

std::size_t HitSearch::longest(std::size_t limit, Reach reach) {
  std::size_t length = std::min(limit, keys_.hashes.size() * keys_.unit) / align_ * align_;
  std::size_t agreed = 0;  // groups that the present length suits
  for (std::size_t at = 0; agreed < groups_.size() && length > 0; at = (at + 1) % groups_.size()) {
    const std::size_t suits = longest_of(order_[at], length, reach);
    agreed = suits == length ? agreed + 1 : 1;
    length = suits;
  }
  return length;
}

}  // namespace pando
