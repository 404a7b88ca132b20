// SPDX-License-Identifier: Apache-2.0
// The rules of the groups and the search over them; see the header.
#include "blocks/hit_search.h"

#include <algorithm>
#include <numeric>

#include "blocks/block_host.h"

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
                     const BlockHost* host)
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
  for (std::size_t g = 0; g < groups_.size(); ++g)
    found_[g].assign(num_tokens / groups_[g].block_size, Found{});
  for (std::vector<std::size_t>& runs : run_) runs.assign(groups_.size(), 0);
}

PageId HitSearch::device(std::size_t group, std::size_t i) {
  Found& found = found_[group][i];
  if (found.device == kUnknown) {
    const std::size_t size = groups_[group].block_size;
    const auto g = static_cast<std::uint32_t>(group);
    found.device = index_of(pool_.find(keys_.content(g, size, i)).value_or(kNullBlock));
  }
  return PageId{found.device};
}

std::optional<HostPageId> HitSearch::host(std::size_t group, std::size_t i) {
  if (host_ == nullptr) return std::nullopt;
  Found& found = found_[group][i];
  if (found.host == kUnknown) {
    const auto page = host_->find(
        keys_.content(static_cast<std::uint32_t>(group), groups_[group].block_size, i));
    found.host = page ? index_of(*page) + 1 : 0;
  }
  if (found.host == 0) return std::nullopt;
  return HostPageId{found.host - 1};
}

bool HitSearch::has(std::size_t group, std::size_t i, Reach reach) {
  if (device(group, i) != kNullBlock) return true;
  if (reach == Reach::device) return false;
  return host(group, i).has_value() || (reach == Reach::store && found_[group][i].in_store);
}

std::size_t HitSearch::longest_of(std::size_t group, std::size_t limit, Reach reach) {
  const BlockGroup& rule = groups_[group];
  const std::size_t size = rule.block_size;
  if (rule.kind == GroupKind::full) {
    constexpr std::size_t kAhead = 8;  // lookups whose first line is on its way
    std::size_t& run = run_[static_cast<std::size_t>(reach)][group];
    const std::size_t end = limit / size;
    const std::size_t per_block = size / keys_.unit;
    while (run < end && has(group, run, reach)) {
      ++run;
      const std::size_t ahead = (run + kAhead) * per_block;
      if (ahead <= keys_.hashes.size())
        pool_.prefetch(static_cast<std::uint32_t>(group), keys_.hashes[ahead - 1]);
    }
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
