// SPDX-License-Identifier: Apache-2.0
// The hash chain over pages that events and stores name KV by; bytes as in docs/formats.md.
#pragma once

#include <cstddef>
#include <string_view>

#include "pando/events.h"
#include "pando/types.h"

namespace pando {

/// out[i] = hash of page i, chained from `parent` (nullptr at a chain's start). `tokens` holds
/// num_pages * page_size tokens, one more with `bigram`; none is negative.
void hash_page_chain(const PageHash* parent, const Token* tokens, std::size_t num_pages,
                     std::size_t page_size, bool bigram, PageHash* out);

/// The plain SHA-256 of a text.
PageHash digest_of(std::string_view text);

}  // namespace pando
