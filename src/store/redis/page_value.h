// SPDX-License-Identifier: Apache-2.0
// What stands before a page's bytes in its Redis value (docs/formats.md): 32 bytes that say that it
// is one of ours, in which version, and the page's tag. Values only.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "pando/store.h"

namespace pando::redis {

inline constexpr std::size_t kPrefixBytes = 32;
using Prefix = std::array<std::byte, kPrefixBytes>;

Prefix encode_prefix(const PageTag& tag);

/// Nothing: it is not one of ours, or of a version that we do not know.
std::optional<PageTag> decode_prefix(const Prefix& prefix);

}  // namespace pando::redis
