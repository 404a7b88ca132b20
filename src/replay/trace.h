// SPDX-License-Identifier: Apache-2.0
// What a trace is, whatever file it came from: requests in order of arrival, each a list of block
// ids. Equal ids mean equal content and equal prefix. Readers and generators make them one at a
// time, so that memory does not grow with the trace; replays, plans and explanations draw them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

using BlockId = std::uint64_t;

/// A request of a trace. Equal block ids mean equal content and equal prefix.
struct TraceRequest {
  double arrival_s = 0;           ///< when it came, in seconds of the trace
  std::size_t input_length = 0;   ///< tokens of the input
  std::size_t output_length = 0;  ///< tokens of the output
  std::string session;            ///< empty if the trace has none
  /// An id for each block of the input. Where the trace has tokens: of whole blocks only.
  std::vector<BlockId> blocks;
  std::vector<Token> tokens;  ///< of the input, where the trace has them
};

/// A source of requests. Belongs to one thread.
class Trace {
 public:
  virtual ~Trace() = default;
  /// The next request into `request`, whose memory is used again. False after the last one.
  virtual Result<bool> next(TraceRequest& request) = 0;
  /// How much of it has been read, from 0 to 1; 0 where that cannot be known.
  virtual double progress() const = 0;
  /// Tokens per block; known once the first request has been read.
  virtual std::size_t block_tokens() const = 0;
  /// Lines that made no sense and were skipped.
  virtual std::uint64_t skipped_lines() const { return 0; }
};

}  // namespace pando
