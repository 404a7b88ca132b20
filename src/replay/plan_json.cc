// SPDX-License-Identifier: Apache-2.0
#include "replay/plan_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace pando {

nlohmann::ordered_json to_json(const Plan& plan, const PlanSettings& settings) {
  using Json = nlohmann::ordered_json;
  const auto tokens = [&](std::uint64_t blocks) { return blocks * plan.block_tokens; };
  const auto bytes = [&](std::uint64_t blocks) {
    return static_cast<double>(tokens(blocks)) * static_cast<double>(*settings.token_bytes);
  };
  Json curves = Json::array();
  for (const PlanCurve& curve : plan.curves) {
    Json points = Json::array();
    for (const PlanPoint& point : curve.points) {
      Json item{{"capacity_blocks", point.capacity_blocks},
                {"capacity_tokens", tokens(point.capacity_blocks)},
                {"hit_ratio_blocks", point.hit_ratio}};
      if (settings.token_bytes) item["capacity_bytes"] = bytes(point.capacity_blocks);
      points.push_back(std::move(item));
    }
    curves.push_back({{"policy", curve.policy}, {"method", curve.method}, {"points", points}});
  }
  Json json{{"command", "plan"},
            {"trace",
             {{"files", settings.files},
              {"skipped_lines", settings.skipped_lines},
              {"block_tokens", plan.block_tokens}}},
            {"requests", plan.requests},
            {"unique_blocks", plan.unique_blocks},
            {"blocks", plan.blocks},
            {"hit_ratio_blocks_infinite", plan.infinite_hit_ratio},
            {"sample_rate", plan.sample_rate},
            {"sample_error", plan.sample_error}};
  if (settings.token_bytes) {
    json["model"] = settings.model;
    json["bytes_per_token"] = *settings.token_bytes;
  }
  json["curves"] = std::move(curves);
  json["recommendation"] = {{"knee_blocks", plan.knee_blocks},
                            {"knee_tokens", tokens(plan.knee_blocks)}};
  if (settings.token_bytes) json["recommendation"]["knee_bytes"] = bytes(plan.knee_blocks);
  return json;
}

}  // namespace pando
