// SPDX-License-Identifier: Apache-2.0
// Quantities as people write them: "4096", "64k", "1M". The command line reads capacities with it.
// Suffixes are decimal: k is a thousand, M a million, G a thousand millions.
#pragma once

#include <cstdint>
#include <string_view>

#include "pando/result.h"

namespace pando {

/// Digits and at most one suffix, nothing else. The error says what was wrong with `text`.
Result<std::uint64_t> parse_quantity(std::string_view text);

}  // namespace pando
