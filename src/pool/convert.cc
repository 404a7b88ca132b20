// SPDX-License-Identifier: Apache-2.0
// The CPU's loop over elements. The switches over types are on loop constants, so the compiler can
// take them out where it pays.
#include "pool/convert.h"

#include <cstring>

namespace pando {

void convert(const void* from, DType from_type, void* to, DType to_type, std::size_t n,
             float scale) {
  if (from_type == to_type && scale == 1.0F) {
    std::memcpy(to, from, n * size_of(to_type));
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const float value = numeric::load_element(from, from_type, i);
    numeric::store_element(to, to_type, i, numeric::scaled(value, scale));
  }
}

}  // namespace pando
