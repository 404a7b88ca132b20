// SPDX-License-Identifier: Apache-2.0
// SlotCache: the bookkeeping memory of 1000 sequences of 1000 tokens that share 500, over the bytes
// of the distinct tokens, which any exact map must keep; and finding one of them beside comparing
// its tokens (memcmp), both visited at random.
#include <cstring>
#include <memory>
#include <vector>

#include "cases/tree.h"
#include "limit.h"
#include "pando/slot_cache.h"

namespace pando::bench {
namespace {

constexpr std::size_t kCount = 1000, kLength = 1000, kShared = 500;

// Every slot holds a sequence of its own and has been given back.
struct Slots {
  Sequences sequences{kCount, kLength, kShared, kCount};
  std::unique_ptr<SlotAllocator> allocator = *SlotAllocator::create(kCount);
  std::unique_ptr<SlotCache> cache =
      *SlotCache::create({.slot_tokens = kLength, .max_nodes = 10'000, .hash_seed = 1}, *allocator);

  Slots() {
    for (std::size_t i = 0; i < kCount; ++i)
      require(cache->insert({sequences[i]}, cache->take().value()).ok(), "insert");
    for (std::size_t i = 0; i < kCount; ++i) cache->free(i);
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto found = *cache->find({sequences[i]});
      require(found && found->slot == i && found->length == kLength, "each slot is found");
    }
  }
};

void memory(benchmark::State& state) {
  constexpr std::size_t kTokenBytes = (kShared + kCount * (kLength - kShared)) * sizeof(Token);
  for (auto _ : state) {
    const Slots slots;
    const auto used = static_cast<double>(slots.cache->memory_bytes());
    state.counters["of_tokens"] = used / kTokenBytes;
    state.counters["bytes"] = used;
  }
}

void find(benchmark::State& state) {
  const Slots slots;
  std::vector<Token> copy;
  for (std::size_t i = 0; i < kCount; ++i)
    copy.insert(copy.end(), slots.sequences[i].begin(), slots.sequences[i].end());
  const auto order = shuffled(kCount, 1);
  const auto limit_order = shuffled(kCount, 2);
  std::size_t w = 0, l = 0;
  const auto work = [&](std::size_t) {
    benchmark::DoNotOptimize(
        slots.cache->find({slots.sequences[order[w++ % kCount]]})->has_value());
  };
  const Measured measured = measure(
      501, 200, work,
      [&](std::size_t) {
        const std::size_t i = limit_order[l++ % kCount];
        benchmark::DoNotOptimize(std::memcmp(slots.sequences[i].data(), copy.data() + i * kLength,
                                             kLength * sizeof(Token)));
      },
      [] {});
  for (auto _ : state) work(0);
  report(state, measured);
}

const int registered = [] {
  benchmark::RegisterBenchmark("SlotMemory/sequences:1000", memory);
  benchmark::RegisterBenchmark("SlotFind/tokens:1000", find);
  return 0;
}();

}  // namespace
}  // namespace pando::bench
