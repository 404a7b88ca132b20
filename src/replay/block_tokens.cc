// SPDX-License-Identifier: Apache-2.0
// The first three tokens of a block spell its id; the rest is noise drawn from it, in a loop that
// compilers make vectors of.
#include "replay/block_tokens.h"

#include <algorithm>

#include "replay/mix.h"

namespace pando {
namespace {

constexpr std::uint32_t kTokenBits = 0x7fffffff;

void expand(BlockId id, Token* out, std::size_t size) {
  const auto noise = static_cast<std::uint32_t>(mix(id));
  for (std::size_t i = 0; i < size; ++i)
    out[i] = static_cast<Token>((noise + static_cast<std::uint32_t>(i) * 0x9e3779b9u) & kTokenBits);
  for (std::size_t i = 0; i < std::min<std::size_t>(size, 3); ++i)
    out[i] = static_cast<Token>((id >> (31 * i)) & kTokenBits);
}

}  // namespace

std::span<const Token> BlockTokens::of(const TraceRequest& request, std::size_t block_tokens) {
  if (!request.tokens.empty()) return request.tokens;
  expanded_.resize(std::max(expanded_.size(), request.blocks.size() * block_tokens));
  Token* out = expanded_.data();
  for (const BlockId id : request.blocks) {
    expand(id, out, block_tokens);
    out += block_tokens;
  }
  return std::span(expanded_).first(request.blocks.size() * block_tokens);
}

}  // namespace pando
