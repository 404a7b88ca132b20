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
      records_(options.num_blocks),
      history_(std::min<std::size_t>(
          BlockHistory::limit_for((options.num_blocks + options.lower_pages) / blocks_per_unit_),
          UINT32_MAX - 1)) {}

std::uint64_t HazardBlocks::name_of(const BlockHash& hash) {
  std::uint64_t name;
  std::memcpy(&name, hash.value.data(), sizeof name);
  return name;
}

// ---- Chains ------------------------------------------------------------------------------------

void HazardBlocks::set_position(PageId block, const Position& position) {
  Record& record = records_[index_of(block)];
  PANDO_CHECK(record.serial == 0, "block {} gets a position while it has content", index_of(block));
  const std::optional<std::uint32_t> past = past_hits(position.unit);
  record = {.name = position.name,
            .name_before = position.name_before,
            .before = index_of(position.before),
            .depth = position.depth,
            .hits = static_cast<std::uint16_t>(past.value_or(0)),
            .group = static_cast<std::uint16_t>(position.group),
            .fresh = !past};
}

HazardBlocks::Record* HazardBlocks::before(const Record& record) {
  Record& before = records_[record.before];
  return record.before != 0 && before.serial == record.serial_before ? &before : nullptr;
}

void HazardBlocks::cached(PageId block) {
  Record& record = records_[index_of(block)];
  record.serial = ++last_serial_;
  if (stands_for_unit(record)) (void)history_.take(record.name);
  record.key =
      HazardIndex::pack(index_.learner.now(), ReuseHazard::class_of(0, record.hits, false));
  Record& before = records_[record.before];
  if (!leaves_only_[record.group] || before.serial == 0 || before.group != record.group ||
      before.name != record.name_before)
    record.before = 0;
  if (record.before == 0) return;
  record.serial_before = before.serial;
  if (before.behind == 0 && may_go(before)) draw_.erase(candidates_, record.before);
  ++before.behind;
}

void HazardBlocks::copy_hits(PageId block, PageId twin) {
  Record& record = records_[index_of(block)];
  const Record& other = records_[index_of(twin)];
  record.hits = other.hits;
  record.fresh = other.fresh;
}

void HazardBlocks::lose_content(std::uint32_t i) {
  Record& record = records_[i];
  if (may_go(record)) draw_.erase(candidates_, i);
  if (Record* up = before(record)) {
    --up->behind;
    if (up->behind == 0 && may_go(*up)) insert(record.before);
  }
  record.serial = 0;
  record.before = 0;
  record.behind = 0;
  record.free = false;
}

// ---- Coming and going --------------------------------------------------------------------------

void HazardBlocks::held(PageId block) {
  Record& record = records_[index_of(block)];
  if (may_go(record)) draw_.erase(candidates_, index_of(block));
  record.free = false;
}

void HazardBlocks::freed(PageId block) {
  Record& record = records_[index_of(block)];
  record.free = true;
  if (may_go(record)) insert(index_of(block));
}

// Those that take() chose have gone before.
void HazardBlocks::forgotten(PageId block) {
  if (records_[index_of(block)].serial != 0) lose_content(index_of(block));
}

// There may be free blocks and no candidate: when a copy or a request holds what is behind them.
PageId HazardBlocks::take(PageId oldest) {
  const std::uint32_t victim = candidates_.empty() ? index_of(oldest) : pick();
  const Record& record = records_[victim];
  const Record* const up = before(record);
  following_ = up != nullptr && up->key == record.key ? record.before : 0;
  if (stands_for_unit(record)) history_.add(record.name, record.hits);
  lose_content(victim);
  return PageId{victim};
}

std::uint32_t HazardBlocks::pick() {
  if (following_ != 0 && may_go(records_[following_])) return following_;
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
  Record& record = records_[index_of(block)];
  if (!record.fresh && record.hits < UINT16_MAX) ++record.hits;
  record.fresh = false;
  return record.hits;
}

void HazardBlocks::use(PageId block, ReuseHazard::Class cls) {
  Record& record = records_[index_of(block)];
  const bool listed = may_go(record);
  if (listed) draw_.erase(candidates_, index_of(block));
  record.key = HazardIndex::pack(index_.learner.now(), cls);
  if (listed) insert(index_of(block));
}

// ---- The whole ---------------------------------------------------------------------------------

std::size_t HazardBlocks::memory_bytes() const {
  return records_.capacity() * sizeof(Record) + candidates_.memory_bytes() + draw_.memory_bytes() +
         index_.learner.memory_bytes() + history_.memory_bytes();
}

Status HazardBlocks::check(const std::function<Known(PageId)>& know) const {
  std::vector<bool> listed(records_.size());
  for (std::uint32_t at = 0; at < candidates_.size(); ++at) {
    const Draw::Candidate& one = candidates_[at];
    const Draw::Candidate rank = rank_of(one.id, records_[one.id]);
    if (draw_.position(one.id) != at || one.key != rank.key || one.depth != rank.depth)
      return make_error(ErrorCode::corrupt, "hazard: candidate {} is misplaced", one.id);
    listed[one.id] = true;
  }
  std::vector<std::uint32_t> behind(records_.size());
  for (std::uint32_t i = 1; i < records_.size(); ++i) {
    const Record& record = records_[i];
    const Known known = know(PageId{i});
    if ((record.serial != 0) != known.has_content ||
        record.free != (record.serial != 0 && known.free))
      return make_error(ErrorCode::corrupt, "hazard: block {} has content or holders unknown", i);
    if (listed[i] != may_go(record))
      return make_error(ErrorCode::corrupt, "hazard: block {} may {}go and is {}a candidate", i,
                        may_go(record) ? "" : "not ", listed[i] ? "" : "not ");
    if (record.serial == 0) continue;
    if (known.group != record.group || known.name != record.name)
      return make_error(ErrorCode::corrupt, "hazard: block {} has another's name", i);
    const Record& before = records_[record.before];
    if (record.before != 0 && before.serial == record.serial_before) {
      ++behind[record.before];
      if (before.group != record.group || before.name != record.name_before ||
          before.depth + 1 != record.depth)
        return make_error(ErrorCode::corrupt, "hazard: block {} is not behind block {}", i,
                          record.before);
    }
  }
  for (std::uint32_t i = 1; i < records_.size(); ++i) {
    if (behind[i] != records_[i].behind)
      return make_error(ErrorCode::corrupt, "hazard: {} blocks behind block {}; counted {}",
                        behind[i], i, records_[i].behind);
  }
  return {};
}

}  // namespace pando
