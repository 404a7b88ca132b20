// SPDX-License-Identifier: Apache-2.0
#include "replay/cache_arguments.h"

#include <utility>

#include "base/check.h"
#include "replay/models.h"

namespace pando {
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

bool needs_survey(const CacheArguments& a) {
  return a.sessions || is_share(a.device) || is_share(a.host) || is_share(a.store);
}

Result<ReplayOptions> resolve(const CacheArguments& a, const PeekedTrace& trace,
                              std::optional<Survey> survey) {
  if (a.namespaces != "none" && a.namespaces != "session")
    return make_error(ErrorCode::invalid_argument,
                      "namespaces: expected 'none' or 'session', got '{}'", a.namespaces);
  ReplayOptions options;
  options.block_tokens = trace.block_tokens();
  options.namespace_per_session = a.namespaces == "session";
  if (a.cost_aware && (a.policy != "hazard" || !a.attention_tokens))
    return make_error(
        ErrorCode::invalid_argument,
        "cost-aware: expected the policy hazard, not {}, and how many tokens attention "
        "takes to cost as much as the rest",
        a.policy);
  options.attention_tokens = a.attention_tokens;
  if (a.sessions) {
    if (survey->sessions.empty())
      return Error{ErrorCode::invalid_argument, "sessions: this trace does not name any"};
    options.sessions = std::move(survey->sessions);
  }
  StackOptions& stack = options.stack;
  const bool has_tokens = !trace.first().tokens.empty();
  stack.page_size = a.page.value_or(has_tokens ? 16 : options.block_tokens);
  stack.device_tokens = kDefaultDeviceTokens;
  stack.policy = a.policy;
  if (a.cost_aware) stack.attention_tokens = a.attention_tokens;
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
  if (survey) measures.unique_blocks = survey->unique_blocks;
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

}  // namespace pando
