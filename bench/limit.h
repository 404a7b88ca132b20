// SPDX-License-Identifier: Apache-2.0
// measure.h for Google Benchmark: how a measurement is reported there.
#pragma once

#include <benchmark/benchmark.h>

#include "cases/measure.h"

namespace pando::bench {

/// Reports a finished measurement: the benchmark's own loop then only shows the operation's time.
inline void report(benchmark::State& state, const Measured& measured) {
  state.counters["limit_ratio"] = measured.ratio;
  state.counters["work_ns"] = measured.work_ns;
  state.counters["limit_ns"] = measured.limit_ns;
}

}  // namespace pando::bench
