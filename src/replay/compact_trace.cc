// SPDX-License-Identifier: Apache-2.0
// Numbering, thinning, cutting into segments.
#include "replay/compact_trace.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "replay/mix.h"

namespace pando {

Result<CompactTrace> CompactTrace::read(Trace& trace, std::size_t max_blocks,
                                        const std::function<void(double)>& progress) {
  CompactTrace compact(max_blocks);
  TraceRequest request;
  while (true) {
    const Result<bool> more = trace.next(request);
    if (!more) return more.error();
    if (!*more) break;
    compact.add(request);
    if (progress) progress(trace.progress());
  }
  compact.finish();
  return compact;
}

void CompactTrace::rehash(std::size_t size) {
  table_.assign(size, 0);
  for (std::uint32_t i = 0; i < hashes_.size(); ++i) {
    std::size_t at = (hashes_[i] >> 24) & (size - 1);
    while (table_[at] != 0) at = (at + 1) & (size - 1);
    table_[at] = i + 1;
  }
}

std::uint32_t CompactTrace::number_of(std::uint64_t hash) {
  if (table_.size() < 2 * (hashes_.size() + 1))
    rehash(std::max<std::size_t>(1024, 4 * table_.size()));
  for (std::size_t at = (hash >> 24) & (table_.size() - 1);; at = (at + 1) & (table_.size() - 1)) {
    if (table_[at] == 0) {
      hashes_.push_back(hash);
      table_[at] = static_cast<std::uint32_t>(hashes_.size());
      return table_[at] - 1;
    }
    if (hashes_[table_[at] - 1] == hash) return table_[at] - 1;
  }
}

void CompactTrace::append(std::uint32_t block, std::size_t first_run) {
  if (runs_.size() > first_run && runs_.back().end == block) {
    ++runs_.back().end;
  } else {
    runs_.push_back({block, block + 1});
  }
  ++num_accesses_;
}

void CompactTrace::add(const TraceRequest& request) {
  total_blocks_ += request.blocks.size();
  const std::size_t first_run = runs_.size();
  for (const BlockId id : request.blocks) {
    const std::uint64_t hash = mix(id);
    if ((hash & mask_) == 0) append(number_of(hash), first_run);
  }
  ends_.push_back(runs_.size());
  while (hashes_.size() > limit_) thin_out();
}

// Numbers stay in the order of first use, so runs stay runs.
void CompactTrace::thin_out() {
  mask_ = 2 * mask_ + 1;
  constexpr std::uint32_t kDropped = UINT32_MAX;
  std::vector<std::uint32_t> renumbered(hashes_.size(), kDropped);
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    if ((hashes_[i] & mask_) != 0) continue;
    hashes_[next] = hashes_[i];
    renumbered[i] = next++;
  }
  hashes_.resize(next);
  rehash(table_.size());

  const std::vector<Run> old_runs = std::exchange(runs_, {});
  num_accesses_ = 0;
  std::size_t begin = 0;
  for (std::size_t& end : ends_) {
    const std::size_t first_run = runs_.size();
    for (std::size_t r = begin; r < end; ++r) {
      for (std::uint32_t block = old_runs[r].begin; block < old_runs[r].end; ++block) {
        if (renumbered[block] != kDropped) append(renumbered[block], first_run);
      }
    }
    begin = std::exchange(end, runs_.size());
  }
}

void CompactTrace::finish() {
  std::vector<std::uint32_t> segment_of(hashes_.size() + 1);  // first a mark where one begins
  segment_of[0] = 1;
  for (const Run& run : runs_) segment_of[run.begin] = segment_of[run.end] = 1;
  segment_of[hashes_.size()] = 1;
  for (std::uint32_t i = 0; i < segment_of.size(); ++i) {
    if (segment_of[i] != 0) segment_begins_.push_back(i);
    segment_of[i] = static_cast<std::uint32_t>(segment_begins_.size()) - 1;
  }
  for (Run& run : runs_) run = {segment_of[run.begin], segment_of[run.end]};
}

/// Yields what CompactTrace has.
class CompactReader final : public Trace {
 public:
  explicit CompactReader(const CompactTrace& trace) : trace_(trace) {}
  Result<bool> next(TraceRequest& request) override {
    if (next_ == trace_.num_requests()) return false;
    request.blocks.clear();
    trace_.for_each_segment(next_++, [&](std::uint32_t s) {
      for (std::uint32_t b = trace_.segment_begins_[s]; b < trace_.segment_begins_[s + 1]; ++b)
        request.blocks.push_back(b);
    });
    request.input_length = request.blocks.size();
    return true;
  }
  double progress() const override {
    return static_cast<double>(next_) / static_cast<double>(trace_.num_requests());
  }
  std::size_t block_tokens() const override { return 1; }

 private:
  const CompactTrace& trace_;
  std::size_t next_ = 0;
};

std::unique_ptr<Trace> CompactTrace::replayable() const {
  return std::make_unique<CompactReader>(*this);
}

CompactTrace CompactTrace::half(bool second) const {
  CompactTrace half(limit_);
  const std::unique_ptr<Trace> trace = replayable();
  TraceRequest request;
  while (*trace->next(request)) {
    std::erase_if(request.blocks,
                  [&](BlockId block) { return ((hashes_[block] >> 63) != 0) != second; });
    half.add(request);
  }
  half.finish();
  return half;
}

}  // namespace pando
