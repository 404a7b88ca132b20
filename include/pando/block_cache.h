// SPDX-License-Identifier: Apache-2.0
// BlockCache: prefix reuse for engines that address KV by blocks and find prefixes by chained
// hashes of their contents, as vLLM does. No tree: a block is found on its own, by a hash of
// everything before it. PrefixCache (cache.h) is the other way to hold prefixes.
//
// Life of a request, in PrefixCache's words: start (hashes the prompt) -> match -> allocate (holds
// what was found, and room for what is computed next) -> forward -> checkpoint; then append,
// allocate, checkpoint for each further step; finish at the end, or preempt and match again.
//
// Layers form groups, each with a block size and a rule about which blocks it needs to go on behind
// a prefix. A hit is the longest prefix on which all groups agree.
//
// A cache belongs to one thread. Bad input is refused and changes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/block_pool.h"
#include "pando/events.h"
#include "pando/result.h"
#include "pando/tiers.h"
#include "pando/types.h"

namespace pando {

class CacheObserver;
class Ranks;

/// Which blocks layers need to compute the token at position n.
enum class GroupKind {
  full,            ///< all before it
  sliding_window,  ///< those with the last span - 1 tokens
  chunked_local,   ///< those of its chunk: chunks are `span` tokens from the start on
  recurrent,       ///< the last one: it holds the state at its end
};
std::string_view to_string(GroupKind kind);

struct BlockGroup {
  GroupKind kind = GroupKind::full;
  std::size_t block_size = 16;  ///< tokens
  std::size_t span = 0;         ///< of a window or chunk: tokens
  /// Recurrent: the engine leaves the state at the end of every block, not only where a step ends.
  bool every_state = false;
  /// With a host tier: the bytes of the group's layers. Block b is page b of the device pool.
  TierPools pools = {};
};

/// What the device forgets goes on in host memory.
struct BlockHostOptions {
  Copier* copier = nullptr;  ///< must outlive the cache, as the pools of the groups
  WritePolicy write_policy = WritePolicy::write_through_selective;
  /// Fewer tokens are sooner computed than loaded.
  std::size_t load_back_threshold = 10;
  /// Turns down loads and fetches that take longer than computing; needs report_prefill().
  std::optional<CostGateOptions> cost_gate = {};
  std::size_t backup_stream = 0;  ///< of the copier
  std::size_t load_stream = 1;
};

struct BlockCacheOptions {
  std::size_t num_blocks = 0;  ///< of all groups, the null block among them
  /// Which blocks go first: "lru", in vLLM's order, or "hazard", which learns from the requests
  /// that have finished when prefixes come back (docs/tuning.md). Of full attention it evicts from
  /// the ends of prefixes only.
  std::string policy = "lru";
  std::vector<BlockGroup> groups = {BlockGroup{}};
  BlockHashOptions hash = {};
  bool caching = true;      ///< else every request is computed from its start
  bool keep_tokens = true;  ///< see BlockPoolOptions, as the next
  bool deduplicate = false;
  bool events = false;  ///< record KV events
  /// A hit leaves out the last block (of every group) that it could have, for drafters that need
  /// its hidden states (EAGLE).
  bool recompute_last_block = false;
  std::size_t max_tokens = SIZE_MAX;  ///< that a request may have, lookahead included
  std::optional<BlockHostOptions> host = {};
  /// Told of calls and what came of them (observer.h). Must outlive the cache.
  CacheObserver* observer = nullptr;
  /// Those who mirror this cache, making the same calls in the same order: what depends on timing
  /// or room is agreed on with them (docs/design.md). Must outlive the cache. None: it is alone.
  /// With a host tier, not with the policy "hazard", which draws pages by their numbers.
  Ranks* ranks = nullptr;

  Status validate() const;
};

class BlockCache;

/// A request as the cache sees it: its tokens, their hashes, its blocks. Frees them when it goes.
/// Move-only; must not outlive its cache.
class BlockRequest {
 public:
  BlockRequest(BlockRequest&& other) noexcept;
  BlockRequest& operator=(BlockRequest&& other) noexcept;
  ~BlockRequest();

  /// Whether it holds blocks: from allocate() until finish() or preempt().
  bool is_running() const;
  std::span<const Token> tokens() const;
  /// More tokens, as they are sampled; hashes only blocks that become full. Refused if one of them
  /// is negative.
  Status append(std::span<const Token> tokens);
  Status append(Token token) { return append({&token, 1}); }
  /// Of all whole blocks of the smallest size that divides those of the groups.
  std::span<const BlockHash> hashes() const;
  const RequestKeys& keys() const;
  /// One per block_size tokens; the null block where the group needs none (any more).
  std::span<const PageId> blocks(std::size_t group = 0) const;
  /// Tokens whose KV is in place, see BlockCache::checkpoint.
  std::size_t num_computed() const;
  /// A load from the host failed: what the request has computed is not to be trusted. It must be
  /// preempted or finished; its blocks will not be found.
  bool is_broken() const;

 private:
  friend class BlockCache;
  struct Impl;
  explicit BlockRequest(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What match() found: blocks that nobody may hold, so use it before the next call that takes
/// blocks.
struct BlockMatch {
  std::size_t length = 0;       ///< tokens on the device
  std::size_t host_length = 0;  ///< so many more if allocate() loads them from the host
  std::vector<std::vector<PageId>> blocks = {};  ///< of `length`, by group
};

struct AllocateOptions {
  /// For a request without blocks: what match() found is where it starts.
  const BlockMatch* match = nullptr;
  bool load_back = true;  ///< also its host part; the pools' gates are set
  /// Further tokens that a drafter may write to; they are not cached.
  std::size_t lookahead_tokens = 0;
  /// Full blocks are found by others when checkpoint() has passed them, not at once. At once is
  /// right where one forward pass writes what another request of the same batch reads, layer by
  /// layer.
  bool delay_caching = false;
};

/// Totals since creation, in tokens unless said otherwise.
struct BlockCacheStats {
  std::uint64_t queries = 0;  ///< calls of match()
  std::uint64_t queried_tokens = 0;
  std::uint64_t hit_tokens = 0;  ///< on the device
  std::uint64_t host_hit_tokens = 0;
  std::uint64_t cached_blocks = 0;   ///< blocks
  std::uint64_t evicted_blocks = 0;  ///< blocks that lost their content
  std::uint64_t preemptions = 0;
};

class BlockCache {
 public:
  static Result<std::unique_ptr<BlockCache>> create(const BlockCacheOptions& options);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  Result<BlockRequest> start(std::span<const Token> tokens, RequestKeys keys = {});

  /// The longest cached prefix that leaves at least one token to compute. Changes nothing but what
  /// a cost gate counts.
  BlockMatch match(const BlockRequest& request);

  /// Blocks for the next `num_new_tokens` behind those computed. All or nothing.
  Status allocate(BlockRequest& request, std::size_t num_new_tokens,
                  const AllocateOptions& options = {});
  /// The KV of the first `num_computed` tokens is in place. Blocks that no token to come can see
  /// are let go of, and full ones go on to lower tiers. May go back behind drafts that were
  /// rejected, but not behind what is cached.
  Status checkpoint(BlockRequest& request, std::size_t num_computed);
  /// Lets go of all blocks, the last first. Blocks that no checkpoint() has passed are forgotten.
  void finish(BlockRequest& request);
  /// The same for a request that will start again: it keeps tokens and hashes.
  void preempt(BlockRequest& request);

  /// What these blocks contain is wrong, as after a load of the engine's own that failed: they are
  /// not found any more; whoever holds them goes on. Copies that lower tiers have made since
  /// checkpoint() passed them stay, so say it before.
  void forget(std::span<const PageId> blocks);

  /// By group: blocks from the start that all requests with blocks share, `any` among them. 0 for
  /// groups that are not full attention.
  std::vector<std::size_t> common_prefix_blocks(const BlockRequest& any) const;

  /// Forgets everything on the device and the host. Refused while blocks are held.
  Status reset();

  // Between tiers: see tiers.h.
  PollResult poll();
  /// Begins to bring blocks of the request that neither device nor host have from the store to the
  /// host, as many as a hit can use.
  Result<Prefetch> prefetch(const BlockRequest& request);
  bool prefetch_ready(PrefetchId id) const;
  /// Keeps what has arrived, gives up the rest. Returns the tokens that the host has more: once.
  /// They are those of the group that has got the most, its new blocks times their size, wherever
  /// in the prompt they are.
  std::size_t end_prefetch(PrefetchId id);
  /// Gives up all of it: the request goes away.
  void abort_prefetch(PrefetchId id);
  /// Host memory and the store behind it.
  Tiers& tiers();
  const Tiers& tiers() const;

  const BlockCacheOptions& options() const;
  const BlockHasher& hasher() const;
  const BlockPool& pool() const;
  Sizes sizes(std::size_t group = 0) const;
  Sizes host_sizes(std::size_t group = 0) const;
  double usage() const;
  BlockCacheStats stats() const;
  std::size_t num_requests() const;  ///< that have blocks
  std::size_t memory_bytes() const;
  /// Proves that every block's holders are the requests, copies and loads that there are. O(all).
  Status check() const;
  std::vector<KvEvent> take_events();

 private:
  friend class BlockRequest;
  struct Impl;
  explicit BlockCache(std::unique_ptr<Impl> impl);
  /// Stops at a check unless the request is one of this cache's.
  BlockRequest::Impl& own(const BlockRequest& request) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
