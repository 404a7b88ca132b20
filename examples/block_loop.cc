// SPDX-License-Identifier: Apache-2.0
// An engine that addresses KV by blocks and finds prefixes by chained hashes, as vLLM does: a model
// with full-attention and sliding-window layers, prompts that share a beginning, generation token
// by token, and a request that is preempted when blocks run out.
#include <cstdio>
#include <vector>

#include "pando/block_cache.h"

namespace {

using pando::BlockRequest;
using Tokens = std::vector<pando::Token>;

Tokens prompt(pando::Token question) {
  Tokens tokens;
  for (pando::Token t = 0; t < 48; ++t) tokens.push_back(t);  // the system prompt
  for (pando::Token t = 0; t < 9; ++t) tokens.push_back(1000 * question + t);
  return tokens;
}

// Starts where the cache can and computes the rest of the prompt. False: no room.
bool prefill(pando::BlockCache& cache, BlockRequest& request) {
  const pando::BlockMatch found = cache.match(request);
  const std::size_t left = request.tokens().size() - found.length;
  if (!cache.allocate(request, left, {.match = &found}).ok()) return false;
  // ... the engine computes the last `left` tokens into request.blocks(group) ...
  cache.checkpoint(request, request.tokens().size()).value();
  std::printf("prompt of %zu tokens: %zu found, %zu computed\n", request.tokens().size(),
              found.length, left);
  return true;
}

bool decode(pando::BlockCache& cache, BlockRequest& request, pando::Token sampled) {
  request.append(sampled).value();
  if (!cache.allocate(request, 1).ok()) return false;
  // ... one forward pass ...
  cache.checkpoint(request, request.tokens().size()).value();
  return true;
}

}  // namespace

int main() {
  pando::BlockCacheOptions options;
  options.num_blocks = 33;  // block 0 is the null block
  options.groups = {{.kind = pando::GroupKind::full, .block_size = 4},
                    {.kind = pando::GroupKind::sliding_window, .block_size = 4, .span = 16}};
  auto cache = *pando::BlockCache::create(options);

  BlockRequest first = *cache->start(prompt(1));
  BlockRequest second = *cache->start(prompt(2));
  if (!prefill(*cache, first) || !prefill(*cache, second)) return 1;
  const std::vector<std::size_t> shared = cache->common_prefix_blocks(first);
  std::printf("the two share %zu blocks of full attention\n", shared[0]);

  int steps = 0;
  while (decode(*cache, first, 7)) ++steps;
  std::printf("after %d tokens no block is left: the second request is preempted\n", steps);
  cache->preempt(second);
  cache->allocate(first, 1).value();
  cache->checkpoint(first, first.tokens().size()).value();
  cache->finish(first);
  if (!prefill(*cache, second)) return 1;
  std::printf("%.0f %% of the blocks are in use\n", 100 * cache->usage());
  return cache->check().ok() ? 0 : 1;
}
