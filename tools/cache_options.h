// SPDX-License-Identifier: Apache-2.0
// Options that say which cache a trace is sent through, for replay and why, and what they come to
// once trace and model are known.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "replay/replayer.h"
#include "tools/options.h"

namespace pando::tools {

struct CacheArguments {
  std::optional<std::size_t> page;
  std::optional<Capacity> device, host, store;
  std::string store_at = "memory";
  std::string model;
  std::string policy = "lru";
  std::string write_policy = "write_through";
  std::optional<std::size_t> window;
  double window_share = StackOptions{}.window_share;
  std::string namespaces = "none";
  bool bytes = false;
};
void add_cache_options(CLI::App& app, CacheArguments& arguments);

/// Everything in tokens. Reads the trace once more where a capacity is a share of its blocks.
Result<ReplayOptions> resolve(const CacheArguments& arguments, const TraceArguments& trace,
                              const PeekedTrace& peeked, bool quiet);

}  // namespace pando::tools
