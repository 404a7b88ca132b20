// SPDX-License-Identifier: Apache-2.0
// A prompt of a generated workload: pieces of text that are told apart by a number, one behind the
// other. Gives block ids: equal for equal text behind an equal prefix. Costs what is appended.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "replay/mix.h"
#include "replay/trace.h"

namespace pando {

class Prompt {
 public:
  explicit Prompt(std::size_t block_tokens) : block_tokens_(block_tokens) {}

  void append(std::uint64_t piece, std::size_t num_tokens) {
    for (std::size_t at = 0; at < num_tokens;) {
      const std::size_t in_block = length_ % block_tokens_;
      const std::size_t n = std::min(num_tokens - at, block_tokens_ - in_block);
      // What of which piece comes next in this block, behind all that came before.
      open_ = mix(open_, mix(piece, (static_cast<std::uint64_t>(at) << 24) + n));
      at += n;
      length_ += n;
      if (length_ % block_tokens_ == 0) blocks_.push_back(id(open_));
    }
  }
  std::size_t length() const { return length_; }
  /// The last block may be partial.
  void copy_to(TraceRequest& request) const {
    request.input_length = length_;
    request.blocks = blocks_;
    if (length_ % block_tokens_ != 0) request.blocks.push_back(id(open_));
  }

 private:
  /// Fits a double, as some readers of JSON have it.
  static BlockId id(std::uint64_t chain) { return chain >> 11; }

  std::size_t block_tokens_;
  std::size_t length_ = 0;
  std::uint64_t open_ = 0;  // chain over everything
  std::vector<BlockId> blocks_;
};

}  // namespace pando
