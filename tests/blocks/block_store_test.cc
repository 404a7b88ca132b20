// SPDX-License-Identifier: Apache-2.0
// The store behind a BlockCache: blocks outlive their cache, are shared between caches of both
// kinds, and a store that is slow, broken or lying costs hits and nothing else.
#include <gtest/gtest.h>

#include <atomic>

#include "pando/store_backends.h"
#include "support/shared_store.h"
#include "support/step_copier.h"
#include "support/tiered_blocks.h"

namespace pando::testing {
namespace {

BlockTierSetup stored(std::vector<BlockGroup> groups = {full_group(4)},
                      HashFunction function = HashFunction::sglang) {
  BlockTierSetup setup;
  setup.cache = block_options(std::move(groups), 40);
  setup.cache.hash.function = function;
  return setup;
}

class BlockStoreTest : public StorageTierTest {
 protected:
  void attach_blocks(TieredBlocks& cache, std::string_view policy = "wait_complete") {
    StorageOptions o = storage();
    o.prefetch_policy = std::string(policy);
    cache->tiers().attach_storage(o).value();
  }
  /// Another cache has computed the prompt, and the store has it.
  void store_blocks(const Tokens& key, const BlockTierSetup& setup = stored(),
                    RequestKeys keys = {}) {
    TieredBlocks writer(setup);
    attach_blocks(writer);
    { const BlockRequest request = writer.run(key, std::move(keys)); }
    writer.settle();
  }
  // Polls until the policy lets the request go, then ends the prefetch.
  static std::size_t fetch_tokens(TieredBlocks& cache, const Tokens& key, RequestKeys keys = {}) {
    const BlockRequest request = *cache->start(key, std::move(keys));
    const Prefetch prefetch = *cache->prefetch(request);
    EXPECT_EQ(prefetch.outcome, PrefetchOutcome::started) << to_string(prefetch.outcome);
    while (!cache->prefetch_ready(prefetch.id)) (void)cache->poll();
    const std::size_t num_tokens = cache->end_prefetch(prefetch.id);
    EXPECT_EQ(cache->end_prefetch(prefetch.id), 0U) << "reported once";
    cache.settle();
    EXPECT_TRUE(cache.closes());
    return num_tokens;
  }
};

TEST_F(BlockStoreTest, BlocksOutliveTheirCache) {
  for (const HashFunction function : {HashFunction::sglang, HashFunction::sha256_cbor}) {
    const BlockTierSetup setup = stored({full_group(4)}, function);
    store_blocks(tokens(17), setup);
    TieredBlocks reader(setup);
    attach_blocks(reader);
    EXPECT_EQ(fetch_tokens(reader, tokens(17)), 16U);
    BlockRequest request = *reader->start(tokens(17));
    EXPECT_EQ(reader.begin(request), 16U);  // and verifies the bytes
    reader.settle();
    EXPECT_TRUE(reader.closes());
    EXPECT_EQ(reader->tiers().stats().prefetched_tokens, 16U);
  }
  EXPECT_EQ(num_stored(), 8U);
}

TEST_F(BlockStoreTest, ARadixCacheAndABlockCacheShareOneStore) {
  store(tokens(17));  // by a PrefixCache with pages of 4 tokens
  TieredBlocks blocks(stored());
  attach_blocks(blocks);
  EXPECT_EQ(fetch_tokens(blocks, tokens(17)), 16U);
  EXPECT_EQ(blocks.find(tokens(17)).host_length, 16U);

  store_blocks(tokens(13, 500));
  TieredCache tree(kPages);
  attach(tree);
  EXPECT_EQ(fetch(tree, tokens(13, 500)), 12U);
}

TEST_F(BlockStoreTest, AnAdapterAndASaltOfOneNameAreKeptApart) {
  const BlockTierSetup setup = stored({full_group(4)}, HashFunction::sha256_cbor);
  store_blocks(tokens(5), setup, {.lora = "x"});
  TieredBlocks reader(setup);
  attach_blocks(reader);
  EXPECT_EQ(fetch_tokens(reader, tokens(5), {.salt = "x"}), 0U);
  EXPECT_EQ(fetch_tokens(reader, tokens(5), {.lora = "x"}), 4U);
  store_blocks(tokens(5), setup, {.salt = "x"});
  EXPECT_EQ(fetch_tokens(reader, tokens(5), {.salt = "x"}), 4U);
  EXPECT_EQ(num_stored(), 2U);
}

TEST_F(BlockStoreTest, EveryKindOfGroupIsFetched) {
  const BlockTierSetup setup =
      stored({full_group(4), window_group(4, 6), recurrent_group(8, true), window_group(4, 10)});
  store_blocks(tokens(33), setup);
  TieredBlocks reader(setup);
  attach_blocks(reader);
  // Of windows and states only what the longest hit needs: full attention has got the most.
  EXPECT_EQ(fetch_tokens(reader, tokens(33)), 32U);
  EXPECT_EQ(reader->tiers().stats().prefetched_tokens, 32U);
  const std::array<std::size_t, 4> blocks = {8, 2, 1, 3};
  for (std::size_t g = 0; g < blocks.size(); ++g)
    EXPECT_EQ(reader->host_sizes(g).total, blocks[g] * reader->options().groups[g].block_size);
  BlockRequest request = *reader->start(tokens(33));
  EXPECT_EQ(reader.begin(request), 32U);
  reader.settle();
}

TEST_F(BlockStoreTest, OnlyTheRestOfAHitIsFetched) {
  store_blocks(tokens(25));
  TieredBlocks reader(stored());
  attach_blocks(reader);
  { const BlockRequest request = reader.run(tokens(9)); }
  reader.settle();
  EXPECT_EQ(fetch_tokens(reader, tokens(25)), 16U);
  const BlockRequest known = *reader->start(tokens(9));
  EXPECT_EQ(reader->prefetch(known)->outcome, PrefetchOutcome::nothing_to_fetch);
}

TEST_F(BlockStoreTest, HashesThatOthersCannotUseAreRefused) {
  for (const HashFunction function : {HashFunction::keyed, HashFunction::xxhash_cbor}) {
    TieredBlocks cache(stored({full_group(4)}, function));
    EXPECT_TRUE(fails(cache->tiers().attach_storage(storage()), ErrorCode::unavailable,
                      "expected sha256_cbor or sglang"));
    EXPECT_FALSE(cache->tiers().has_storage());
  }
  TestBlocks bare(block_options({full_group(4)}));
  EXPECT_TRUE(
      fails(bare->tiers().attach_storage(storage()), ErrorCode::unavailable, "no host tier"));
}

TEST_F(BlockStoreTest, AttachingTwiceOnlyChangesPolicies) {
  TieredBlocks cache(stored());
  attach_blocks(cache);
  StorageOptions o = storage();
  o.write_policy = "write_back";
  EXPECT_EQ(*cache->tiers().attach_storage(o),
            "the store \"" + name + "\" is attached already; policies updated");
  o.backend = "memory";
  EXPECT_TRUE(fails(cache->tiers().attach_storage(o), ErrorCode::in_use, "is attached; detach it"));
  o = storage();
  o.prefetch_policy = "never";
  EXPECT_TRUE(
      fails(cache->tiers().attach_storage(o), ErrorCode::invalid_argument, "prefetch policy"));
  EXPECT_TRUE(cache->tiers().detach_storage().ok());
  EXPECT_EQ(*cache->tiers().detach_storage(), "no store is attached");
}

TEST_F(BlockStoreTest, WhatTheHostHasIsPutWhenAStoreIsAttached) {
  TieredBlocks cache(stored());
  { const BlockRequest request = cache.run(tokens(17)); }
  cache.settle();
  attach_blocks(cache);
  cache.settle();
  EXPECT_EQ(num_stored(), 4U);
  EXPECT_EQ(cache->tiers().stats().stored_tokens, 16U);
  EXPECT_TRUE(cache->tiers().clear_storage().ok());
  EXPECT_EQ(num_stored(), 0U);
}

TEST_F(BlockStoreTest, PoliciesSayWhenARequestMayGoOn) {
  store_blocks(tokens(17));
  {
    reads.shut();
    TieredBlocks waits(stored());
    attach_blocks(waits);
    const BlockRequest request = *waits->start(tokens(17));
    const PrefetchId id = waits->prefetch(request)->id;
    for (int i = 0; i < 50; ++i) (void)waits->poll();
    EXPECT_FALSE(waits->prefetch_ready(id));
    reads.open();
    while (!waits->prefetch_ready(id)) (void)waits->poll();
    EXPECT_EQ(waits->end_prefetch(id), 16U);
    waits.settle();
  }
  {
    reads.shut();
    TieredBlocks late(stored());
    attach_blocks(late, "timeout");
    const BlockRequest request = *late->start(tokens(17));
    const PrefetchId id = late->prefetch(request)->id;
    EXPECT_FALSE(late->prefetch_ready(id));
    now += std::chrono::seconds(2);
    EXPECT_TRUE(late->prefetch_ready(id));
    EXPECT_EQ(late->end_prefetch(id), 0U);
    EXPECT_TRUE(late.closes());
    reads.open();
    late.settle();
    EXPECT_TRUE(late.closes());
  }
  TieredBlocks eager(stored());
  attach_blocks(eager, "best_effort");
  const BlockRequest request = *eager->start(tokens(17));
  const PrefetchId id = eager->prefetch(request)->id;
  EXPECT_TRUE(eager->prefetch_ready(id));
  (void)eager->end_prefetch(id);
  eager.settle();
  EXPECT_TRUE(eager->prefetch_ready(PrefetchId{77}));  // never was
}

TEST_F(BlockStoreTest, TooLittleOrTooMuchIsNotFetched) {
  store_blocks(tokens(17));
  TieredBlocks cache(stored());
  StorageOptions o = storage(R"({"prefetch_threshold": 17})");
  cache->tiers().attach_storage(o).value();
  const BlockRequest request = *cache->start(tokens(17));
  EXPECT_EQ(cache->prefetch(request)->outcome, PrefetchOutcome::below_threshold);
  cache->tiers().detach_storage().value();
  o = storage(R"({"prefetch_threshold": 1, "prefetch_max_tokens": 15})");
  cache->tiers().attach_storage(o).value();
  EXPECT_EQ(cache->prefetch(request)->outcome, PrefetchOutcome::rate_limited);
  cache->tiers().detach_storage().value();
  EXPECT_EQ(cache->prefetch(request)->outcome, PrefetchOutcome::no_store);
}

TEST_F(BlockStoreTest, AFullHostFetchesAsMuchAsItCan) {
  store_blocks(tokens(33));
  BlockTierSetup setup = stored();
  setup.host_pages = 3;
  TieredBlocks reader(setup);
  StorageOptions o = storage(R"({"prefetch_threshold": 1, "prefetch_max_tokens": 1000})");
  o.prefetch_policy = "wait_complete";
  reader->tiers().attach_storage(o).value();
  EXPECT_EQ(fetch_tokens(reader, tokens(33)), 12U);
  BlockRequest request = *reader->start(tokens(33));
  EXPECT_EQ(reader.begin(request), 12U);
  reader.settle();
}

TEST_F(BlockStoreTest, WithoutCachingThereIsNothingToFetch) {
  BlockTierSetup setup = stored();
  setup.cache.caching = false;
  TieredBlocks cache(setup);
  attach_blocks(cache);
  const BlockRequest request = cache.run(tokens(17));
  EXPECT_EQ(cache->prefetch(request)->outcome, PrefetchOutcome::nothing_to_fetch);
  cache.settle();
  EXPECT_EQ(num_stored(), 0U);
}

TEST_F(BlockStoreTest, DetachingCallsOffWhatIsUnderWay) {
  store_blocks(tokens(17));
  reads.shut();
  TieredBlocks cache(stored());
  attach_blocks(cache);
  const BlockRequest request = *cache->start(tokens(17));
  ASSERT_EQ(cache->prefetch(request)->outcome, PrefetchOutcome::started);
  for (int i = 0; i < 50; ++i) (void)cache->poll();
  reads.open();
  EXPECT_TRUE(cache->tiers().detach_storage().ok());
  EXPECT_TRUE(cache.closes());
}

TEST_F(BlockStoreTest, EventsTellWhatWasFetched) {
  store_blocks(tokens(17));
  BlockTierSetup setup = stored();
  setup.cache.events = true;
  TieredBlocks reader(setup);
  attach_blocks(reader);
  EXPECT_EQ(fetch_tokens(reader, tokens(17)), 16U);
  const std::vector<KvEvent> events = reader->take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tier, Tier::host);
  EXPECT_EQ(events[0].tokens, tokens(16));
}

TEST_F(BlockStoreTest, AnAbortedPrefetchKeepsNothing) {
  store_blocks(tokens(17));
  TieredBlocks reader(stored());
  attach_blocks(reader);
  const BlockRequest request = *reader->start(tokens(17));
  const PrefetchId id = reader->prefetch(request)->id;
  EXPECT_EQ(reader->tiers().under_way().fetches, 1U);
  while (!reader->prefetch_ready(id)) (void)reader->poll();
  reader->abort_prefetch(id);
  reader.settle();
  EXPECT_TRUE(reader->tiers().under_way().idle());
  EXPECT_EQ(reader->host_sizes().total, 0U);
  EXPECT_EQ(reader->tiers().stats().prefetched_tokens, 0U);
  EXPECT_TRUE(reader.closes());
}

// ---- Slow and failing stores -------------------------------------------------------------------

/// A store whose puts wait at a gate, and fail while it is down.
class BlockPutTest : public BlockStoreTest {
 protected:
  BlockPutTest() {
    register_store(name + "_puts", [this](const Config&) -> Result<std::unique_ptr<StoreBackend>> {
      return std::unique_ptr<StoreBackend>(
          std::make_unique<ScriptedBackend>([this](StoreBatch& batch) {
            puts.pass();
            if (is_down) throw std::runtime_error("not now");
            inner->put(batch);
          }));
    }).value();
  }
  void attach_puts(TieredBlocks& cache) {
    StorageOptions o = storage();
    o.backend = name + "_puts";
    cache->tiers().attach_storage(o).value();
  }
  Gate puts;
  std::atomic<bool> is_down = false;
};

TEST_F(BlockPutTest, ASlowStoreLeavesTheHostToTheCache) {
  BlockTierSetup setup = stored();
  setup.host_pages = 32;
  TieredBlocks cache(setup);
  { const BlockRequest request = cache.run(tokens(129)); }
  cache.settle();
  ASSERT_EQ(cache->host_sizes().evictable, 128U);
  puts.shut();
  attach_puts(cache);
  for (int i = 0; i < 5; ++i) (void)cache->poll();
  EXPECT_GE(cache->host_sizes().evictable, 96U) << "at most a quarter is held";
  cache.flush();
  { const BlockRequest request = cache.run(tokens(97, 1000)); }
  while (cache->tiers().under_way().backups > 0) (void)cache->poll();
  EXPECT_EQ(cache->tiers().stats().backed_up_tokens, 224U);
  EXPECT_EQ(cache->tiers().stats().refused_backups, 0U);
  EXPECT_EQ(cache.find(tokens(97, 1000)).length, 96U);
  EXPECT_TRUE(cache.closes());
  puts.open();
  cache.settle();
  // Of what waited, the host still had what was not evicted for the second prompt.
  EXPECT_EQ(num_stored(), 32U);
  EXPECT_TRUE(cache.closes());
}

TEST_F(BlockPutTest, WhatTheStoreRefusedIsPutAgainWhenItIsHit) {
  is_down = true;
  TieredBlocks cache(stored());
  attach_puts(cache);
  { const BlockRequest request = cache.run(tokens(17)); }
  EXPECT_EQ(cache.settle().failures, 4U);
  EXPECT_EQ(cache->tiers().stats().failed_puts, 4U);
  is_down = false;
  EXPECT_EQ(cache.settle().stored, 0U) << "nobody asked for it";
  { const BlockRequest request = cache.run(tokens(17)); }
  EXPECT_EQ(cache.settle().stored, 4U);
  EXPECT_EQ(num_stored(), 4U);
  { const BlockRequest request = cache.run(tokens(17)); }
  EXPECT_EQ(cache.settle().stored, 0U) << "it is there";
  EXPECT_TRUE(cache.closes());
}

}  // namespace
}  // namespace pando::testing
