// SPDX-License-Identifier: Apache-2.0
// The C++ time of a call, for python/bench to subtract from the time of the same call in Python.
#include "benchmark.h"

#include <ctime>

#include "cache.h"

namespace pando::python {

namespace {

double processor_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void bind_benchmark(nb::module_& m) {
  m.def(
      "_time_match",
      [](PyCache& self, TokensArg tokens, SlotsArg slots, std::size_t repeats) {
        const Items<Token> items(tokens.object, "tokens");
        const SlotsOut out(slots.object);
        return self.work("_time_match", true, [&](PrefixCache& cache) {
          const double begin = processor_seconds();
          for (std::size_t i = 0; i < repeats; ++i) (void)cache.paths().match({items}, out.view());
          return (processor_seconds() - begin) / static_cast<double>(repeats);
        });
      },
      nb::arg("cache"), nb::arg("tokens"), nb::arg("slots"), nb::arg("repeats"),
      "Seconds of processor time of one match() in C++.");
}

}  // namespace pando::python
