// SPDX-License-Identifier: Apache-2.0
// Why a request of a trace hit or missed: replays everything before it through a cache that
// remembers what it evicts, and asks the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pando/inspect.h"
#include "replay/replayer.h"

namespace pando {

/// Blocks of a request's input, and what was found of them. Where a block has several findings,
/// that of its first token that is not cached.
struct BlockStory {
  std::size_t from = 0, to = 0;
  Finding finding = Finding::never_seen;  ///< why they are, or are not, cached
  bool from_store = false;                ///< of on_host: the store has them
  bool beyond_device = false;             ///< longer than the device: not looked at
  /// How they were lost; its at_match is the request, from 1.
  std::optional<Eviction> eviction = {};
  std::string ns = {};  ///< the namespace that has them instead
};

/// Why a request of a trace hit or missed.
struct RequestStory {
  std::uint64_t request = 0;       ///< its number, from 1
  double arrival_s = 0;            ///< when it came, in seconds of the trace
  std::string session;             ///< empty if the trace has none
  std::size_t input_length = 0;    ///< tokens of its input
  std::size_t num_blocks = 0;      ///< blocks of its input
  std::vector<BlockStory> blocks;  ///< what was found of them, from the first on
  std::size_t tail_tokens = 0;     ///< tokens at the end, shorter than a page: never cached
  bool forgetful = false;  ///< what the cache remembered of evictions was full: some are not known
};

/// Serial, whatever the options say of the mode. An error if the trace ends before the request.
Result<RequestStory> explain_request(Trace& trace, const ReplayOptions& options,
                                     std::uint64_t request,
                                     const std::function<void(std::uint64_t)>& progress = {});

}  // namespace pando
