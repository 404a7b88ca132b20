// SPDX-License-Identifier: Apache-2.0
// From words to a ReplayOptions.
#include "tools/cache_options.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "base/check.h"

namespace pando::tools {
namespace {

constexpr std::size_t kDefaultDeviceTokens = 1'000'000;
constexpr const char* kStandIn = "tiny";  // with --bytes, where no model is given

bool is_share(const std::optional<Capacity>& capacity) {
  return capacity && capacity->unit == Capacity::Unit::share;
}

/// Nothing where neither model nor bytes are asked for.
Result<std::optional<Geometry>> geometry_of(const CacheArguments& a) {
  if (a.model.empty() && !a.bytes) return std::optional<Geometry>{};
  Result<Model> model = find_model(a.model.empty() ? kStandIn : a.model);
  if (!model) return model.error();
  return std::optional(std::move(model->geometry));
}

}  // namespace

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
  app.add_flag("--bytes", a.bytes,
               "Write, move and verify real KV bytes on the CPU (of a tiny model unless --model)");
}

Result<ReplayOptions> resolve(const CacheArguments& a, const TraceArguments& trace,
                              const PeekedTrace& peeked, bool quiet) {
  ReplayOptions options;
  options.block_tokens = peeked.block_tokens();
  options.namespace_per_session = a.namespaces == "session";
  StackOptions& stack = options.stack;
  const bool has_tokens = !peeked.first().tokens.empty();
  stack.page_size = a.page.value_or(has_tokens ? 16 : options.block_tokens);
  stack.device_tokens = kDefaultDeviceTokens;
  stack.policy = a.policy;
  stack.store_at = a.store_at;
  stack.window = a.window;
  stack.window_share = a.window_share;
  const Result<WritePolicy> write = parse_write_policy(a.write_policy);
  if (!write) return write.error();
  stack.write_policy = *write;

  Measures measures{.block_tokens = options.block_tokens};
  const Result<std::optional<Geometry>> geometry = geometry_of(a);
  if (!geometry) return geometry.error();
  if (*geometry) measures.token_bytes = (*geometry)->token_bytes();
  options.token_bytes = measures.token_bytes.value_or(0);
  if (a.bytes) stack.geometry = *geometry;
  if (is_share(a.device) || is_share(a.host) || is_share(a.store)) {
    const Result<Survey> surveyed = survey_trace(trace, quiet);
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
  return options;
}

}  // namespace pando::tools
