// SPDX-License-Identifier: Apache-2.0
// How model tests get their operations: random lists of numbers, which the test makes operations
// of. A list that fails is shrunk and printed with its seed.
#pragma once

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pando::testing {

/// Runs lists until they had at least `num_ops` numbers together; false as soon as one fails.
template <typename Run>
bool check_random_ops(std::size_t num_ops, Run&& run) {
  for (std::size_t done = 0; done < num_ops;) {
    const bool ok = rc::check([&] {
      const auto ops = *rc::gen::container<std::vector<std::uint64_t>>(
          rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>()));
      done += ops.size();
      run(ops);
    });
    if (!ok) return false;
  }
  return true;
}

}  // namespace pando::testing
