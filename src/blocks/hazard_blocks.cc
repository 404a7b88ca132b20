// SPDX-License-Identifier: Apache-2.0
// Blocks in the eyes of the hazard policy.
#include "blocks/hazard_blocks.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace pando {
namespace {

constexpr std::size_t kUnitTokens = 64;

}  // namespace

HazardBlocks::HazardBlocks(const Options& options)
    : blocks_per_unit_(std::max<std::size_t>(1, kUnitTokens / options.unit_group_tokens)),
      unit_group_(options.unit_group),
      leaves_only_(options.leaves_only),
      sides_(options.num_blocks),
      history_(std::min<std::size_t>(
          BlockHistory::limit_for((options.num_blocks + options.lower_pages) / blocks_per_unit_),
          UINT32_MAX - 1)) {}

std::uint64_t HazardBlocks::name_of(const BlockHash& hash) {
  std::uint64_t name;
  std::memcpy(&name, hash.value.data(), sizeof name);
  return name;
}

// ---- Chains ------------------------------------------------------------------------------------

void HazardBlocks::place(PageId block, const Place& place) {
  Side& side = sides_[index_of(block)];
  PANDO_CHECK(side.serial == 0, "block {} is placed anew while it has content", index_of(block));
  const std::optional<std::uint32_t> past = past_hits(place.unit);
  side = {.name = place.name,
          .name_before = place.name_before,
          .before = index_of(place.before),
          .depth = place.depth,
          .hits = static_cast<std::uint16_t>(past.value_or(0)),
          .group = static_cast<std::uint16_t>(place.group),
          .fresh = !past};
}

HazardBlocks::Side* HazardBlocks::before(const Side& side) {
  Side& before = sides_[side.before];
  return side.before != 0 && before.serial == side.serial_before ? &before : nullptr;
}

void HazardBlocks::cached(PageId block) {
  Side& side = sides_[index_of(block)];
  side.serial = ++last_serial_;
  if (stands_for_unit(side)) (void)history_.take(side.name);
  side.key = HazardIndex::pack(index_.learner.now(), ReuseHazard::class_of(0, side.hits, false));
  Side& before = sides_[side.before];
  if (!leaves_only_[side.group] || before.serial == 0 || before.group != side.group ||
      before.name != side.name_before)
    side.before = 0;
  if (side.before == 0) return;
  side.serial_before = before.serial;
  if (before.behind == 0 && may_go(before)) draw_.erase(candidates_, side.before);
  ++before.behind;
}

void HazardBlocks::copy_hits(PageId block, PageId twin) {
  Side& side = sides_[index_of(block)];
  const Side& other = sides_[index_of(twin)];
  side.hits = other.hits;
  side.fresh = other.fresh;
}

void HazardBlocks::lose_content(std::uint32_t i) {
  Side& side = sides_[i];
  if (may_go(side)) draw_.erase(candidates_, i);
  if (Side* up = before(side)) {
    --up->behind;
    if (up->behind == 0 && may_go(*up)) insert(side.before);
  }
  side.serial = 0;
  side.before = 0;
  side.behind = 0;
  side.free = false;
}

// ---- Coming and going --------------------------------------------------------------------------

void HazardBlocks::held(PageId block) {
  Side& side = sides_[index_of(block)];
  if (may_go(side)) draw_.erase(candidates_, index_of(block));
  side.free = false;
}

void HazardBlocks::freed(PageId block) {
  Side& side = sides_[index_of(block)];
  side.free = true;
  if (may_go(side)) insert(index_of(block));
}

// Those that take() chose have gone before.
void HazardBlocks::forgotten(PageId block) {
  if (sides_[index_of(block)].serial != 0) lose_content(index_of(block));
}

// There may be free blocks and no candidate: when a copy or a request holds what is behind them.
PageId HazardBlocks::take(PageId oldest) {
  const std::uint32_t victim = candidates_.empty() ? index_of(oldest) : pick();
  const Side& side = sides_[victim];
  const Side* const up = before(side);
  following_ = up != nullptr && up->key == side.key ? side.before : 0;
  if (stands_for_unit(side)) history_.add(side.name, side.hits);
  lose_content(victim);
  return PageId{victim};
}

std::uint32_t HazardBlocks::pick() {
  if (following_ != 0 && may_go(sides_[following_])) return following_;
  return draw_.pick(candidates_);
}

// ---- Requests ----------------------------------------------------------------------------------

void HazardBlocks::look_ahead(std::size_t num_blocks) {
  index_.ahead = num_blocks / blocks_per_unit_;
  following_ = 0;
}

void HazardBlocks::begin_request(std::size_t num_blocks) {
  odd_blocks_ += num_blocks;
  index_.learner.begin_request(odd_blocks_ / blocks_per_unit_);
  odd_blocks_ %= blocks_per_unit_;
}

std::uint32_t HazardBlocks::hit(PageId block) {
  Side& side = sides_[index_of(block)];
  if (!side.fresh && side.hits < UINT16_MAX) ++side.hits;
  side.fresh = false;
  return side.hits;
}

void HazardBlocks::use(PageId block, ReuseHazard::Class cls) {
  Side& side = sides_[index_of(block)];
  const bool listed = may_go(side);
  if (listed) draw_.erase(candidates_, index_of(block));
  side.key = HazardIndex::pack(index_.learner.now(), cls);
  if (listed) insert(index_of(block));
}

// ---- The whole ---------------------------------------------------------------------------------

std::size_t HazardBlocks::memory_bytes() const {
  return sides_.capacity() * sizeof(Side) + candidates_.memory_bytes() + draw_.memory_bytes() +
         index_.learner.memory_bytes() + history_.memory_bytes();
}

Status HazardBlocks::check(const std::function<Known(PageId)>& know) const {
  std::vector<bool> listed(sides_.size());
  for (std::uint32_t at = 0; at < candidates_.size(); ++at) {
    const Draw::Candidate& one = candidates_[at];
    const Draw::Candidate rank = rank_of(one.id, sides_[one.id]);
    if (draw_.place(one.id) != at || one.key != rank.key || one.depth != rank.depth)
      return make_error(ErrorCode::corrupt, "hazard: candidate {} is misplaced", one.id);
    listed[one.id] = true;
  }
  std::vector<std::uint32_t> behind(sides_.size());
  for (std::uint32_t i = 1; i < sides_.size(); ++i) {
    const Side& side = sides_[i];
    const Known known = know(PageId{i});
    if ((side.serial != 0) != known.has_content || side.free != (side.serial != 0 && known.free))
      return make_error(ErrorCode::corrupt, "hazard: block {} has content or holders unknown", i);
    if (listed[i] != may_go(side))
      return make_error(ErrorCode::corrupt, "hazard: block {} may {}go and is {}a candidate", i,
                        may_go(side) ? "" : "not ", listed[i] ? "" : "not ");
    if (side.serial == 0) continue;
    if (known.group != side.group || known.name != side.name)
      return make_error(ErrorCode::corrupt, "hazard: block {} has another's name", i);
    const Side& before = sides_[side.before];
    if (side.before != 0 && before.serial == side.serial_before) {
      ++behind[side.before];
      if (before.group != side.group || before.name != side.name_before ||
          before.depth + 1 != side.depth)
        return make_error(ErrorCode::corrupt, "hazard: block {} is not behind block {}", i,
                          side.before);
    }
  }
  for (std::uint32_t i = 1; i < sides_.size(); ++i) {
    if (behind[i] != sides_[i].behind)
      return make_error(ErrorCode::corrupt, "hazard: {} blocks behind block {}; counted {}",
                        behind[i], i, sides_[i].behind);
  }
  return {};
}

}  // namespace pando
