// SPDX-License-Identifier: Apache-2.0
// The tokens of a trace's request, for a cache: its own, or made from its block ids. Every id is
// one full block, the last too. Different ids have different tokens.
#pragma once

#include <span>
#include <vector>

#include "replay/trace.h"

namespace pando {

class BlockTokens {
 public:
  /// Valid until the next call, and as long as the request is.
  std::span<const Token> of(const TraceRequest& request, std::size_t block_tokens);

 private:
  std::vector<Token> expanded_;
};

}  // namespace pando
