// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a message that lies in memory with room behind it: padding is written there, and
// libcrypto gets whole blocks in one call. (Init, Update and Final cost a fifth more on messages of
// a page.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "pando/events.h"

namespace pando {

/// Bytes behind a message that sha256_in_place may write.
inline constexpr std::size_t kSha256Room = 72;

void sha256_in_place(std::uint8_t* message, std::size_t size_bytes, PageHash& out);

// The same in two steps, so that all but a few bytes can be written long before they are hashed.
/// Returns the size with padding.
std::size_t sha256_pad(std::uint8_t* message, std::size_t size_bytes);
void sha256_padded(const std::uint8_t* message, std::size_t padded_bytes, PageHash& out);

}  // namespace pando
