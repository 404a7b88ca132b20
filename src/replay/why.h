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

/// Blocks [from, to) of the request's input. Where a block has several findings, that of its first
/// token that is not cached.
struct BlockStory {
  std::size_t from = 0, to = 0;
  Finding finding = Finding::never_seen;
  bool from_store = false;                ///< of on_host: the store has it
  bool beyond_device = false;             ///< longer than the device: not looked at
  std::optional<Eviction> eviction = {};  ///< at_match: the request, from 1
  std::string ns = {};
};

struct RequestStory {
  std::uint64_t request = 0;  ///< from 1
  double arrival_s = 0;
  std::string session;
  std::size_t input_length = 0;
  std::size_t num_blocks = 0;
  std::vector<BlockStory> blocks;
  std::size_t tail_tokens = 0;  ///< at the end, shorter than a page: never cached
  bool forgetful = false;
};

/// Serial, whatever the options say of the mode. An error if the trace ends before the request.
Result<RequestStory> explain_request(Trace& trace, const ReplayOptions& options,
                                     std::uint64_t request,
                                     const std::function<void(std::uint64_t)>& progress = {});

}  // namespace pando
