// SPDX-License-Identifier: Apache-2.0
// Lists of grants and ends, and what becomes of them when nodes split and go.
#include "index/node_retention.h"

#include "base/check.h"

namespace pando {

// ---- Grants ------------------------------------------------------------------------------------

std::uint32_t NodeRetention::new_grant(const Grant& grant) {
  if (free_grants_ == 0) {
    grants_.push_back(grant);
    return static_cast<std::uint32_t>(grants_.size() - 1);
  }
  const std::uint32_t i = free_grants_;
  free_grants_ = grants_[i].next;
  grants_[i] = grant;
  return i;
}

std::uint32_t NodeRetention::free_grant(std::uint32_t i) {
  const std::uint32_t next = grants_[i].next;
  grants_[i].next = free_grants_;
  free_grants_ = i;
  return next;
}

// Of two grants, the one that is no higher and ends no later is of no use.
void NodeRetention::grant(NodeIndex i, Level level, Ticks until) {
  std::uint32_t before = 0;
  std::uint32_t at = records_[i].grants;
  for (; at != 0 && grants_[at].level >= level; before = at, at = grants_[at].next) {
    if (grants_[at].until >= until) return;
    if (grants_[at].level == level) break;
  }
  while (at != 0 && grants_[at].until <= until) at = free_grant(at);
  const std::uint32_t made = new_grant({until, at, level});
  (before == 0 ? records_[i].grants : grants_[before].next) = made;
  if (until != kForever) timers_.push({until, i});
}

void NodeRetention::expire(NodeIndex i, Ticks now) {
  std::uint32_t& first = records_[i].grants;
  while (first != 0 && grants_[first].until <= now) first = free_grant(first);
}

std::optional<NodeIndex> NodeRetention::next_expired(Ticks now) {
  if (timers_.empty() || timers_.top().at > now) return std::nullopt;
  const NodeIndex node = timers_.top().node;
  timers_.pop();
  return node;
}

// ---- Ends --------------------------------------------------------------------------------------

EndIndex NodeRetention::new_end() {
  if (free_ends_ == kNoEnd) {
    ends_.emplace_back();
    return static_cast<EndIndex>(ends_.size() - 1);
  }
  const EndIndex i = free_ends_;
  free_ends_ = ends_[i].next;
  ends_[i] = {};
  return i;
}

void NodeRetention::free_end(EndIndex i) {
  ends_[i] = {.next = free_ends_};
  free_ends_ = i;
}

void NodeRetention::link(EndIndex i, NodeIndex node) {
  ends_[i].node = node;
  ends_[i].next = records_[node].ends;
  records_[node].ends = i;
}

void NodeRetention::unlink(EndIndex i) {
  EndIndex* at = &records_[ends_[i].node].ends;
  while (*at != i) at = &ends_[*at].next;
  *at = ends_[i].next;
  ends_[i].node = kNoNode;
  ends_[i].next = kNoEnd;
}

// ---- Nodes -------------------------------------------------------------------------------------

void NodeRetention::split(NodeIndex upper, NodeIndex lower) {
  const Record from = records_[lower];
  records_[upper] = {.pins = from.pins > 0 ? 1u : 0u,
                     .device_pins = from.device_pins > 0 ? 1u : 0u,
                     .sessions = from.sessions > 0 ? 1u : 0u,
                     .active = from.active > 0 ? 1u : 0u,
                     .common = from.common};
  for (std::uint32_t at = from.grants; at != 0; at = grants_[at].next)
    grant(upper, grants_[at].level, grants_[at].until);
}

// The parent counts the leaf once; from now on it counts the leaf's ends themselves.
void NodeRetention::remove(NodeIndex leaf, NodeIndex parent, bool parent_is_root) {
  Record& record = records_[leaf];
  PANDO_CHECK(record.pins == 0, "node {} goes with {} pins on it", leaf, record.pins);
  for (std::uint32_t at = record.grants; at != 0;) at = free_grant(at);
  if (!parent_is_root) {
    records_[parent].sessions += record.sessions - (record.sessions > 0 ? 1 : 0);
    records_[parent].active += record.active - (record.active > 0 ? 1 : 0);
  }
  for (EndIndex at = record.ends; at != kNoEnd;) {
    const EndIndex next = ends_[at].next;
    ends_[at].node = kNoNode;
    ends_[at].next = kNoEnd;
    if (!parent_is_root) link(at, parent);
    at = next;
  }
  record = {};
}

std::size_t NodeRetention::memory_bytes() const {
  return records_.memory_bytes() + grants_.capacity() * sizeof(Grant) +
         ends_.capacity() * sizeof(End) + timers_.size() * sizeof(Timer);
}

}  // namespace pando
