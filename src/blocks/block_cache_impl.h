// SPDX-License-Identifier: Apache-2.0
// What BlockCache and its requests are made of. block_requests.cc has the life of a request,
// block_allocate.cc its blocks, block_storage.cc the calls on tiers, block_hazard.cc what tells a
// policy that learns, block_observed.cc what tells the observer, block_cache.cc the rest.
//
// Invariant: a block's holders are the requests that list it and the copies that move it. A full
// block of a request has content once `cached` has passed it, unless it is null, a copy of another,
// or a state between two steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blocks/block_tiers.h"
#include "blocks/hazard_blocks.h"
#include "blocks/hit_search.h"
#include "blocks/host_blocks.h"
#include "cache/event_log.h"
#include "cache/observed.h"
#include "pando/block_cache.h"
#include "pando/cache.h"
#include "tiers/tier_owner.h"

namespace pando {

struct BlockRequest::Impl {
  struct Group {
    std::vector<PageId> blocks;
    std::size_t cached = 0;     // blocks that have content, or are not to have it
    std::size_t confirmed = 0;  // blocks whose bytes are in place, told to the host tier
    std::size_t released = 0;   // blocks that were let go of: null
  };

  BlockCache::Impl* cache = nullptr;
  std::vector<Token> tokens;
  std::vector<BlockHash> chain;
  RequestKeys keys;
  std::shared_ptr<const std::string> ns;  // of events
  std::vector<Group> groups;
  std::size_t num_computed = 0;
  std::size_t num_loads = 0;  // under way: until then nothing computed behind them is cached
  bool running = false;       // may have blocks
  bool broken = false;
  std::size_t position = 0;  // among the running
  RequestStart started;      // for an observer
  // Under the hazard policy: leading blocks that had been seen before when it first had room.
  std::optional<std::size_t> num_seen;

  std::size_t num_tokens() const { return tokens.size(); }
};

struct BlockCache::Impl final : TierOwner {
  using Request = BlockRequest::Impl;
  Impl(const BlockCacheOptions& opts, const BlockHasher& block_hasher);
  ~Impl();

  // The calls. BlockCache's own of the same names, in block_observed.cc, tell the observer.
  Result<std::unique_ptr<Request>> start(std::span<const Token> tokens, RequestKeys keys);
  BlockMatch match(const Request& r);
  Status allocate(Request& r, std::size_t num_new_tokens, const AllocateOptions& given);
  Status checkpoint(Request& r, std::size_t num_computed);
  PollResult poll() override;
  Result<Prefetch> prefetch(const Request& r);
  std::size_t end_prefetch(PrefetchId id, bool keep);
  Status reset();

  TierEngine* tier_engine() override { return tiers ? &tiers->engine : nullptr; }
  CacheObserver* tier_observer() const override { return options.observer; }
  Status refuse_store() const override;
  std::size_t default_fetch_tokens() const override { return tiers->default_fetch_tokens(); }
  void set_write_policy(WritePolicy policy) override { tiers->set_write_policy(policy); }
  void store_left() override {}
  std::size_t evict_host(std::size_t num_tokens, std::size_t group) override;
  void prefilled(std::size_t, double, std::size_t) override {}

  BlockKeys keys_of(const Request& r) const {
    return {r.tokens, r.chain, unit, *r.ns, hasher.may_alias(r.keys)};
  }
  /// The longest hit that leaves a token to compute.
  static std::size_t limit_of(const Request& r) {
    return r.tokens.empty() ? 0 : r.num_tokens() - 1;
  }
  std::size_t longest_hit(std::size_t limit, HitSearch::Reach reach);
  bool is_worth_loading(const Request& r, std::size_t length, std::size_t num_tokens);

  /// Blocks that an allocation will use, by group.
  struct GroupPlan {
    std::vector<PageId> hits;                               // with null blocks
    std::vector<std::pair<std::size_t, HostPageId>> loads;  // which of them come from where
    std::size_t num_null = 0;  // behind the hits: of states between steps
    std::size_t num_new = 0;   // behind those
  };
  Status plan_hits(const Request& r, const AllocateOptions& options, std::vector<GroupPlan>& plans);
  std::size_t plan_new(const Request& r, std::size_t start, std::size_t new_end,
                       std::size_t slots_end, std::vector<GroupPlan>& plans) const;
  Status commit(Request& r, std::vector<GroupPlan>& plans, std::size_t num_blocks);
  Status start_load(Request& r, const std::vector<GroupPlan>& plans);

  /// Full blocks within the first `length` tokens have content from now on, in a step that ends
  /// after `step_end` tokens.
  void cache_blocks(Request& r, std::size_t length, std::size_t step_end);
  void cache_block(Request& r, std::uint32_t group, std::size_t i);
  /// Caches, and tells the host tier of, what is computed, unless a load is under way.
  void cache_computed(Request& r);
  void release_unseen(Request& r);
  /// For good, or to start again.
  void let_go(Request& r, bool finished);
  void load_ended(std::uint64_t load, bool arrived);
  void make_tiers();
  /// nullptr: no store is attached.
  StoreLink* store() const { return tiers ? tiers->engine.store() : nullptr; }

  // For the hazard policy.
  void make_hazard();
  /// Block i of a group will have content; `before` is the block before it, if that is known.
  void note_position(const Request& r, std::uint32_t group, std::size_t i, PageId block,
                     PageId before);
  /// A block with the content of block i; the null block if there is none.
  PageId cached_block(const Request& r, std::uint32_t group, std::size_t i) const;
  std::size_t blocks_in(const Request& r, std::uint32_t group, std::size_t num_tokens) const;
  /// Leading blocks that are cached, or have gone lately.
  std::size_t count_seen(const Request& r, std::size_t hit_tokens) const;
  struct Access {
    std::size_t num_new = 0;  // units of the request that had not been seen before
    bool is_last = false;     // among the request's last
    bool finished = false;
  };
  /// A request lets go of its blocks.
  void observe(Request& r, bool finished);
  std::optional<std::uint64_t> unit_name(const Request& r, std::size_t i) const;
  void observe_block(const Request& r, std::uint32_t group, std::size_t i, const Access& access);

  // Events.
  struct Origin {
    std::shared_ptr<const std::string> ns;
    std::optional<PageHash> parent;
    std::vector<ExtraKey> extra;
  };
  void note_origin(const Request& r, std::uint32_t group, std::size_t i, PageId block);
  void record_stored(Tier tier, const BlockContent& content, const Origin& origin);
  void record_removed(Tier tier, const BlockContent& content);

  BlockCacheOptions options;
  BlockHasher hasher;
  std::size_t unit;
  Agreement ranks;
  bool discarding = false;  // what is forgotten now is not worth saving
  std::optional<EventLog> events;
  std::vector<Origin> origins;           // by block; with events
  std::unique_ptr<HazardBlocks> hazard;  // if that is the policy; the pool and the host ask it
  std::unique_ptr<BlockPool> pool;
  std::unique_ptr<HostBlocks> host;  // with a host tier, as the next
  std::unique_ptr<BlockTiers> tiers;
  std::optional<HitSearch> search;
  std::vector<Request*> running;
  std::map<std::uint64_t, Request*> loads;  // under way; nullptr: its request has gone
  std::size_t num_requests = 0;             // alive, with blocks or not
  BlockCacheStats stats;
  std::vector<PageId> scratch;
  std::vector<std::int64_t> poll_values;
};

}  // namespace pando
