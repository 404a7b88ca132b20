// SPDX-License-Identifier: Apache-2.0
// What must be known of a trace before a replay: how many tokens a block has; where a capacity is a
// share of them, how many different blocks there are; and where sessions are declared, when each
// ends. The latter two take a pass of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "replay/trace_file.h"

namespace pando {

struct Survey {
  std::size_t block_tokens = 0;
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;
  std::uint64_t unique_blocks = 0;  ///< see BlockSample: an estimate beyond some millions
  /// How many requests each session has.
  std::unordered_map<std::string, std::uint64_t> sessions = {};
};

/// Reads all of it. `progress`, if given, is told the share that has been read.
Result<Survey> survey(Trace& trace, const std::function<void(double)>& progress = {});

/// A trace whose first request has been looked at already; so block_tokens() is known.
class PeekedTrace final : public Trace {
 public:
  static Result<std::unique_ptr<PeekedTrace>> create(std::unique_ptr<Trace> trace);

  Result<bool> next(TraceRequest& request) override;
  double progress() const override { return trace_->progress(); }
  std::size_t block_tokens() const override { return trace_->block_tokens(); }
  std::uint64_t skipped_lines() const override { return trace_->skipped_lines(); }
  /// It has no request at all.
  bool empty() const { return !has_first_ && !given_; }
  const TraceRequest& first() const { return first_; }

 private:
  explicit PeekedTrace(std::unique_ptr<Trace> trace) : trace_(std::move(trace)) {}

  std::unique_ptr<Trace> trace_;
  TraceRequest first_;
  bool has_first_ = false, given_ = false;
};

}  // namespace pando
