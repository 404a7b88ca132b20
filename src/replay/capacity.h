// SPDX-License-Identifier: Apache-2.0
// How large a tier is, as people say it: tokens (3000000tok, 3Mtok), bytes (64GiB, 80GB), blocks
// (9139blocks), or a share of the different blocks of a trace (5%). Becomes tokens once it is known
// what a token weighs and how many blocks there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pando/result.h"

namespace pando {

struct Capacity {
  enum class Unit { tokens, bytes, blocks, share };
  Unit unit = Unit::tokens;
  double value = 0;  ///< of a share: 1 is all
  std::string text;  ///< as it was given
};

Result<Capacity> parse_capacity(std::string_view text);

/// A plain number with k, M or G behind it, as 64k.
Result<std::uint64_t> parse_quantity(std::string_view text);

/// What a capacity is measured with.
struct Measures {
  std::size_t block_tokens = 0;
  std::optional<std::uint64_t> unique_blocks = {};
  std::optional<std::size_t> token_bytes = {};
};

/// In tokens. An error that says which measure is missing.
Result<std::size_t> to_tokens(const Capacity& capacity, const Measures& measures);

}  // namespace pando
