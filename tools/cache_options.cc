// SPDX-License-Identifier: Apache-2.0
#include "tools/cache_options.h"

#include <CLI/CLI.hpp>

namespace pando::tools {

void add_cache_options(CLI::App& app, CacheArguments& a) {
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
  app.add_option("--policy", a.policy, "Eviction policy")->type_name("NAME")->capture_default_str();
  app.add_option("--write-policy", a.write_policy,
                 "When the host gets a copy: write_through, write_through_selective, write_back")
      ->type_name("NAME")
      ->capture_default_str();
  add_quantity(app, "--window", a.window, "Sliding window of the model in tokens (default: none)");
  app.add_option("--window-share", a.window_share, "Window slots for each full slot, with --window")
      ->capture_default_str();
  app.add_option("--namespaces", a.namespaces, "What shares nothing: none, or each session")
      ->check(CLI::IsMember({"none", "session"}))
      ->capture_default_str();
  app.add_flag("--sessions", a.sessions,
               "Declare the trace's sessions to the cache, and close each after its last request");
  app.add_option("--attention", a.attention_tokens,
                 "So many tokens into a prompt, attention costs as much as the rest: tells what "
                 "share of the cost of all prompts was saved")
      ->type_name("TOKENS");
  app.add_flag("--cost-aware", a.cost_aware,
               "With --policy hazard and --attention: weigh hits by what they save");
  app.add_flag("--bytes", a.bytes,
               "Write, move and verify real KV bytes on the CPU (of a tiny model unless --model)");
}

Result<ReplayOptions> resolve(const CacheArguments& a, const TraceArguments& trace,
                              const PeekedTrace& peeked, bool quiet) {
  std::optional<Survey> survey;
  if (needs_survey(a)) {
    Result<Survey> surveyed = survey_trace(trace, quiet);
    if (!surveyed) return surveyed.error();
    survey = std::move(*surveyed);
  }
  return pando::resolve(a, peeked, std::move(survey));
}

}  // namespace pando::tools
