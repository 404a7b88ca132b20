// SPDX-License-Identifier: Apache-2.0
// What is replayed: a source that yields requests one at a time, so that memory does not grow with
// the length of the workload. Generators implement it; Replayer draws from it.
// A workload belongs to one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// One request: a prompt, and what the model answered. A view, valid until the workload is asked
/// for the next one.
struct ReplayRequest {
  std::span<const Token> tokens;  ///< the prompt, and the output right behind it
  std::size_t prompt_length = 0;  ///< tokens
  std::string_view ns = {};

  std::span<const Token> prompt() const { return tokens.first(prompt_length); }
  std::span<const Token> output() const { return tokens.subspan(prompt_length); }
};

class Workload {
 public:
  virtual ~Workload() = default;
  /// The next request, nothing after the last one, or an error where the source is damaged.
  virtual Result<std::optional<ReplayRequest>> next() = 0;
  /// How much of it has been yielded, from 0 to 1. For progress bars.
  virtual double progress() const = 0;
};

}  // namespace pando
