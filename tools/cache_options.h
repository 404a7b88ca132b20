// SPDX-License-Identifier: Apache-2.0
// Options that say which cache a trace is sent through, for replay and why.
#pragma once

#include <CLI/App.hpp>

#include "replay/cache_arguments.h"
#include "tools/options.h"

namespace pando::tools {

void add_cache_options(CLI::App& app, CacheArguments& arguments);

/// Everything in tokens. Reads the trace once more where a capacity is a share of its blocks.
Result<ReplayOptions> resolve(const CacheArguments& arguments, const TraceArguments& trace,
                              const PeekedTrace& peeked, bool quiet);

}  // namespace pando::tools
