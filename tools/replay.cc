// SPDX-License-Identifier: Apache-2.0
// `pando replay`: sends traces through a cache and says how it did. Whatever trace and cache refuse
// is found before the first request.
#include "replay/replayer.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "replay/replay_json.h"
#include "tools/cache_options.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/replay_table.h"
#include "tools/results.h"

namespace pando::tools {
namespace {

struct Arguments {
  TraceArguments trace;
  CacheArguments cache;
  std::string mode = "serial";
  ServiceModel service;
  std::size_t check_every = 0;
  ResultArguments results;
};

Status run(const Arguments& a) {
  Result<std::unique_ptr<PeekedTrace>> trace = open_trace(a.trace);
  if (!trace) return trace.error();
  Result<ReplayOptions> options = resolve(a.cache, a.trace, **trace, a.results.quiet);
  if (!options) return options.error();
  options->mode = a.mode == "timed" ? ReplayMode::timed : ReplayMode::serial;
  options->service = a.service;
  options->check_every = a.check_every;
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();

  ReplaySettings settings{.files = a.trace.paths,
                          .format = (*trace)->first().tokens.empty() ? "hash_ids" : "tokens",
                          .model = a.cache.model};
  Result<ReplayResults> results = Error{};
  {
    Progress progress("requests", !a.results.quiet);
    results = replay(**trace, *options, [&](const ReplayResults& so_far) {
      progress.update((*trace)->progress(), so_far.requests);
      return true;
    });
  }
  if (!results) return results.error();
  settings.skipped_lines = (*trace)->skipped_lines();
  return writer->write(to_json(*results, *options, settings),
                       replay_table(*results, *options, settings));
}

void add_mode_options(CLI::App& app, Arguments& a) {
  app.add_option("--mode", a.mode, "serial: one request after the other. timed: as they arrive")
      ->check(CLI::IsMember({"serial", "timed"}))
      ->capture_default_str();
  app.add_option("--prefill-rate", a.service.prefill_tokens_per_s,
                 "timed: prompt tokens per second")
      ->capture_default_str();
  app.add_option("--decode-rate", a.service.decode_tokens_per_s,
                 "timed: answer tokens per second, each request")
      ->capture_default_str();
  add_quantity(app, "--max-running", a.service.max_running, "timed: requests at a time");
  app.add_option("--speed", a.service.speed, "timed: arrivals so many times as fast")
      ->capture_default_str();
  add_quantity(app, "--check-every", a.check_every,
               "Prove the cache's invariants every N requests (slow); 0: never");
}

}  // namespace

Command add_replay_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* app = root.add_subcommand("replay",
                                      "Send traces through a cache; report hits by tier, "
                                      "evictions, bytes moved and time per operation");
  add_trace_options(*app, arguments->trace);
  add_cache_options(*app, arguments->cache);
  add_mode_options(*app, *arguments);
  add_result_options(*app, arguments->results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
