// SPDX-License-Identifier: Apache-2.0
// Replays a trace: one request after the other (deterministic: same trace, same options, same
// results), or timed, where requests arrive when the trace says, run side by side, and hold their
// leases while a model of an engine computes.
//
// The engine of a timed replay computes one prompt at a time at `prefill_tokens_per_s`, and answers
// of all running requests at `decode_tokens_per_s` each. A request waits in order of arrival until
// fewer than `max_running` run and there is room. Time is simulated: nothing sleeps.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include "replay/cache_stack.h"
#include "replay/replay_results.h"
#include "replay/trace.h"

namespace pando {

enum class ReplayMode { serial, timed };

struct ServiceModel {
  double prefill_tokens_per_s = 20'000;
  double decode_tokens_per_s = 50;
  std::size_t max_running = 64;
  double speed = 1;  ///< requests arrive so many times as fast

  Status validate() const;
};

struct ReplayOptions {
  StackOptions stack;
  ReplayMode mode = ReplayMode::serial;
  ServiceModel service;
  bool namespace_per_session = false;
  /// Requests of each session: declared to the cache, and closed after the last. Empty: none.
  std::unordered_map<std::string, std::uint64_t> sessions = {};
  /// So many tokens into a prompt, attention costs as much as all the rest; for
  /// ReplayResults::cost.
  std::optional<double> attention_tokens = {};
  std::size_t block_tokens = 0;
  std::size_t token_bytes = 0;  ///< of the model, to tell what was moved; 0: unknown
  /// Run cache.check() after so many requests; 0: never. O(tree) each time.
  std::size_t check_every = 0;

  Status validate() const;
};

/// Called after every request with what there is so far; false ends the replay early.
using ReplayProgress = std::function<bool(const ReplayResults&)>;

/// The trace is read to its end. An error if the cache refuses the options, the trace is damaged,
/// or bytes come back wrong.
Result<ReplayResults> replay(Trace& trace, const ReplayOptions& options,
                             const ReplayProgress& progress = {});

}  // namespace pando
