// SPDX-License-Identifier: Apache-2.0
// Traces for tests: written to files, or made in memory from lists of block ids.
#pragma once

#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/trace.h"

namespace pando::testing {

inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<TraceRequest> read_all(Trace& trace) {
  std::vector<TraceRequest> all;
  TraceRequest request;
  while (trace.next(request).value()) all.push_back(request);
  return all;
}

/// Lists of blocks as a trace, a request a second.
class ListTrace final : public Trace {
 public:
  explicit ListTrace(std::vector<std::vector<BlockId>> requests, std::size_t block_tokens = 1)
      : requests_(std::move(requests)), block_tokens_(block_tokens) {}

  Result<bool> next(TraceRequest& request) override {
    if (next_ == requests_.size()) return false;
    request = {};
    request.blocks = requests_[next_];
    request.input_length = request.blocks.size() * block_tokens_;
    request.arrival_s = static_cast<double>(next_++);
    return true;
  }
  double progress() const override { return 0; }
  std::size_t block_tokens() const override { return block_tokens_; }

 private:
  std::vector<std::vector<BlockId>> requests_;
  std::size_t block_tokens_;
  std::size_t next_ = 0;
};

}  // namespace pando::testing
