// SPDX-License-Identifier: Apache-2.0
// All bookkeeping memory (tree and allocator, as the heap sees it) over cached tokens: 10 000
// sequences of 2048 tokens, of which 1024 are shared by groups of 20. The limit is one int32 per
// token, which any exact cache must keep.
#include <malloc.h>

#include "limit.h"
#include "tree.h"

namespace pando::bench {
namespace {

std::size_t heap_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

void metadata(benchmark::State& state, std::size_t page_size) {
  constexpr std::size_t kCount = 10'000, kLength = 2048, kShared = 1024, kGroup = 20;
  constexpr std::size_t kUnique = kCount / kGroup * kShared + kCount * (kLength - kShared);
  const Sequences sequences(kCount, kLength, kShared, kGroup);
  for (auto _ : state) {
    const std::size_t before = heap_in_use();
    Tree tree(kUnique, page_size);
    for (std::size_t i = 0; i < kCount; ++i) tree.insert(sequences[i]);
    const std::size_t used = heap_in_use() - before;
    require(tree.cache->sizes().total == kUnique, "all sequences are cached");
    const std::size_t told = tree.cache->memory_bytes() + tree.allocator->memory_bytes();
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
