// SPDX-License-Identifier: Apache-2.0
// An observer that keeps what it is told: calls in order, facts in sums.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pando/observer.h"

namespace pando::testing {

struct TallyObserver : CacheObserver {
  void on_call(const CallInfo& info) override {
    calls.push_back(std::string(to_string(info.call)) + (info.error ? "!" : ""));
    took += info.took;
  }
  void on_match(const Key& key, const Match& found) override {
    ++matches;
    asked += key.tokens.size();
    device_hits += found.length;
    host_hits += found.host_length;
    last_end = found.end;
  }
  void on_insert(const Key&, const Inserted& inserted) override {
    ++inserts;
    stats.inserted_tokens += inserted.length - inserted.existing;
    stats.duplicate_tokens += inserted.freed;
    stats.revived_tokens += inserted.revived;
  }
  void on_evict(Tier from, const EvictResult& evicted) override {
    ++evictions;
    if (from == Tier::host) {
      tier.host_evicted_tokens += evicted.tokens;
      return;
    }
    stats.evicted_tokens += evicted.tokens;
    stats.evicted_nodes += evicted.nodes;
    stats.evicted_window_tokens += evicted.window_tokens;
    stats.evicted_snapshots += evicted.snapshots;
    tier.demoted_tokens += evicted.demoted_tokens;
  }
  void on_load_back(const LoadBack& loaded) override { tier.loaded_tokens += loaded.tokens; }
  void on_prefetch(const Key&, const Prefetch& prefetch) override {
    if (prefetch.outcome == PrefetchOutcome::started) ++tier.prefetches;
  }
  void on_prefetched(std::size_t tokens) override { tier.prefetched_tokens += tokens; }
  void on_poll(const PollResult& result) override {
    polled.backups += result.backups;
    polled.loads += result.loads;
    polled.stored += result.stored;
    polled.failures += result.failures;
  }
  void on_finish(const FinishedRequest& request) override {
    ++finished;
    prompts += request.prompt_length;
    outputs += request.key.tokens.size() - request.prompt_length;
  }

  std::vector<std::string> calls;  ///< "!" behind those that failed
  std::chrono::nanoseconds took{0};
  std::size_t matches = 0, asked = 0, device_hits = 0, host_hits = 0, inserts = 0, evictions = 0;
  std::size_t finished = 0, prompts = 0, outputs = 0;
  MatchEnd last_end = MatchEnd::disabled;
  CacheStats stats;
  TierStats tier;
  PollResult polled;
};

}  // namespace pando::testing
