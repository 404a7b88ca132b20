// SPDX-License-Identifier: Apache-2.0
// The stack as a Fenwick tree: every use of a segment takes the next moment in time, with its size
// as weight; its last use before loses its weight. When moments run out, those that still weigh are
// moved together.
#include "replay/reuse.h"

#include <algorithm>

namespace pando {
namespace {

class Moments {
 public:
  explicit Moments(std::size_t size) : sums_(size + 1) {}

  std::size_t size() const { return sums_.size() - 1; }
  void add(std::size_t at, std::int64_t weight) {
    total_ += weight;
    for (std::size_t i = at + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += weight;
  }
  /// Of everything later than `at`.
  std::int64_t after(std::size_t at) const {
    std::int64_t sum = 0;
    for (std::size_t i = at + 1; i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return total_ - sum;
  }
  void clear() {
    std::fill(sums_.begin(), sums_.end(), 0);
    total_ = 0;
  }

 private:
  std::vector<std::int64_t> sums_;
  std::int64_t total_ = 0;
};

constexpr std::size_t kNever = SIZE_MAX;

class Stack {
 public:
  explicit Stack(const CompactTrace& trace)
      : trace_(trace),
        moments_(2 * trace.num_segments() + 2),
        last_used_(trace.num_segments(), kNever),
        used_at_(moments_.size()) {}

  /// Blocks above the segment; only if it has been used.
  bool is_known(std::uint32_t segment) const { return last_used_[segment] != kNever; }
  std::size_t depth(std::uint32_t segment) const {
    return static_cast<std::size_t>(moments_.after(last_used_[segment]));
  }

  void use(std::uint32_t segment) {
    if (now_ == moments_.size()) move_together();
    const std::int64_t weight = trace_.segment_size(segment);
    if (is_known(segment)) moments_.add(last_used_[segment], -weight);
    moments_.add(now_, weight);
    used_at_[now_] = segment;
    last_used_[segment] = now_++;
  }

 private:
  void move_together() {
    moments_.clear();
    std::size_t next = 0;
    for (std::size_t at = 0; at < now_; ++at) {
      const std::uint32_t segment = used_at_[at];
      if (last_used_[segment] != at) continue;
      used_at_[next] = segment;
      last_used_[segment] = next;
      moments_.add(next++, trace_.segment_size(segment));
    }
    now_ = next;
  }

  const CompactTrace& trace_;
  Moments moments_;
  std::vector<std::size_t> last_used_;  // by segment
  std::vector<std::uint32_t> used_at_;  // by moment
  std::size_t now_ = 0;
};

}  // namespace

std::vector<std::uint64_t> lru_hits(const CompactTrace& trace) {
  // First the changes from one capacity to the next, then their sums: a segment at depth d is hit
  // by one block more in each of the capacities d + 1 to d + size.
  std::vector<std::int64_t> slope(trace.num_blocks() + 2);
  Stack stack(trace);
  std::vector<std::uint32_t> segments;
  for (std::size_t r = 0; r < trace.num_requests(); ++r) {
    segments.clear();
    trace.for_each_segment(r, [&](std::uint32_t s) { segments.push_back(s); });
    for (const std::uint32_t s : segments) {
      if (!stack.is_known(s)) continue;
      const std::size_t depth = stack.depth(s);
      ++slope[depth + 1];
      --slope[depth + 1 + trace.segment_size(s)];
    }
    for (std::size_t i = segments.size(); i-- > 0;) stack.use(segments[i]);
  }
  std::vector<std::uint64_t> hits(trace.num_blocks() + 1);
  std::int64_t step = 0, sum = 0;
  for (std::size_t c = 0; c < hits.size(); ++c) {
    step += slope[c];
    sum += step;
    hits[c] = static_cast<std::uint64_t>(sum);
  }
  return hits;
}

}  // namespace pando
