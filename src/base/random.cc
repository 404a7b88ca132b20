// SPDX-License-Identifier: Apache-2.0
// The seed that is not reproducible; see the header for the generator that is.
#include "base/random.h"

#include <random>

namespace pando {

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace pando
