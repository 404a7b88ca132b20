// SPDX-License-Identifier: Apache-2.0
// The C++ time of a call, for python/bench to subtract from the time of the same call in Python.
#include "benchmark.h"

#include <chrono>

#include "cache.h"

namespace pando::python {

void bind_benchmark(nb::module_& m) {
  m.def(
      "_time_match",
      [](PyCache& self, TokensArg tokens, SlotsArg slots, std::size_t repeats) {
        const Items<Token> items(tokens.object, "tokens");
        const SlotsOut out(slots.object);
        return self.work("_time_match", true, [&](PrefixCache& cache) {
          const auto begin = std::chrono::steady_clock::now();
          for (std::size_t i = 0; i < repeats; ++i) (void)cache.match({items}, out.view());
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
          return took.count() / static_cast<double>(repeats);
        });
      },
      nb::arg("cache"), nb::arg("tokens"), nb::arg("slots"), nb::arg("repeats"),
      "Seconds of one match() in C++.");
}

}  // namespace pando::python
