// SPDX-License-Identifier: Apache-2.0
// Furthest next use with a heap whose outdated entries are passed over when they come up.
#include "replay/optimum.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace pando {
namespace {

/// What of the trace is in the cache: of each segment its first blocks.
class Holdings {
 public:
  Holdings(const CompactTrace& trace, std::uint64_t capacity)
      : capacity_(capacity), held_(trace.num_segments()), next_(trace.num_segments()) {}

  std::uint32_t held(std::uint32_t segment) const { return held_[segment]; }
  std::uint64_t size() const { return size_; }

  /// The segment is used: whatever is known of its next use is outdated until offer().
  void take(std::uint32_t segment, std::uint32_t num_blocks) {
    size_ += num_blocks - held_[segment];
    held_[segment] = num_blocks;
    next_[segment] = kInUse;
  }
  /// It may be evicted from now on.
  void offer(std::uint32_t segment, std::uint32_t next, std::uint32_t depth) {
    next_[segment] = next;
    if (held_[segment] > 0) heap_.emplace(next, depth, segment);
  }
  /// Down to the capacity.
  void evict() {
    while (size_ > capacity_ && !heap_.empty()) {
      const auto [next, depth, segment] = heap_.top();
      if (next_[segment] != next || held_[segment] == 0) {
        heap_.pop();
        continue;
      }
      const auto goes =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(held_[segment], size_ - capacity_));
      held_[segment] -= goes;
      size_ -= goes;
      if (held_[segment] == 0) heap_.pop();
    }
  }

 private:
  static constexpr std::uint32_t kInUse = UINT32_MAX;

  const std::uint64_t capacity_;
  std::uint64_t size_ = 0;
  std::vector<std::uint32_t> held_, next_;
  // (next use, blocks before it in its prefix, segment)
  std::priority_queue<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> heap_;
};

}  // namespace

Optimum::Optimum(const CompactTrace& trace) : trace_(trace) {
  std::vector<std::uint32_t> accesses;  // segments, of all requests
  std::vector<std::size_t> begins;
  for (std::size_t r = 0; r < trace.num_requests(); ++r) {
    begins.push_back(accesses.size());
    trace.for_each_segment(r, [&](std::uint32_t s) { accesses.push_back(s); });
  }
  begins.push_back(accesses.size());
  const auto never = static_cast<std::uint32_t>(trace.num_requests());
  std::vector<std::uint32_t> next(trace.num_segments(), never);
  next_use_.resize(accesses.size());
  for (std::size_t r = trace.num_requests(); r-- > 0;) {
    for (std::size_t a = begins[r]; a < begins[r + 1]; ++a) {
      next_use_[a] = next[accesses[a]];
      next[accesses[a]] = static_cast<std::uint32_t>(r);
    }
  }
}

std::uint64_t Optimum::hits(std::uint64_t capacity, OptimumRule rule) const {
  struct Use {
    std::uint32_t segment, depth, next;
  };
  Holdings holdings(trace_, capacity);
  std::vector<Use> uses;
  std::uint64_t hits = 0;
  std::size_t access = 0;
  for (std::size_t r = 0; r < trace_.num_requests(); ++r) {
    uses.clear();
    std::uint32_t depth = 0;
    bool contiguous = true;
    trace_.for_each_segment(r, [&](std::uint32_t s) {
      const std::uint32_t size = trace_.segment_size(s);
      if (contiguous) hits += holdings.held(s);
      contiguous = contiguous && holdings.held(s) == size;
      const std::uint64_t room = capacity - std::min<std::uint64_t>(capacity, depth);
      const bool is_free = rule == OptimumRule::free;
      holdings.take(
          s, is_free ? size : static_cast<std::uint32_t>(std::min<std::uint64_t>(size, room)));
      uses.push_back({s, depth, next_use_[access++]});
      depth += size;
    });
    if (rule == OptimumRule::same) holdings.evict();
    for (const Use& use : uses) holdings.offer(use.segment, use.next, use.depth);
    if (rule == OptimumRule::free) holdings.evict();
  }
  return hits;
}

}  // namespace pando
