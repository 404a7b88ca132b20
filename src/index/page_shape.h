// SPDX-License-Identifier: Apache-2.0
// How tokens make pages. A page has page_size units; a unit is a token, or, for bigram keys, a pair
// of neighbours, so that a page reads one token beyond its units.
#pragma once

#include <cstddef>

#include "pando/types.h"

namespace pando {

struct PageShape {
  std::size_t page_size = 1;
  std::size_t overlap = 0;  // raw tokens a page reads beyond its units: 1 for bigram keys

  std::size_t page_tokens() const { return page_size + overlap; }
  std::size_t num_units(const Key& key) const {
    return key.tokens.size() <= overlap ? 0 : key.tokens.size() - overlap;
  }
  /// Whole pages of a key; 0 for one shorter than a page.
  std::size_t num_pages(const Key& key) const { return num_units(key) / page_size; }
};

}  // namespace pando
