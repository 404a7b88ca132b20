// SPDX-License-Identifier: Apache-2.0
// Builds the object part by part.
#include "replay/replay_json.h"

#include <nlohmann/json.hpp>

namespace pando {
namespace {

using Json = nlohmann::ordered_json;

std::string name(auto value) { return std::string(to_string(value)); }

Json settings_json(const ReplayOptions& options, const ReplayResults& results,
                   const ReplaySettings& settings) {
  const StackOptions& stack = options.stack;
  Json json{{"mode", options.mode == ReplayMode::timed ? "timed" : "serial"},
            {"page", stack.page_size},
            {"policy", stack.policy},
            {"device_tokens", results.capacity_tokens[Tier::device]}};
  if (stack.host_tokens > 0) {
    json["host_tokens"] = results.capacity_tokens[Tier::host];
    json["write_policy"] = name(stack.write_policy);
  }
  if (stack.store_tokens > 0) {
    json["store_tokens"] = stack.store_tokens;
    json["store"] = stack.store_at;
  }
  json["window"] = stack.window ? Json(*stack.window) : Json(nullptr);
  json["model"] = settings.model.empty() ? Json(nullptr) : Json(settings.model);
  json["bytes"] = stack.geometry.has_value();
  json["namespaces"] = options.namespace_per_session ? "session" : "none";
  json["sessions"] = options.sessions.empty() ? Json(nullptr) : Json(options.sessions.size());
  if (options.attention_tokens) {
    json["attention_tokens"] = *options.attention_tokens;
    json["cost_aware"] = stack.attention_tokens.has_value();
  }
  if (options.mode == ReplayMode::timed)
    json["service"] = {{"prefill_tokens_per_s", options.service.prefill_tokens_per_s},
                       {"decode_tokens_per_s", options.service.decode_tokens_per_s},
                       {"max_running", options.service.max_running},
                       {"speed", options.service.speed}};
  return json;
}

Json tiers_json(const ReplayResults& results) {
  Json json = Json::object();
  for (const Tier tier : kTiers) {
    if (results.capacity_tokens[tier] == 0) continue;
    json[name(tier)] = {{"hit_blocks", results.hit_blocks[tier]},
                        {"hit_tokens", results.hit_tokens[tier]},
                        {"hit_ratio_blocks", ratio(results.hit_blocks[tier], results.blocks)},
                        {"hit_ratio_tokens", ratio(results.hit_tokens[tier], results.input_tokens)},
                        {"capacity_tokens", results.capacity_tokens[tier]},
                        {"peak_tokens", results.peak_tokens[tier]},
                        {"evicted_tokens", results.evicted_tokens[tier]}};
  }
  return json;
}

Json operations_json(const ReplayResults& results) {
  Json json = Json::object();
  for (const Operation operation : kOperations) {
    const Histogram& ns = results.nanoseconds[operation];
    if (ns.count() == 0) continue;
    Json buckets = Json::array();
    ns.for_each_bucket(
        [&](std::uint64_t up_to, std::uint64_t count) {
          buckets.push_back({{"up_to_ns", up_to}, {"count", count}});
        },
        /*per_doubling=*/4);
    json[name(operation)] = {{"count", ns.count()},         {"mean_ns", ns.mean()},
                             {"p50_ns", ns.percentile(50)}, {"p99_ns", ns.percentile(99)},
                             {"max_ns", ns.max()},          {"histogram", std::move(buckets)}};
  }
  return json;
}

Json series_json(const ReplayResults& results) {
  Json json = Json::array();
  for (const SeriesPoint& point : results.series) {
    Json item{
        {"end_request", point.end_request}, {"end_s", point.end_s}, {"requests", point.requests}};
    for (const Tier tier : kTiers) {
      if (results.capacity_tokens[tier] == 0) continue;
      item["hit_ratio_" + name(tier)] = ratio(point.hit_blocks[tier], point.blocks);
      item[name(tier) + "_tokens"] = point.held_tokens[tier];
      item["evicted_" + name(tier) + "_tokens"] = point.evicted_tokens[tier];
    }
    json.push_back(std::move(item));
  }
  return json;
}

Json seconds_json(const Histogram& us) {
  const auto seconds = [](std::uint64_t value) { return static_cast<double>(value) * 1e-6; };
  return {{"p50", seconds(us.percentile(50))},
          {"p99", seconds(us.percentile(99))},
          {"max", seconds(us.max())}};
}

}  // namespace

Json to_json(const ReplayResults& results, const ReplayOptions& options,
             const ReplaySettings& settings) {
  Json json{{"command", "replay"},
            {"trace",
             {{"files", settings.files},
              {"format", settings.format},
              {"skipped_lines", settings.skipped_lines},
              {"block_tokens", options.block_tokens}}},
            {"settings", settings_json(options, results, settings)},
            {"requests", results.requests},
            {"unique_blocks", results.unique_blocks},
            {"unique_blocks_estimated", results.unique_blocks_estimated},
            {"blocks", results.blocks},
            {"input_tokens", results.input_tokens},
            {"output_tokens", results.output_tokens},
            {"truncated_requests", results.truncated_requests},
            {"hit_ratio_blocks", results.hit_ratio_blocks()},
            {"hit_ratio_tokens", results.hit_ratio_tokens()},
            {"tiers", tiers_json(results)},
            {"prefill_tokens_saved", results.all_hit_tokens()},
            {"evicted_nodes", results.evicted_nodes}};
  if (options.attention_tokens) json["cost_saved"] = results.hit_cost / results.input_cost;
  if (options.stack.host_tokens > 0) {
    const Json moved{{"device_to_host", results.backed_up_tokens},
                     {"host_to_device", results.loaded_tokens},
                     {"host_to_store", results.stored_tokens},
                     {"store_to_host", results.fetched_tokens}};
    json["tokens_moved"] = moved;
    if (results.token_bytes > 0) {
      for (const auto& [way, tokens] : moved.items())
        json["bytes_moved"][way] = tokens.get<std::uint64_t>() * results.token_bytes;
    }
    json["failed_copies"] = results.failed_copies;
  }
  if (options.stack.geometry) json["verified_tokens"] = results.verified_tokens;
  for (const Miss miss : kMisses) json["misses"][name(miss)] = results.missed_blocks[miss];
  json["operations"] = operations_json(results);
  json["series"] = series_json(results);
  if (results.is_timed)
    json["latency_s"] = {{"queue", seconds_json(results.queue_us)},
                         {"first_token", seconds_json(results.first_token_us)},
                         {"last_finish_s", results.last_finish_s},
                         {"max_running", results.max_running}};
  json["memory"] = {{"peak_rss_bytes", results.peak_rss_bytes},
                    {"index_bytes", results.index_bytes}};
  json["wall_seconds"] = results.wall_seconds;
  return json;
}

}  // namespace pando
