// SPDX-License-Identifier: Apache-2.0
// What Metrics takes over from a cache by collect(): sizes as gauges, and those totals that no
// observer is told of. One row of a table each.
#include <iterator>
#include <utility>

#include "observe/metrics_impl.h"
#include "pando/inspect.h"

namespace pando {
namespace {

template <typename Stats, typename T>
struct Row {
  const char* name;
  const char* help;
  T Stats::*value;
};

constexpr Row<TierStats, std::uint64_t> kTierTotals[] = {
    {"pando_backed_up_tokens_total", "Tokens copied to the host", &TierStats::backed_up_tokens},
    {"pando_refused_backups_total", "Nodes for which the host had no room",
     &TierStats::refused_backups},
    {"pando_failed_backups_total", "Copies to the host that failed", &TierStats::failed_backups},
    {"pando_failed_loads_total", "Loads from the host that failed", &TierStats::failed_loads},
    {"pando_recomputed_tokens_total", "Tokens inserted over a host copy",
     &TierStats::recomputed_tokens},
    {"pando_stored_tokens_total", "Tokens given to the store", &TierStats::stored_tokens},
    {"pando_failed_puts_total", "Pages that the store did not take", &TierStats::failed_puts},
    {"pando_prefetch_hit_tokens_total", "Tokens that the store said it had",
     &TierStats::prefetch_hit_tokens},
    {"pando_revoked_prefetches_total", "Prefetches without anything worth fetching, or room",
     &TierStats::revoked_prefetches},
    {"pando_gated_loads_total", "Loads that the cost gate turned down", &TierStats::gated_loads},
    {"pando_gated_prefetches_total", "Prefetches that the cost gate turned down",
     &TierStats::gated_prefetches},
    {"pando_gate_probes_total", "Loads and fetches that the cost gate let pass to measure again",
     &TierStats::gate_probes},
};

constexpr Row<TierStats, double> kTierRates[] = {
    {"pando_load_bytes_per_second", "Host to device, measured lately",
     &TierStats::load_bytes_per_second},
    {"pando_fetch_bytes_per_second", "Store to host, measured lately",
     &TierStats::fetch_bytes_per_second},
    {"pando_prefill_tokens_per_second", "Computing, as the engine reported lately",
     &TierStats::prefill_tokens_per_second},
};

constexpr Row<StoreStats, std::uint64_t> kStoreTotals[] = {
    {"pando_store_read_pages_total", "Pages read from the store", &StoreStats::read_pages},
    {"pando_store_read_bytes_total", "Bytes read from the store", &StoreStats::read_bytes},
    {"pando_store_written_pages_total", "Pages written to the store", &StoreStats::written_pages},
    {"pando_store_written_bytes_total", "Bytes written to the store", &StoreStats::written_bytes},
    {"pando_store_missing_pages_total", "Pages asked for that the store did not have",
     &StoreStats::missing_pages},
    {"pando_store_damaged_pages_total", "Pages that were not what was put",
     &StoreStats::damaged_pages},
    {"pando_store_failed_pages_total", "Pages that the store could not read or write",
     &StoreStats::failed_pages},
    {"pando_store_timed_out_calls_total", "Calls of the store past their deadline",
     &StoreStats::timed_out_calls},
    {"pando_store_cancelled_calls_total", "Calls of the store that were called off",
     &StoreStats::cancelled_calls},
    {"pando_store_refused_calls_total", "Calls for which the store's queue had no room",
     &StoreStats::refused_calls},
    {"pando_store_read_nanoseconds_total", "Time inside reads of the store", &StoreStats::read_ns},
    {"pando_store_write_nanoseconds_total", "Time inside writes of the store",
     &StoreStats::write_ns},
};

constexpr Row<StoreStats, std::uint64_t> kStoreLevels[] = {
    {"pando_store_pending_read_pages", "Pages of reads that wait or run",
     &StoreStats::pending_read_pages},
    {"pando_store_pending_write_pages", "Pages of writes that wait or run",
     &StoreStats::pending_write_pages},
};

constexpr Row<BackendStats, std::uint64_t> kBackendLevels[] = {
    {"pando_store_pages", "Pages in the store, as far as it knows", &BackendStats::num_pages},
    {"pando_store_bytes", "Bytes in the store, as far as it knows", &BackendStats::size_bytes},
    {"pando_store_capacity_bytes", "Bytes that the store may hold; 0 without a limit",
     &BackendStats::capacity_bytes},
};

constexpr Row<BackendStats, std::uint64_t> kBackendTotals[] = {
    {"pando_store_evicted_pages_total", "Pages evicted to stay within the store's capacity",
     &BackendStats::evicted_pages},
    {"pando_store_reconnects_total", "Connections to servers made again",
     &BackendStats::reconnects},
};

constexpr Row<BlockCacheStats, std::uint64_t> kBlockTotals[] = {
    {"pando_blocks_cached_total", "Blocks that got content (BlockCache)",
     &BlockCacheStats::cached_blocks},
    {"pando_blocks_evicted_total", "Blocks that lost their content (BlockCache)",
     &BlockCacheStats::evicted_blocks},
    {"pando_preemptions_total", "Requests preempted (BlockCache)", &BlockCacheStats::preemptions},
};

template <typename Rows>
void add_mirrors(SeriesMaker& make, const Rows& rows, std::vector<Mirror>& out) {
  for (const auto& row : rows) out.emplace_back(make.counter(row.name, row.help));
}
template <typename Rows>
void add_gauges(SeriesMaker& make, const Rows& rows, std::vector<prometheus::Gauge*>& out) {
  for (const auto& row : rows) out.push_back(&make.gauge(row.name, row.help));
}
template <typename Rows, typename Stats>
void follow(const Rows& rows, const Stats& stats, Mirror* mirrors) {
  for (std::size_t i = 0; i < std::size(rows); ++i) mirrors[i].follow(stats.*rows[i].value);
}
template <typename Rows, typename Stats>
void set(const Rows& rows, const Stats& stats, prometheus::Gauge* const* gauges) {
  for (std::size_t i = 0; i < std::size(rows); ++i)
    gauges[i]->Set(static_cast<double>(stats.*rows[i].value));
}

constexpr ComponentKind kKinds[] = {ComponentKind::full, ComponentKind::window,
                                    ComponentKind::state};

}  // namespace

CollectedSeries::CollectedSeries(SeriesMaker make) {
  auto& tokens = make.gauges("pando_cached_tokens", "Tokens that a tier holds");
  auto& snapshots = make.gauges("pando_cached_snapshots", "Snapshots of state that a tier holds");
  const auto add = [&](const char* tier, std::array<SizeGauges, 3>& out) {
    const char* names[] = {"full", "window"};
    for (std::size_t i = 0; i < 2; ++i) {
      out[i].evictable =
          &tokens.Add({{"tier", tier}, {"component", names[i]}, {"state", "evictable"}});
      out[i].held = &tokens.Add({{"tier", tier}, {"component", names[i]}, {"state", "held"}});
    }
    out[2].evictable = &snapshots.Add({{"tier", tier}, {"state", "evictable"}});
    out[2].held = &snapshots.Add({{"tier", tier}, {"state", "held"}});
  };
  add("device", device_);
  add("host", host_);
  auto& capacity = make.gauges("pando_capacity_tokens", "Tokens that a tier can hold; 0: unknown");
  device_capacity_ = &capacity.Add({{"tier", "device"}});
  host_capacity_ = &capacity.Add({{"tier", "host"}});
  nodes_ = &make.gauge("pando_tree_nodes", "Nodes of the tree");
  add_mirrors(make, kTierTotals, tier_totals_);
  add_gauges(make, kTierRates, tier_rates_);
  add_mirrors(make, kStoreTotals, store_totals_);
  add_mirrors(make, kBackendTotals, store_totals_);
  add_gauges(make, kStoreLevels, store_levels_);
  add_gauges(make, kBackendLevels, store_levels_);
  add_mirrors(make, kBlockTotals, block_totals_);
}

void CollectedSeries::SizeGauges::set(const Sizes& sizes) const {
  evictable->Set(static_cast<double>(sizes.evictable));
  held->Set(static_cast<double>(sizes.protected_tokens));
}

// A reset sets the totals of its tiers to 0; those of a BlockCache, and of a store, go on.
void CollectedSeries::take(const PrefixCache& cache) {
  if (std::exchange(was_reset_, false)) {
    for (Mirror& mirror : tier_totals_) mirror.start_over();
  }
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    device_[i].set(cache.inspect().sizes(kKinds[i]));
    host_[i].set(cache.inspect().host_sizes(kKinds[i]));
  }
  device_capacity_->Set(static_cast<double>(cache.inspect().capacity_tokens(Tier::device)));
  host_capacity_->Set(static_cast<double>(cache.inspect().capacity_tokens(Tier::host)));
  nodes_->Set(static_cast<double>(cache.inspect().num_nodes()));
  take(cache.tiers().stats());
  if (cache.tiers().has_storage()) take(cache.tiers().storage_stats());
}

// All groups count as one component.
void CollectedSeries::take(const BlockCache& cache) {
  Sizes device, host;
  for (std::size_t g = 0; g < cache.options().groups.size(); ++g) {
    for (const auto& [sum, part] :
         {std::pair{&device, cache.sizes(g)}, {&host, cache.host_sizes(g)}}) {
      sum->evictable += part.evictable;
      sum->protected_tokens += part.protected_tokens;
    }
  }
  device_[0].set(device);
  host_[0].set(host);
  follow(kBlockTotals, cache.stats(), block_totals_.data());
  take(cache.tiers().stats());
  if (cache.tiers().has_storage()) take(cache.tiers().storage_stats());
}

void CollectedSeries::take(const TierStats& stats) {
  follow(kTierTotals, stats, tier_totals_.data());
  set(kTierRates, stats, tier_rates_.data());
}

void CollectedSeries::take(const StoreStats& stats) {
  follow(kStoreTotals, stats, store_totals_.data());
  follow(kBackendTotals, stats.backend, store_totals_.data() + std::size(kStoreTotals));
  set(kStoreLevels, stats, store_levels_.data());
  set(kBackendLevels, stats.backend, store_levels_.data() + std::size(kStoreLevels));
}

}  // namespace pando
