// SPDX-License-Identifier: Apache-2.0
// All bookkeeping memory (tree and allocator, as the system sees it) over cached tokens: 10 000
// sequences of 2048 tokens, of which 1024 are shared by groups of 20. The limit is one int32 per
// token, which any exact cache must keep.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>

#include "cases/tree.h"
#include "limit.h"
#include "pando/inspect.h"

namespace pando::bench {
namespace {

std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  require(file != nullptr && std::fscanf(file, "%zu %zu", &total, &resident) == 2, "statm");
  std::fclose(file);
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void metadata(benchmark::State& state, std::size_t page_size) {
  constexpr std::size_t kCount = 10'000, kLength = 2048, kShared = 1024, kGroup = 20;
  constexpr std::size_t kUnique = kCount / kGroup * kShared + kCount * (kLength - kShared);
  const Sequences sequences(kCount, kLength, kShared, kGroup);
  for (auto _ : state) {
    malloc_trim(0);  // what earlier benchmarks left behind would hide what is used now
    const std::size_t before = resident_bytes();
    Tree tree(kUnique, page_size);
    for (std::size_t i = 0; i < kCount; ++i) tree.insert(sequences[i]);
    const std::size_t used = resident_bytes() - before;
    require(tree.cache->inspect().sizes().total == kUnique, "all sequences are cached");
    const std::size_t told = tree.cache->inspect().memory_bytes() + tree.allocator->memory_bytes();
    state.counters["bytes_per_token"] = static_cast<double>(used) / kUnique;
    state.counters["limit_ratio"] = static_cast<double>(used) / (kUnique * sizeof(Token));
    state.counters["told_per_token"] = static_cast<double>(told) / kUnique;
  }
}

const int registered = [] {
  for (const std::size_t page : {64, 1}) {
    const std::string name = "Metadata/page:" + std::to_string(page);
    benchmark::RegisterBenchmark(name.c_str(), [page](benchmark::State& s) { metadata(s, page); });
  }
  return 0;
}();

}  // namespace
}  // namespace pando::bench
