// SPDX-License-Identifier: Apache-2.0
// A whole trace in little memory, for what must see all of it: plans and the offline optimum.
//
// Blocks are numbered in the order in which they are first seen, so what a request adds is one run
// of numbers, and what it shares is a few runs of earlier requests. Cut at every place where any
// run begins or ends, the runs become segments: blocks that are always used together. Everything
// that plans do, they do by segments, of which there are few: about as many as requests.
//
// When there are more different blocks than the limit, every other one is dropped, chosen by its
// hash, and what is left stands for twice as many (weight()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "replay/trace.h"

namespace pando {

class CompactTrace {
 public:
  static constexpr std::size_t kDefaultLimit = std::size_t{1} << 22;

  explicit CompactTrace(std::size_t max_blocks = kDefaultLimit) : limit_(max_blocks) {}

  /// All of a trace, finished. `progress`, if given, is told the share that has been read.
  static Result<CompactTrace> read(Trace& trace, std::size_t max_blocks = kDefaultLimit,
                                   const std::function<void(double)>& progress = {});

  void add(const TraceRequest& request);
  /// After the last request: makes segments.
  void finish();

  std::size_t num_requests() const { return ends_.size(); }
  /// Blocks of all requests, and different ones: of the whole trace, the latter estimated if
  /// weight() > 1.
  std::uint64_t total_blocks() const { return total_blocks_; }
  std::uint64_t unique_blocks() const { return num_blocks() * weight(); }
  /// Each block kept stands for so many.
  std::uint64_t weight() const { return mask_ + 1; }

  // What is kept.
  std::size_t num_blocks() const { return hashes_.size(); }
  std::uint64_t num_accesses() const { return num_accesses_; }
  std::size_t num_segments() const { return segment_begins_.size() - 1; }
  std::uint32_t segment_size(std::uint32_t segment) const {
    return segment_begins_[segment + 1] - segment_begins_[segment];
  }
  /// Calls fn(segment) for those of a request, in the order of its blocks.
  template <typename Fn>
  void for_each_segment(std::size_t request, Fn&& fn) const {
    for (const Run& run : runs_of(request)) {
      for (std::uint32_t s = run.begin; s < run.end; ++s) fn(s);
    }
  }
  /// The same requests with their numbers as ids, for replays. Must not outlive this.
  std::unique_ptr<Trace> replayable() const;
  /// One half of the blocks, or the other, chosen by hash: how much their plans differ is how much
  /// chance does.
  CompactTrace half(bool second) const;

 private:
  /// Of blocks; after finish(), of segments.
  struct Run {
    std::uint32_t begin, end;
  };
  friend class CompactReader;

  std::span<const Run> runs_of(std::size_t request) const {
    const std::size_t begin = request == 0 ? 0 : ends_[request - 1];
    return std::span(runs_).subspan(begin, ends_[request] - begin);
  }
  std::uint32_t number_of(std::uint64_t hash);
  void append(std::uint32_t block, std::size_t first_run);
  void thin_out();
  void rehash(std::size_t size);

  const std::size_t limit_;
  std::uint64_t mask_ = 0;
  std::uint64_t total_blocks_ = 0, num_accesses_ = 0;
  std::vector<Run> runs_;
  std::vector<std::size_t> ends_;      // of each request, in runs_
  std::vector<std::uint64_t> hashes_;  // of each block
  std::vector<std::uint32_t> table_;   // finds blocks by hash: number + 1, or 0
  std::vector<std::uint32_t> segment_begins_;
};

}  // namespace pando
