// SPDX-License-Identifier: Apache-2.0
// The families and series behind Metrics. Series whose labels are known are made at once, so that a
// fact costs one atomic addition and a scrape shows zeros; those of errors and tenants when they
// first come. metrics.cc counts facts, metrics_collect.cc takes over totals.
//
// Series are thread-safe; the tables that find them belong to the thread of the cache.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pando/metrics.h"

namespace pando {

inline constexpr MatchEnd kMatchEnds[] = {MatchEnd::whole_key,     MatchEnd::no_such_child,
                                          MatchEnd::page_boundary, MatchEnd::namespace_unknown,
                                          MatchEnd::window_gone,   MatchEnd::no_snapshot,
                                          MatchEnd::disabled};
inline constexpr LoadOutcome kLoadOutcomes[] = {
    LoadOutcome::loaded,     LoadOutcome::nothing_to_load, LoadOutcome::below_threshold,
    LoadOutcome::over_quota, LoadOutcome::recompute,       LoadOutcome::no_room};
inline constexpr PrefetchOutcome kPrefetchOutcomes[] = {
    PrefetchOutcome::started, PrefetchOutcome::no_store, PrefetchOutcome::nothing_to_fetch,
    PrefetchOutcome::below_threshold, PrefetchOutcome::rate_limited};

/// A counter that follows a total which may begin anew at 0.
class Mirror {
 public:
  explicit Mirror(prometheus::Counter& counter) : counter_(&counter) {}
  void follow(std::uint64_t total) {
    counter_->Increment(static_cast<double>(total >= last_ ? total - last_ : total));
    last_ = total;
  }
  /// The total has begun anew.
  void start_over() { last_ = 0; }

 private:
  prometheus::Counter* counter_;
  std::uint64_t last_ = 0;
};

/// Makes families in a registry, and series in families.
class SeriesMaker {
 public:
  SeriesMaker(prometheus::Registry& registry, const prometheus::Labels& labels)
      : registry_(registry), labels_(labels) {}

  prometheus::Family<prometheus::Counter>& counters(const std::string& name,
                                                    const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_);
  }
  prometheus::Family<prometheus::Gauge>& gauges(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_);
  }
  prometheus::Family<prometheus::Histogram>& histograms(const std::string& name,
                                                        const std::string& help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels_).Register(registry_);
  }
  prometheus::Counter& counter(const std::string& name, const std::string& help) {
    return counters(name, help).Add({});
  }
  prometheus::Gauge& gauge(const std::string& name, const std::string& help) {
    return gauges(name, help).Add({});
  }

 private:
  prometheus::Registry& registry_;
  prometheus::Labels labels_;
};

/// Sizes and totals that collect() takes over.
class CollectedSeries {
 public:
  explicit CollectedSeries(SeriesMaker make);
  void take(const PrefixCache& cache);
  void take(const BlockCache& cache);
  void note_reset() { was_reset_ = true; }

 private:
  struct SizeGauges {
    prometheus::Gauge* evictable = nullptr;
    prometheus::Gauge* held = nullptr;
    void set(const Sizes& sizes) const;
  };
  void take(const TierStats& stats);
  void take(const StoreStats& stats);

  std::array<SizeGauges, 3> device_;  // by component
  std::array<SizeGauges, 3> host_;
  prometheus::Gauge* device_capacity_ = nullptr;
  prometheus::Gauge* host_capacity_ = nullptr;
  prometheus::Gauge* nodes_;
  std::vector<Mirror> tier_totals_;
  std::vector<prometheus::Gauge*> tier_rates_;
  std::vector<Mirror> store_totals_;
  std::vector<prometheus::Gauge*> store_levels_;
  std::vector<Mirror> block_totals_;
  bool was_reset_ = false;
};

struct Metrics::Impl {
  explicit Impl(const MetricsOptions& opts);

  struct Tenant {
    prometheus::Counter *device, *host, *missed, *inserted;
  };
  Tenant& tenant_of(std::string_view ns);

  using Counter = prometheus::Counter;
  struct Evictions {
    Counter *tokens, *window_tokens, *snapshots, *nodes;
  };

  const MetricsOptions options;
  const std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  SeriesMaker make;
  std::array<prometheus::Histogram*, kNumCacheCalls> durations = {};
  prometheus::Family<Counter>* errors;
  std::map<std::pair<CacheCall, ErrorCode>, Counter*> errors_of;
  std::array<Counter*, std::size(kMatchEnds)> lookups = {};
  std::array<Counter*, std::size(kMatchEnds)> missed = {};
  Counter *device_hits, *host_hits;
  Counter *new_tokens, *duplicate_tokens, *revived_tokens;
  Evictions device_evictions = {}, host_evictions = {};
  Counter* demoted_tokens;
  std::array<Counter*, std::size(kLoadOutcomes)> loads = {};
  Counter* loaded_tokens;
  std::array<Counter*, std::size(kPrefetchOutcomes)> prefetches = {};
  Counter* prefetched_tokens;
  Counter *backups, *loads_done, *stores, *failures;
  Counter *prompt_tokens, *output_tokens;
  prometheus::Histogram* request_duration;
  prometheus::Family<Counter>*tenant_lookups = nullptr, *tenant_inserts = nullptr;
  std::map<std::string, Tenant, std::less<>> tenants;
  CollectedSeries collected;

  std::mutex serving;  // of the next
  std::unique_ptr<prometheus::Exposer> exposer;
};

}  // namespace pando
