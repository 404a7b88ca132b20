// SPDX-License-Identifier: Apache-2.0
// The tiers below the device, of PrefixCache and BlockCache alike: host memory, and a store behind
// it. What leaves the device stays in the index while its host copy does; load_back brings it back.
// What is on the host goes to the store too; prefetch brings it back to the host while a request
// waits. Those two are calls of the caches; what concerns no single request is in Tiers.
//
// Copies run on threads of the copier and report to poll(), on the thread of the cache. Until then
// the pages at both ends are held. A copy that fails is a miss and a counter, never a hit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "pando/copier.h"
#include "pando/key_space.h"
#include "pando/pools.h"
#include "pando/result.h"
#include "pando/store.h"

namespace pando {

class TierOwner;

/// When a node gets its host copy. Hits are inserts that pass through it, its own among them.
enum class WritePolicy {
  write_through,            ///< at the first hit
  write_through_selective,  ///< at the second
  write_back,               ///< when it is evicted from the device
};
std::string_view to_string(WritePolicy policy);
Result<WritePolicy> parse_write_policy(std::string_view name);

/// The bytes of one component on both tiers. Not owned.
struct TierPools {
  KvPool* device = nullptr;
  HostPool* host = nullptr;
};

/// Whether loading is worth it, by what loading and computing have been measured to take.
struct CostGateOptions {
  double max_ratio = 1.0;  ///< loads take at most so many times as long as computing
  /// One in so many is loaded without asking, to measure again. 0: none.
  std::size_t probe_every = 32;

  Status validate() const;
};

struct HostTierOptions {
  TierPools full = {};
  TierPools window = {};  ///< with a window component: of window slots
  TierPools state = {};   ///< with a state component: row_of() of state slots
  Copier* copier = nullptr;
  WritePolicy write_policy = WritePolicy::write_through_selective;
  /// Fewer tokens are sooner computed than loaded back.
  std::size_t load_back_threshold = 10;
  /// When the host is full, first give up copies of what is on the device anyway.
  bool reclaim_mirrors_first = false;
  /// Turns down loads and fetches that take longer than computing; needs report_prefill().
  std::optional<CostGateOptions> cost_gate = {};
  std::size_t backup_stream = 0;  ///< of the copier
  std::size_t load_stream = 1;
};

struct LoadBackOptions {
  /// At most so many device tokens, evicted ones included; else nothing is loaded.
  std::optional<std::size_t> quota_tokens = {};
  LoadOrder order = LoadOrder::by_layer;
};

enum class LoadOutcome {
  loaded,           ///< on its way: the pools' gates are set
  nothing_to_load,  ///< all that is cached is on the device
  below_threshold,
  over_quota,
  recompute,  ///< by the cost gate: computing it again is faster
  no_room,    ///< the device is full of what is in use
};
std::string_view to_string(LoadOutcome outcome);

struct LoadBack {
  LoadOutcome outcome = LoadOutcome::nothing_to_load;
  std::size_t tokens = 0;  ///< that the device has more
};

/// When a request that has pages on their way from the store may go on.
enum class PrefetchPolicy {
  best_effort,    ///< at any time: what has arrived by then is kept
  wait_complete,  ///< when all has arrived, or will not
  timeout,        ///< then, or after a time that grows with the number of pages
};
std::string_view to_string(PrefetchPolicy policy);
Result<PrefetchPolicy> parse_prefetch_policy(std::string_view name);

/// How prefetches behave. Options of the same names may be given with those of the store.
struct PrefetchOptions {
  PrefetchPolicy policy = PrefetchPolicy::best_effort;
  std::size_t threshold = 256;         ///< tokens; fewer are sooner computed
  double timeout_base = 1.0;           ///< seconds
  double timeout_per_ki_token = 0.25;  ///< seconds more for every 1024 tokens
  /// Host tokens that all prefetches together may occupy. Unless given: 0.8 of what the host has
  /// more than the device, or half of the host if it has not.
  std::optional<std::size_t> max_tokens = {};

  Status validate() const;
};

/// What attach_storage is told.
struct StorageOptions {
  std::string backend;       ///< the name of a registered store
  std::string options = {};  ///< of the store, and of prefetches: as Config::parse reads them
  StoreScope scope = {};     ///< whose pages they are
  StoreOptions queues = {};
  std::optional<std::string> prefetch_policy = {};
  std::optional<std::string> write_policy = {};
  /// For timeouts; the steady clock unless given.
  std::function<std::chrono::steady_clock::time_point()> now = {};
};

/// Names a prefetch. A default-constructed one names none.
struct PrefetchId {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend bool operator==(PrefetchId, PrefetchId) = default;
};

enum class PrefetchOutcome {
  started,
  no_store,
  nothing_to_fetch,  ///< all whole pages of the key are in the tree
  below_threshold,
  rate_limited,  ///< too much is being fetched already
};
std::string_view to_string(PrefetchOutcome outcome);

struct Prefetch {
  PrefetchOutcome outcome = PrefetchOutcome::no_store;
  PrefetchId id = {};  ///< only if started
};

/// What a poll() has applied.
struct PollResult {
  std::size_t backups = 0;  ///< copies to the host acknowledged
  std::size_t loads = 0;    ///< loads acknowledged
  std::size_t stored = 0;   ///< nodes whose pages the store has been given
  std::size_t failures = 0;
  bool idle = true;  ///< nothing is under way any more
  /// The ranks could not reach each other. What is under way stays so, nothing moves between tiers
  /// any more; the cache must be given up on every rank.
  bool ranks_lost = false;
};

/// What has been started between tiers and not yet been applied by poll().
struct UnderWay {
  std::size_t backups = 0;  ///< copies from the device to the host
  std::size_t loads = 0;    ///< copies from the host to the device
  std::size_t puts = 0;     ///< nodes whose pages go to the store
  std::size_t fetches =
      0;  ///< prefetches not ended, and ended ones that the store still writes for

  bool idle() const { return backups + loads + puts + fetches == 0; }
};

/// Totals since creation or reset(), in tokens unless said otherwise.
struct TierStats {
  std::uint64_t backed_up_tokens = 0;  ///< copied to the host
  std::uint64_t loaded_tokens = 0;     ///< copied back
  std::uint64_t demoted_tokens = 0;    ///< evicted from the device, still on the host
  std::uint64_t host_evicted_tokens = 0;
  std::uint64_t refused_backups = 0;  ///< nodes for which the host had no room
  std::uint64_t failed_backups = 0;   ///< copies that failed
  std::uint64_t failed_loads = 0;
  std::uint64_t recomputed_tokens = 0;  ///< inserted over a host copy

  std::uint64_t stored_tokens = 0;        ///< given to the store
  std::uint64_t failed_puts = 0;          ///< pages that the store did not take
  std::uint64_t prefetches = 0;           ///< started
  std::uint64_t prefetched_tokens = 0;    ///< that the host has got from the store
  std::uint64_t prefetch_hit_tokens = 0;  ///< that the store said it had
  std::uint64_t revoked_prefetches = 0;   ///< nothing worth fetching, or no room on the host

  std::uint64_t gated_loads = 0;       ///< calls that the cost gate turned down
  std::uint64_t gated_prefetches = 0;  ///< of those revoked, by the cost gate
  std::uint64_t gate_probes = 0;       ///< loads and fetches that it let pass to measure again
  // Measured lately; 0 if not yet.
  double load_bytes_per_second = 0;   ///< host to device, while copies run
  double fetch_bytes_per_second = 0;  ///< store to host, as requests wait for it
  double prefill_tokens_per_second = 0;
};

/// What an operator does with the tiers of a cache; PrefixCache::tiers() and BlockCache::tiers()
/// give it. A cache without a host tier has one too: it refuses a store, and its counts are 0.
class Tiers {
 public:
  /// Gives a cache with a host tier a store: what is on the host from now on goes there too. With
  /// the store that it has already, only policies change; another one is refused. The text says
  /// what was done. Nothing has changed if it fails.
  Result<std::string> attach_storage(const StorageOptions& options);
  /// Calls off what is under way, releases what it held, and lets go of the store. Without one this
  /// does nothing.
  Result<std::string> detach_storage();
  /// Removes every page from the store.
  Status clear_storage();
  bool has_storage() const;
  StoreStats storage_stats() const;

  /// Drops the least valuable of what is on the host only, in whole pages, until so many tokens
  /// have gone or what is left is in use. Returns the tokens. `group`: of a BlockCache; a tree's
  /// pages go with their windows and snapshots.
  std::size_t evict_host(std::size_t num_tokens, std::size_t group = 0);
  /// The engine has computed so many tokens of a prompt, behind `cached_tokens` of it, in so many
  /// seconds. For the cost gate, and for a policy that weighs hits by what they save.
  Status report_prefill(std::size_t num_tokens, double seconds, std::size_t cached_tokens = 0);

  TierStats stats() const;
  UnderWay under_way() const;

 private:
  friend class TierOwner;
  explicit Tiers(TierOwner& owner) : owner_(owner) {}
  TierOwner& owner_;
};

}  // namespace pando
