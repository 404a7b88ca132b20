// SPDX-License-Identifier: Apache-2.0
// Tokens as CBOR integers, one after the other: most of what is written before a block is hashed
// the way vLLM does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pando/types.h"

namespace pando {

/// Bytes behind the last token that may be written.
inline constexpr std::size_t kCborTokenRoom = 64;

/// Tokens must not be negative; each takes 1, 2, 3 or 5 bytes. Returns the end of what was written.
std::uint8_t* write_cbor_tokens(const Token* tokens, std::size_t n, std::uint8_t* out);

}  // namespace pando
