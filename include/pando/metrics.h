// SPDX-License-Identifier: Apache-2.0
// Metrics of a cache for Prometheus: an observer that counts and times, and an HTTP endpoint to
// scrape them from. docs/metrics.md lists every name. Built as pando::metrics (PANDO_METRICS).
//
// One Metrics belongs to one cache: the cache tells it of calls and facts, and its owner's thread
// calls collect() once per step or so for sizes and for what the tiers count themselves. Scraping,
// text() and serve() may come from any thread, at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pando/block_cache.h"
#include "pando/observer.h"

namespace pando {

struct MetricsOptions {
  /// On every metric, such as {"rank", "0"}.
  std::vector<std::pair<std::string, std::string>> labels = {};
  /// Counters per tenant, for the first so many that come; all others together are "other".
  std::size_t max_tenants = 0;
  /// Whose a namespace is. Unless given: its tenant, where make_namespace made it; "none" without
  /// one; else the text itself. Salts and adapters are not shown.
  std::function<std::string(std::string_view ns)> tenant_of = {};

  Status validate() const;
};

struct MetricsAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any that is free
};

/// Metrics of one cache for Prometheus: an observer that counts and times. Call collect() once per
/// step or so. text() and serve() may come from any thread.
class Metrics final : public CacheObserver {
 public:
  static Result<std::unique_ptr<Metrics>> create(const MetricsOptions& options = {});
  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Answers GET /metrics at this address from now on. Returns the port that was taken. Once.
  Result<std::uint16_t> serve(const MetricsAddress& address = {});

  /// Takes over sizes and totals, on the thread of the cache. No loop over what is cached.
  void collect(const PrefixCache& cache);
  void collect(const BlockCache& cache);

  std::string text() const;  ///< what a scrape gives, as Prometheus reads it

  void on_call(const CallInfo& info) override;
  void on_match(const Key& asked, const Match& found) override;
  void on_insert(const Key& key, const Inserted& inserted) override;
  void on_evict(Tier from, const EvictResult& evicted) override;
  void on_load_back(const LoadBack& loaded) override;
  void on_prefetch(const Key& key, const Prefetch& prefetch) override;
  void on_prefetched(std::size_t tokens) override;
  void on_poll(const PollResult& result) override;
  void on_finish(const FinishedRequest& request) override;

 private:
  struct Impl;
  explicit Metrics(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
