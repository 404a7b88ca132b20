// SPDX-License-Identifier: Apache-2.0
// One request of a trace through a cache, as an engine would take it: fetch from the store, match,
// hold, load back, make room, compute, insert, finish. Times each call, counts what was found
// where, and why the rest was not. Serial and timed replays differ in when they call what.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "replay/block_sample.h"
#include "replay/block_tokens.h"
#include "replay/cache_stack.h"
#include "replay/kv_rows.h"
#include "replay/replay_results.h"
#include "replay/replayer.h"
#include "replay/trace.h"

namespace pando {

/// A request on its way. Memory is kept from one to the next.
struct RunningRequest {
  TraceRequest trace;
  BlockTokens expander;
  Key key;  ///< of the input
  Request request;
  std::size_t input_tokens = 0;  ///< of the key: whole blocks, at most what the device can hold
};

class RequestRunner {
 public:
  /// Writes to `results`. All must outlive it.
  RequestRunner(CacheStack& stack, const ReplayOptions& options, ReplayResults& results);

  /// Until everything is in place to compute what is missing, with room for `extra_tokens` behind
  /// the input. False: there is no room now; nothing is held.
  Result<bool> begin(RunningRequest& running, std::size_t extra_tokens);
  /// The input is computed: the tree gets it, and the request goes on.
  Status insert(RunningRequest& running);
  /// The request is done. What is not in the tree yet and part of the input goes there.
  Status finish(RunningRequest& running, bool insert);

  /// What a request is looked up by: its input, as much of it as the device can hold.
  Key key_of(RunningRequest& running) const;
  /// Brings what the store has of a key to the host, and waits for it. Tokens that came.
  Result<std::size_t> fetch(const Key& key);
  std::vector<SeriesPoint> take_series() { return series_.take(); }

 private:
  /// Tokens of the input by where they were found.
  struct Found {
    PerTier<std::size_t> tokens = {};
    std::size_t agreed = 0;  ///< tokens that the tree has, usable or not
    std::size_t sum() const { return tokens.values[0] + tokens.values[1] + tokens.values[2]; }
  };

  template <typename Call>
  auto timed(Operation operation, Call&& call);
  Result<Found> find(RunningRequest& running, SessionId session);
  Status grow(RunningRequest& running, std::size_t length);
  Status verify(const RunningRequest& running);
  void compute(const RunningRequest& running, std::size_t from, std::size_t to);
  void count(const RunningRequest& running, const Found& found);
  void count_misses(const RunningRequest& running, const Found& found, std::size_t hit_blocks);
  void sample(const TraceRequest& trace, const PerTier<std::uint64_t>& hit_blocks);
  Result<SessionId> declare_session(const RunningRequest& running);
  Status end_session(const RunningRequest& running);

  CacheStack& stack_;
  PrefixCache& cache_;
  const ReplayOptions& options_;
  const std::size_t block_tokens_;
  const bool namespace_per_session_;
  ReplayResults& results_;
  struct OpenSession {
    SessionId id = {};
    std::uint64_t requests_left = 0;
  };
  std::unordered_map<std::string, OpenSession> sessions_;
  ReplaySeries series_;
  PerTier<std::uint64_t> evicted_before_;
  BlockSample seen_, seen_in_namespace_;
  std::unique_ptr<KvRows> rows_, window_rows_;  // with real bytes
  std::vector<SlotId> window_slots_;
};

}  // namespace pando
