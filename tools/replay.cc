// SPDX-License-Identifier: Apache-2.0
// `pando replay`: sends traces through a cache and says how it did. Options become a trace and a
// ReplayOptions; whatever those refuse is bad usage, found before the first request.
#include "replay/replayer.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/check.h"
#include "replay/replay_json.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/replay_table.h"
#include "tools/results.h"

namespace pando::tools {
namespace {

struct Arguments {
  TraceArguments trace;
  std::optional<std::size_t> page;
  std::optional<Capacity> device, host, store;
  std::string store_at = "memory";
  std::string model;
  std::string write_policy = "write_through";
  std::string mode = "serial";
  std::string namespaces = "none";
  bool bytes = false;
  ReplayOptions replay;
  ResultArguments results;
};

bool is_share(const std::optional<Capacity>& capacity) {
  return capacity && capacity->unit == Capacity::Unit::share;
}

/// Everything in tokens, once the trace and the model are known.
Result<ReplayOptions> resolve(const Arguments& a, const PeekedTrace& trace) {
  ReplayOptions options = a.replay;
  options.block_tokens = trace.block_tokens();
  StackOptions& stack = options.stack;
  const bool has_tokens = !trace.first().tokens.empty();
  stack.page_size = a.page.value_or(has_tokens ? 16 : options.block_tokens);

  Measures measures{.block_tokens = options.block_tokens};
  if (!a.model.empty()) {
    const Result<Model> model = find_model(a.model);
    if (!model) return model.error();
    measures.token_bytes = model->geometry.token_bytes();
    if (a.bytes) stack.geometry = model->geometry;
  } else if (a.bytes) {
    stack.geometry = find_model("tiny")->geometry;
    measures.token_bytes = stack.geometry->token_bytes();
  }
  if (is_share(a.device) || is_share(a.host) || is_share(a.store)) {
    const Result<Survey> surveyed = survey_trace(a.trace, a.results.quiet);
    if (!surveyed) return surveyed.error();
    measures.unique_blocks = surveyed->unique_blocks;
  }
  for (const auto& [given, tokens] : {std::pair{&a.device, &stack.device_tokens},
                                      {&a.host, &stack.host_tokens},
                                      {&a.store, &stack.store_tokens}}) {
    if (!*given) continue;
    const Result<std::size_t> resolved = to_tokens(**given, measures);
    if (!resolved) return resolved.error();
    *tokens = *resolved;
  }
  const Result<WritePolicy> write = parse_write_policy(a.write_policy);
  if (!write) return write.error();
  stack.write_policy = *write;
  stack.store_at = a.store_at;
  options.mode = a.mode == "timed" ? ReplayMode::timed : ReplayMode::serial;
  options.namespace_per_session = a.namespaces == "session";
  return options;
}

std::string_view format_of(const TraceRequest& request) {
  return request.tokens.empty() ? "hash_ids" : "tokens";
}

Status run(const Arguments& a) {
  Result<std::unique_ptr<PeekedTrace>> trace = open_trace(a.trace);
  if (!trace) return trace.error();
  const Result<ReplayOptions> options = resolve(a, **trace);
  if (!options) return options.error();
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();

  ReplaySettings settings{.files = a.trace.paths,
                          .format = std::string(format_of((*trace)->first())),
                          .model = a.model};
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
  if (!a.model.empty()) results->token_bytes = find_model(a.model)->geometry.token_bytes();
  if (a.bytes && a.model.empty()) results->token_bytes = options->stack.geometry->token_bytes();
  return writer->write(to_json(*results, *options, settings),
                       replay_table(*results, *options, settings));
}

void add_cache_options(CLI::App& app, Arguments& a) {
  add_quantity(app, "--page", a.page, "Page size in tokens (default: a block of the trace)");
  add_capacity(app, "--device", a.device,
               "Device tier: 3000000tok, 64GiB (with --model), 9139blocks, or 5% of the trace's "
               "different blocks")
      ->default_str("1Mtok");
  add_capacity(app, "--host", a.host, "Host tier (default: none)");
  add_capacity(app, "--store", a.store, "Store behind the host (default: none)");
  app.add_option("--store-at", a.store_at, "memory, file:DIRECTORY or redis:HOST:PORT")
      ->type_name("PLACE")
      ->capture_default_str();
  add_model(app, a.model);
  app.add_option("--policy", a.replay.stack.policy, "Eviction policy")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--write-policy", a.write_policy,
                 "When the host gets a copy: write_through, write_through_selective, write_back")
      ->type_name("NAME")
      ->capture_default_str();
  add_quantity(app, "--window", a.replay.stack.window,
               "Sliding window of the model in tokens (default: none)");
  app.add_option("--window-share", a.replay.stack.window_share,
                 "Window slots for each full slot, with --window")
      ->capture_default_str();
  app.add_option("--namespaces", a.namespaces, "What shares nothing: none, or each session")
      ->check(CLI::IsMember({"none", "session"}))
      ->capture_default_str();
  app.add_flag("--bytes", a.bytes,
               "Write, move and verify real KV bytes on the CPU (of a tiny model unless --model)");
}

void add_mode_options(CLI::App& app, Arguments& a) {
  app.add_option("--mode", a.mode, "serial: one request after the other. timed: as they arrive")
      ->check(CLI::IsMember({"serial", "timed"}))
      ->capture_default_str();
  ServiceModel& service = a.replay.service;
  app.add_option("--prefill-rate", service.prefill_tokens_per_s, "timed: prompt tokens per second")
      ->capture_default_str();
  app.add_option("--decode-rate", service.decode_tokens_per_s,
                 "timed: answer tokens per second, each request")
      ->capture_default_str();
  add_quantity(app, "--max-running", service.max_running, "timed: requests at a time");
  app.add_option("--speed", service.speed, "timed: arrivals so many times as fast")
      ->capture_default_str();
  add_quantity(app, "--check-every", a.replay.check_every,
               "Prove the cache's invariants every N requests (slow)");
}

}  // namespace

Command add_replay_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  arguments->replay.stack.device_tokens = 1'000'000;
  CLI::App* app = root.add_subcommand("replay",
                                      "Send traces through a cache; report hits by tier, "
                                      "evictions, bytes moved and time per operation");
  add_trace_options(*app, arguments->trace);
  add_cache_options(*app, *arguments);
  add_mode_options(*app, *arguments);
  add_result_options(*app, arguments->results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
