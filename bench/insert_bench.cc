// SPDX-License-Identifier: Apache-2.0
// Insert of 8192 tokens of which 6144 are there, beside its limit.
#include "cases/insert_case.h"
#include "limit.h"

namespace pando::bench {
namespace {

void insert(benchmark::State& state) {
  InsertCase inserts;
  const Measured measured = measure(
      201, InsertCase::kBatch, [&](std::size_t i) { inserts.work(i); },
      [&](std::size_t i) { inserts.limit(i); }, [&] { inserts.prepare(); });
  std::size_t i = 0;
  for (auto _ : state) {
    if (i == InsertCase::kBatch) {
      state.PauseTiming();
      inserts.prepare();
      i = 0;
      state.ResumeTiming();
    }
    inserts.work(i++);
  }
  inserts.give_back_from(i);
  report(state, measured);
}

const int registered = [] {
  benchmark::RegisterBenchmark("Insert/tokens:8192/page:64", insert);
  return 0;
}();

}  // namespace
}  // namespace pando::bench
