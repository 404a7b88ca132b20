// SPDX-License-Identifier: Apache-2.0
// A BlockCache with a host tier and real bytes: every row that the "engine" computes says which
// prefix, group and request keys it was computed for, so that a row that comes back can be told
// right from wrong.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "blocks/hit_search.h"
#include "support/block_fixture.h"
#include "support/tier_fixture.h"

namespace pando::testing {

struct BlockTierSetup {
  BlockCacheOptions cache = block_options({full_group(4)}, 16);  ///< `host` is filled in
  WritePolicy write_policy = WritePolicy::write_through;
  std::size_t host_pages = 64;  ///< of each group
  std::size_t load_back_threshold = 1;
  HostLayout layout = HostLayout::page_first;
  std::optional<CostGateOptions> cost_gate = {};
  Copier* copier = nullptr;  ///< the CPU's unless given
};

class TieredBlocks {
 public:
  explicit TieredBlocks(const BlockTierSetup& setup = {}) {
    if (setup.copier == nullptr) own_copier_ = *make_cpu_copier({.num_threads = 1});
    BlockCacheOptions options = setup.cache;
    BlockHostOptions& host = options.host.emplace();
    host.copier = setup.copier != nullptr ? setup.copier : own_copier_.get();
    host.write_policy = setup.write_policy;
    host.load_back_threshold = setup.load_back_threshold;
    host.cost_gate = setup.cost_gate;
    for (BlockGroup& group : options.groups) {
      const bool state = group.kind == GroupKind::recurrent;
      const std::size_t rows = state ? 1 : group.block_size;
      const Geometry geometry = state ? state_geometry(1, {{"state", 1, 2, DType::fp32}})
                                      : TieredCache::geometry(group.block_size);
      group.pools = sides.emplace_back().make(geometry, (options.num_blocks - 1) * rows,
                                              setup.host_pages * rows, {.layout = setup.layout});
    }
    cache = std::move(*BlockCache::create(options));
  }

  BlockCache* operator->() const { return cache.get(); }

  /// The engine computes tokens [from, to) into the request's blocks, in one step.
  void compute(const BlockRequest& request, std::size_t from, std::size_t to) {
    for (std::size_t g = 0; g < sides.size(); ++g) {
      const BlockGroup& group = groups()[g];
      for (std::size_t t = from; t < to; ++t) {
        const bool is_end = t + 1 == to || (group.every_state && (t + 1) % group.block_size == 0);
        const PageId block = request.blocks(g)[t / group.block_size];
        if (block == kNullBlock || (group.kind == GroupKind::recurrent && !is_end)) continue;
        sides[g].write(row_of_token(group, block, t), value(request, g, t));
      }
    }
  }
  /// The rows that the token at position n looks at are what was computed for exactly this prefix.
  ::testing::AssertionResult holds(const BlockRequest& request, std::size_t n) const {
    for (std::size_t g = 0; g < sides.size() && n > 0; ++g) {
      const BlockGroup& group = groups()[g];
      const std::size_t first =
          group.kind == GroupKind::recurrent ? n - 1 : needed_from(group, n) * group.block_size;
      for (std::size_t t = first; t < n; ++t) {
        const PageId block = request.blocks(g)[t / group.block_size];
        if (block == kNullBlock ||
            sides[g].read(row_of_token(group, block, t)) != value(request, g, t))
          return ::testing::AssertionFailure()
                 << "group " << g << ", token " << t << " of " << n << ", block " << index_of(block)
                 << " has other bytes";
      }
    }
    return ::testing::AssertionSuccess();
  }

  /// Starts where the cache can, loads included, and computes the rest. Returns the request.
  BlockRequest run(const Tokens& tokens, RequestKeys keys = {}) {
    BlockRequest request = *cache->start(tokens, std::move(keys));
    begin(request);
    return request;
  }
  /// The same for a request without blocks. Returns the tokens that were not computed.
  std::size_t begin(BlockRequest& request) {
    const BlockMatch found = cache->match(request);
    const std::size_t length = found.length + found.host_length;
    cache->allocate(request, request.tokens().size() - length, {.match = &found}).value();
    open_gates();
    EXPECT_TRUE(holds(request, length));
    compute(request, length, request.tokens().size());
    cache->checkpoint(request, request.tokens().size()).value();
    return length;
  }
  BlockMatch find(const Tokens& tokens, RequestKeys keys = {}) {
    const BlockRequest request = *cache->start(tokens, std::move(keys));
    return cache->match(request);
  }
  /// Makes the device forget what nobody holds; with several groups, but for a few blocks.
  void flush() {
    std::vector<BlockRequest> fillers;
    for (std::size_t n = cache->pool().num_free() * groups()[0].block_size; n > 0;) {
      BlockRequest filler = *cache->start({});
      if (cache->allocate(filler, n, {.delay_caching = true}).ok()) {
        fillers.push_back(std::move(filler));
      } else {
        n /= 2;
      }
    }
  }
  PollResult settle() { return poll_until_idle(*cache); }
  void open_gates() {
    for (TieredCache::Side& side : sides)
      (void)side.device->wait_layer(side.device->geometry().num_layers - 1);
  }
  ::testing::AssertionResult closes() const {
    if (const Status s = cache->check(); !s)
      return ::testing::AssertionFailure() << s.error().message;
    return ::testing::AssertionSuccess();
  }

  std::deque<TieredCache::Side> sides;

 private:
  const std::vector<BlockGroup>& groups() const { return cache->options().groups; }
  static SlotId row_of_token(const BlockGroup& group, PageId block, std::size_t t) {
    if (group.kind == GroupKind::recurrent) return SlotId{index_of(block)};
    return SlotId{
        static_cast<std::int64_t>(index_of(block) * group.block_size + t % group.block_size)};
  }
  static std::uint64_t value(const BlockRequest& request, std::size_t g, std::size_t t) {
    const Tokens tokens(request.tokens().begin(), request.tokens().end());
    const RequestKeys& keys = request.keys();
    std::string apart = std::to_string(g) + keys.lora + "/" + keys.salt;
    return TieredCache::row_value(tokens, t, apart);
  }

  std::unique_ptr<Copier> own_copier_;

 public:
  std::unique_ptr<BlockCache> cache;  // goes first
};

}  // namespace pando::testing
