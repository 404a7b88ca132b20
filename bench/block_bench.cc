// SPDX-License-Identifier: Apache-2.0
// BlockCache: hashing a prompt's blocks, taking and freeing blocks, finding a cached prompt.
// Limits: the same messages through the hash libraries' fastest calls; a pass over the same
// records.
#include <cstring>

#include "cached_prompt.h"
#include "hash_messages.h"
#include "limit.h"
#include "pando/block_cache.h"

namespace pando::bench {
namespace {

constexpr std::size_t kTokens = 8192;
constexpr std::size_t kPage = 16;

void HashChain(benchmark::State& state, HashFunction function) {
  const std::vector<Token> tokens = prompt(kTokens);
  const BlockHasher hasher = *BlockHasher::create(kPage, {.function = function});
  const BlockHasher sha = *BlockHasher::create(kPage, {.function = HashFunction::sha256_cbor});
  std::vector<BlockHash> chain;
  chain.reserve(kTokens / kPage);
  const auto hash_all = [&](const BlockHasher& with) {
    chain.clear();
    require(with.extend(tokens, {}, chain).ok(), "hashes");
    benchmark::DoNotOptimize(chain.data());
  };
  hash_all(hasher);
  HashMessages messages(function, tokens, kPage, chain);
  const auto work = [&](std::size_t) { hash_all(hasher); };
  const Measured measured = measure(
      21, 20, work, [&](std::size_t) { messages.hash(false); }, [] {});
  const Measured chained = measure(
      21, 20, work, [&](std::size_t) { messages.hash(true); }, [] {});
  state.counters["of_chained"] = chained.ratio;
  report(state, measured);
  const Measured beside = measure(
      21, 20, [&](std::size_t) { hash_all(sha); }, [&](std::size_t) { hash_all(hasher); }, [] {});
  state.counters["times_sha256"] = beside.ratio;
  state.counters["ns_per_block"] = measured.work_ns / static_cast<double>(messages.size());
  for (auto _ : state) hash_all(hasher);
}
BENCHMARK_CAPTURE(HashChain, sha256, HashFunction::sha256_cbor)
    ->Name("HashChain/tokens:8192/page:16/sha256");
BENCHMARK_CAPTURE(HashChain, sglang, HashFunction::sglang)
    ->Name("HashChain/tokens:8192/page:16/sglang");
BENCHMARK_CAPTURE(HashChain, xxhash, HashFunction::xxhash_cbor)
    ->Name("HashChain/tokens:8192/page:16/xxhash");
BENCHMARK_CAPTURE(HashChain, keyed, HashFunction::keyed)
    ->Name("HashChain/tokens:8192/page:16/keyed");

// Takes and frees blocks, as a request does: from its end. With content, each take forgets some.
void take_and_free(benchmark::State& state, bool with_content) {
  constexpr std::size_t kTaken = 1000;
  BlockPoolOptions options;
  options.num_blocks = 100'001;
  const auto pool = std::move(*BlockPool::create(options));
  const std::vector<Token> tokens = prompt(2 * kTaken * kPage);
  std::vector<BlockHash> chain;
  require(BlockHasher::create(kPage)->extend(tokens, {}, chain).ok(), "hashes");
  std::vector<PageId> blocks(kTaken);
  std::size_t next = 0;
  const auto take_free = [&](std::size_t) {
    require(pool->take(blocks).ok(), "room");
    if (with_content) {
      next = kTaken - next;
      for (std::size_t i = 0; i < kTaken; ++i)
        pool->cache(blocks[i], {0, &chain[next + i], tokens.data() + (next + i) * kPage});
    }
    std::reverse(blocks.begin(), blocks.end());
    pool->free(blocks);
  };
  for (int i = 0; i < 300; ++i) take_free(0);  // every block has been through
  require(pool->num_free() == options.num_blocks - 1 && pool->check().ok(), "all back");
  std::vector<PageId> copy(kTaken);
  const Measured measured = measure(
      101, 10, take_free,
      [&](std::size_t) {
        std::memcpy(copy.data(), blocks.data(), kTaken * sizeof(PageId));
        benchmark::DoNotOptimize(copy.data());
      },
      [] {});
  report(state, measured);
  state.counters["ns_per_block"] = measured.work_ns / kTaken;
  for (auto _ : state) take_free(0);
}
void TakeFree(benchmark::State& state) { take_and_free(state, false); }
BENCHMARK(TakeFree)->Name("TakeFree/blocks:1000");
void TakeCacheFree(benchmark::State& state) { take_and_free(state, true); }
BENCHMARK(TakeCacheFree)->Name("TakeCacheFree/blocks:1000");

// A prompt that is cached as a whole: start (hashes it), get_computed, and gone again.
void GetComputed(benchmark::State& state) {
  CachedPrompt cached;
  const Measured measured = measure(
      21, 10, [&](std::size_t) { cached.find(); }, [&](std::size_t) { cached.limit(); }, [] {});
  report(state, measured);
  state.counters["ns_per_block"] = measured.work_ns / (CachedPrompt::kLength / kPage);
  for (auto _ : state) cached.find();
}
BENCHMARK(GetComputed)->Name("GetComputed/tokens:32768/page:16");

}  // namespace
}  // namespace pando::bench
