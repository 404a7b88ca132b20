// SPDX-License-Identifier: Apache-2.0
// Plans against the dumbest simulations, on random traces: LRU at every capacity, the optimum by
// blocks, and both against what the real cache does.
#include "replay/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <list>
#include <map>
#include <set>

#include "replay/mix.h"
#include "replay/optimum.h"
#include "replay/replayer.h"
#include "replay/reuse.h"
#include "support/random_ops.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

using Requests = std::vector<std::vector<BlockId>>;

/// Each number is a path in a tree with few branches: ids are equal where the prefix is.
Requests requests_of(const std::vector<std::uint64_t>& numbers) {
  Requests requests;
  for (const std::uint64_t number : numbers) {
    std::vector<BlockId> blocks;
    BlockId chain = 0;
    const std::size_t length = number % 24;
    for (std::size_t i = 0; i < length; ++i) {
      const std::uint64_t branch = i % 4 == 0 ? (number >> (8 + i)) % 3 : 0;
      blocks.push_back(chain = mix(chain, branch + 1));
    }
    requests.push_back(blocks);
  }
  return requests;
}

CompactTrace compact(const Requests& requests) {
  CompactTrace trace;
  TraceRequest request;
  for (const auto& blocks : requests) {
    request.blocks = blocks;
    trace.add(request);
  }
  trace.finish();
  return trace;
}

/// A list from least to most recently used; a request's first block is used last.
std::uint64_t naive_lru(const Requests& requests, std::size_t capacity) {
  std::list<BlockId> order;
  std::uint64_t hits = 0;
  for (const auto& blocks : requests) {
    for (const BlockId id : blocks) {
      if (std::find(order.begin(), order.end(), id) == order.end()) break;
      ++hits;
    }
    for (std::size_t i = blocks.size(); i-- > 0;) {
      order.remove(blocks[i]);
      order.push_back(blocks[i]);
    }
    while (order.size() > capacity) order.pop_front();
  }
  return hits;
}

/// By blocks: of those that may go, the one that is used again last, the deepest of equals.
std::uint64_t naive_optimum(const Requests& requests, std::size_t capacity, OptimumRule rule) {
  std::map<BlockId, std::size_t> cached;  // and its depth
  std::uint64_t hits = 0;
  const auto next_use = [&](BlockId id, std::size_t after) {
    for (std::size_t r = after + 1; r < requests.size(); ++r) {
      if (std::find(requests[r].begin(), requests[r].end(), id) != requests[r].end()) return r;
    }
    return requests.size();
  };
  for (std::size_t r = 0; r < requests.size(); ++r) {
    std::vector<BlockId> blocks = requests[r];
    for (const BlockId id : blocks) {
      if (!cached.contains(id)) break;
      ++hits;
    }
    const bool same = rule == OptimumRule::same;
    if (same && blocks.size() > capacity) {
      for (std::size_t i = capacity; i < blocks.size(); ++i) cached.erase(blocks[i]);
      blocks.resize(capacity);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) cached[blocks[i]] = i;
    while (cached.size() > capacity) {
      auto worst = cached.end();
      for (auto it = cached.begin(); it != cached.end(); ++it) {
        if (same && std::find(blocks.begin(), blocks.end(), it->first) != blocks.end()) continue;
        const auto key = [&](auto at) { return std::pair(next_use(at->first, r), at->second); };
        if (worst == cached.end() || key(it) > key(worst)) worst = it;
      }
      cached.erase(worst);
    }
  }
  return hits;
}

double replayed(const Requests& requests, std::size_t capacity) {
  ListTrace trace(requests, 4);
  ReplayOptions options;
  options.block_tokens = options.stack.page_size = 4;
  options.stack.device_tokens = capacity * 4;
  options.check_every = 1;
  return static_cast<double>(replay(trace, options).value().all_hit_blocks());
}

TEST(PlanModel, LruIsExactAtEveryCapacity) {
  ASSERT_TRUE(check_random_ops(2000, [](const auto& numbers) {
    const Requests requests = requests_of(numbers);
    const CompactTrace trace = compact(requests);
    const std::vector<std::uint64_t> hits = lru_hits(trace);
    for (std::size_t c = 0; c < hits.size(); ++c) RC_ASSERT(hits[c] == naive_lru(requests, c));
  }));
}

TEST(PlanModel, TheCacheHitsWhatThePlanSays) {
  ASSERT_TRUE(check_random_ops(2000, [](const auto& numbers) {
    const Requests requests = requests_of(numbers);
    const std::vector<std::uint64_t> hits = lru_hits(compact(requests));
    for (std::size_t c = 1; c < hits.size(); c += 3)
      RC_ASSERT(replayed(requests, c) == static_cast<double>(hits[c]));
  }));
}

TEST(PlanModel, TheOptimumIsThatOfBlocks) {
  ASSERT_TRUE(check_random_ops(600, [](const auto& numbers) {
    const Requests requests = requests_of(numbers);
    const CompactTrace trace = compact(requests);
    const Optimum optimum(trace);
    const std::vector<std::uint64_t> lru = lru_hits(trace);
    for (std::size_t c = 1; c <= trace.num_blocks(); c += 4) {
      const std::uint64_t same = optimum.hits(c, OptimumRule::same);
      RC_ASSERT(same == naive_optimum(requests, c, OptimumRule::same));
      RC_ASSERT(optimum.hits(c, OptimumRule::free) ==
                naive_optimum(requests, c, OptimumRule::free));
      RC_ASSERT(same >= lru[c]);
    }
  }));
}

TEST(PlanModel, TheCompactTraceKeepsEveryRequest) {
  ASSERT_TRUE(check_random_ops(5000, [](const auto& numbers) {
    const Requests requests = requests_of(numbers);
    const CompactTrace trace = compact(requests);
    std::map<BlockId, BlockId> number_of;
    const std::vector<TraceRequest> back = read_all(*trace.replayable());
    RC_ASSERT(back.size() == requests.size());
    for (std::size_t r = 0; r < requests.size(); ++r) {
      RC_ASSERT(back[r].blocks.size() == requests[r].size());
      for (std::size_t i = 0; i < requests[r].size(); ++i) {
        const auto known = number_of.emplace(requests[r][i], back[r].blocks[i]).first;
        RC_ASSERT(known->second == back[r].blocks[i]);
      }
    }
    std::set<BlockId> numbers_used;
    for (const auto& [id, number] : number_of) numbers_used.insert(number);
    RC_ASSERT(numbers_used.size() == number_of.size());
    RC_ASSERT(trace.num_blocks() == number_of.size());
  }));
}

}  // namespace
}  // namespace pando::testing
