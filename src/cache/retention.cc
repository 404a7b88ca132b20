// SPDX-License-Identifier: Apache-2.0
// Time, and priorities of ranges. Pins are in pins.cc, sessions in sessions.cc, tenants in
// tenants.cc.
#include "pando/retention.h"

#include <algorithm>

#include "base/check.h"
#include "cache/prefix_cache_impl.h"

namespace pando {
namespace {

bool is_level(int priority) {
  return priority >= RetentionRange::kMinPriority && priority <= RetentionRange::kMaxPriority;
}

}  // namespace

Status RetentionOptions::validate() const {
  if (!(max_pinned_share >= 0 && max_pinned_share <= 1))
    return make_error(ErrorCode::invalid_argument,
                      "retention: max_pinned_share is {}; expected a share from 0 to 1",
                      max_pinned_share);
  if (!is_level(session_priority))
    return make_error(ErrorCode::invalid_argument,
                      "retention: session_priority is {}; expected {} to {}", session_priority,
                      RetentionRange::kMinPriority, RetentionRange::kMaxPriority);
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (tenants[i].name == tenants[j].name)
        return make_error(ErrorCode::invalid_argument, "retention: tenant '{}' is listed twice",
                          tenants[i].name);
    }
  }
  return {};
}

// ---- Time --------------------------------------------------------------------------------------

// Counted from when the cache was made: clocks of different machines began at different times.
Ticks PrefixCacheImpl::clock() const {
  const auto now =
      options.retention.now ? options.retention.now() : std::chrono::steady_clock::now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now - made_at).count();
}

// Ranks have only what they agreed on.
Ticks PrefixCacheImpl::now() {
  if (ranks.alone()) agreed_time = std::max(agreed_time, clock());
  return agreed_time;
}

Ticks PrefixCacheImpl::after(std::chrono::milliseconds duration) {
  const Ticks ticks = std::chrono::nanoseconds(std::min<std::chrono::milliseconds>(
                                                   duration, std::chrono::hours(1000000)))
                          .count();
  return now() + ticks;
}

bool PrefixCacheImpl::waits_for_time() const {
  return !timers.empty() || index.retention().has_timed_grants();
}

void PrefixCacheImpl::pass_time(Ticks time) {
  agreed_time = std::max(agreed_time, time);
  if (index.retention().has_timed_grants()) index.retention().expire_grants(agreed_time);
  while (!timers.empty() && timers.top().at <= agreed_time) {
    const Timer due = timers.top();
    timers.pop();
    if (due.pin) {
      drop_pin(due.pin);
    } else {
      session_due(due.session);
    }
  }
  give_back();
  ledger.flush();
}

// ---- Ranges ------------------------------------------------------------------------------------

Status refuse_range(const RetentionRange& range, const char* caller) {
  if (range.from >= range.to)
    return make_error(ErrorCode::invalid_argument,
                      "{}: tokens [{}, {}) are to be retained; expected some", caller, range.from,
                      range.to);
  if (!is_level(range.priority))
    return make_error(ErrorCode::invalid_argument,
                      "{}: tokens from {} on are to have priority {}; expected {} to {}", caller,
                      range.from, range.priority, RetentionRange::kMinPriority,
                      RetentionRange::kMaxPriority);
  if (range.duration && range.duration->count() <= 0)
    return make_error(ErrorCode::invalid_argument,
                      "{}: tokens from {} on are to be retained for {} ms; expected more than 0",
                      caller, range.from, range.duration->count());
  return {};
}

Status refuse_outside(const RetentionRange& range, std::size_t length, bool grows,
                      const char* caller) {
  const bool to_end = range.to == RetentionRange::kToEnd;
  const bool begins_in_it = range.from < length || (grows && to_end && range.from == length);
  if (begins_in_it && (range.to <= length || to_end)) return {};
  return make_error(ErrorCode::invalid_argument,
                    "{}: tokens [{}, {}) are to be retained of a request of {}", caller, range.from,
                    to_end ? length : range.to, length);
}

// What is behind the last whole page is not cached, and neither is its priority.
std::size_t PrefixCacheImpl::retain(NodeIndex end, std::span<const RetentionRange> ranges) {
  const std::size_t page_size = index.page_size();
  const std::uint32_t end_page = index.node(end).end_pages;
  std::size_t num_widened = 0;
  for (const RetentionRange& range : ranges) {
    const bool to_end = range.to == RetentionRange::kToEnd;
    num_widened += range.from % page_size != 0 || (!to_end && range.to % page_size != 0) ? 1 : 0;
    const std::size_t from = std::min<std::size_t>(range.from / page_size, end_page);
    const std::size_t to =
        to_end ? end_page : std::min<std::size_t>(pages_for(range.to, page_size), end_page);
    if (from >= to) continue;
    index.retention().grant(end, {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)},
                            static_cast<Level>(range.priority),
                            range.duration ? after(*range.duration) : kForever);
  }
  return num_widened;
}

}  // namespace pando
