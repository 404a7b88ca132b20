// SPDX-License-Identifier: Apache-2.0
// BlockCache: hashing a prompt's blocks, taking and freeing blocks, finding a cached prompt.
// Limits: the same messages through the hash libraries' fastest calls; a pass over the same
// records.
#include <cstring>

#include "cases/cached_prompt.h"
#include "cases/hash_messages.h"
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

/// A BlockCache that is full of prompts of 16 blocks that nobody holds.
class FullBlocks {
 public:
  static constexpr std::size_t kBlocks = 16;    // of a prompt
  static constexpr std::size_t kRequests = 64;  // that take blocks in one batch

  explicit FullBlocks(const char* policy) {
    BlockCacheOptions options;
    options.num_blocks = 100'001;
    options.policy = policy;
    cache_ = std::move(*BlockCache::create(options));
    while (cache_->stats().evicted_blocks == 0) {
      take();
      put_back();
    }
    take();
    require(cache_->stats().evicted_blocks >= kRequests * kBlocks, "each evicts");
    put_back();
    require(cache_->check().ok(), "sound");
  }
  /// Nanoseconds per block, with an eviction each. Every fourth prompt was there before, perhaps.
  double take() {
    for (std::size_t i = 0; i < kRequests; ++i) {
      const std::size_t which = next_ % 4 == 0 ? next_ / 4 : next_;
      ++next_;
      std::vector<Token> tokens = prompt(kBlocks * kPage);
      tokens[0] = static_cast<Token>(which);
      requests_.push_back(*cache_->start(tokens));
    }
    const double ns = time_each(kRequests, [this](std::size_t i) {
      require(cache_->allocate(requests_[i], kBlocks * kPage, {.delay_caching = true}).ok(),
              "room");
    });
    return ns / kBlocks;
  }
  void put_back() {
    for (BlockRequest& r : requests_)
      require(cache_->checkpoint(r, kBlocks * kPage).ok(), "computed");
    requests_.clear();
  }

 private:
  std::unique_ptr<BlockCache> cache_;
  std::vector<BlockRequest> requests_;
  std::size_t next_ = 0;
};

// Room for a request, every block of it taken from another one that nobody holds.
void TakeEvict(benchmark::State& state) {
  FullBlocks hazard("hazard");
  FullBlocks lru("lru");
  std::vector<double> hazard_ns, lru_ns, ratios;
  for (std::size_t round = 0; round < 201; ++round) {
    hazard_ns.push_back(hazard.take());
    hazard.put_back();
    lru_ns.push_back(lru.take());
    lru.put_back();
    ratios.push_back(hazard_ns.back() / lru_ns.back());
  }
  state.counters["ns_per_block"] = median(hazard_ns);
  state.counters["lru_ns_per_block"] = median(lru_ns);
  state.counters["of_lru"] = median(ratios);
  while (state.KeepRunningBatch(FullBlocks::kRequests * FullBlocks::kBlocks)) {
    hazard.take();
    state.PauseTiming();
    hazard.put_back();
    state.ResumeTiming();
  }
}
BENCHMARK(TakeEvict)->Name("TakeEvict/blocks:100000/hazard");

// A prompt that is cached as a whole: start (hashes it), match, and gone again.
void MatchBlocks(benchmark::State& state) {
  CachedPrompt cached;
  const Measured measured = measure(
      21, 10, [&](std::size_t) { cached.find(); }, [&](std::size_t) { cached.limit(); }, [] {});
  report(state, measured);
  state.counters["ns_per_block"] = measured.work_ns / (CachedPrompt::kLength / kPage);
  for (auto _ : state) cached.find();
}
BENCHMARK(MatchBlocks)->Name("BlockMatch/tokens:32768/page:16");

}  // namespace
}  // namespace pando::bench
