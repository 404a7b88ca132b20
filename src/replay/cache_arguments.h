// SPDX-License-Identifier: Apache-2.0
// Which cache a trace is sent through, as people say it on a command line or from Python: in
// tokens, bytes of a model, blocks or shares of the trace; and what that comes to once trace and
// model are known.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "pando/result.h"
#include "replay/capacity.h"
#include "replay/replayer.h"
#include "replay/survey.h"

namespace pando {

struct CacheArguments {
  std::optional<std::size_t> page;  ///< unless given: a block of the trace, or 16 tokens
  std::optional<Capacity> device, host, store;
  std::string store_at = "memory";
  std::string model;  ///< a name or a path; empty: none
  std::string policy = "lru";
  std::string write_policy = "write_through";
  std::optional<std::size_t> window;
  double window_share = StackOptions{}.window_share;
  std::string namespaces = "none";  ///< what shares nothing: "none", or each "session"
  bool bytes = false;               ///< real KV bytes; of a tiny model unless one is given
  bool sessions = false;            ///< declared to the cache, and closed after their last request
  /// So many tokens into a prompt, attention costs as much as all the rest.
  std::optional<double> attention_tokens = {};
  bool cost_aware = false;  ///< the policy is to weigh hits by that
};

/// Whether resolve() has to be told what a pass over the trace finds.
bool needs_survey(const CacheArguments& arguments);

/// Everything in tokens.
Result<ReplayOptions> resolve(const CacheArguments& arguments, const PeekedTrace& trace,
                              std::optional<Survey> survey);

}  // namespace pando
