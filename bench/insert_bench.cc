// SPDX-License-Identifier: Apache-2.0
// Insert of 8192 tokens of which 6144 are there, beside its limit: comparing the shared tokens and
// copying the new tokens and their int64 slots.
#include <cstring>

#include "limit.h"
#include "tree.h"

namespace pando::bench {
namespace {

constexpr std::size_t kPage = 64;
constexpr std::size_t kLength = 8192;
constexpr std::size_t kShared = 6144;
constexpr std::size_t kBatch = 64;

void insert(benchmark::State& state) {
  // Sequence 0 stays in the tree; the others share its first tokens, are inserted, and evicted.
  const Sequences sequences(kBatch + 1, kLength, kShared, kBatch + 1);
  Tree tree((kBatch + 2) * kLength, kPage);
  tree.insert(sequences[0]);
  std::vector<std::vector<SlotId>> slots(kBatch, std::vector<SlotId>(kLength));
  Match first = *tree.cache->match({sequences[0]});
  const Lease keep = *tree.cache->lock(first);

  const auto prepare = [&] {
    tree.cache->evict(kBatch * kLength);  // what the last batch added
    for (std::size_t i = 0; i < kBatch; ++i) {
      Request request{.key = {sequences[i + 1]}, .slots = slots[i]};
      require(tree.cache->match(request.key, slots[i])->length == kShared, "shared part");
      require(tree.cache->allocate(request, kShared).ok(), "room");
    }
  };
  const auto work = [&](std::size_t i) {
    const auto inserted =
        tree.cache->insert({sequences[i + 1]}, slots[i], {.owned_by_tree = kShared});
    benchmark::DoNotOptimize(inserted->length);
  };
  const Sequences copies(kBatch + 1, kLength, kShared, kBatch + 1);
  std::vector<Token> new_tokens(kLength - kShared);
  std::vector<SlotId> new_slots(kLength - kShared);
  const auto limit = [&](std::size_t i) {
    benchmark::DoNotOptimize(
        std::memcmp(sequences[i + 1].data(), copies[0].data(), kShared * sizeof(Token)));
    std::memcpy(new_tokens.data(), sequences[i + 1].data() + kShared,
                new_tokens.size() * sizeof(Token));
    std::memcpy(new_slots.data(), slots[i].data() + kShared, new_slots.size() * sizeof(SlotId));
    benchmark::ClobberMemory();
  };

  prepare();
  for (std::size_t i = 0; i < kBatch; ++i) work(i);
  require(tree.cache->match({sequences[kBatch]})->length == kLength, "insert took everything");
  prepare();
  const Measured measured = measure(201, kBatch, work, limit, prepare);
  std::size_t i = 0;
  for (auto _ : state) {
    if (i == kBatch) {
      state.PauseTiming();
      prepare();
      i = 0;
      state.ResumeTiming();
    }
    work(i++);
  }
  // What a finished batch leaves behind belongs to the tree; the rest goes back by hand.
  for (; i < kBatch; ++i) tree.allocator->free(std::span(slots[i]).subspan(kShared));
  report(state, measured);
}

const int registered = [] {
  benchmark::RegisterBenchmark("Insert/tokens:8192/page:64", insert);
  return 0;
}();

}  // namespace
}  // namespace pando::bench
