// SPDX-License-Identifier: Apache-2.0
// `pando plan`: the hit ratio at every capacity, and what to make of it.
#include "replay/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "replay/plan_json.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/results.h"
#include "tools/text.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  TraceArguments trace;
  std::vector<std::string> policies;
  std::vector<std::string> at;
  std::optional<Capacity> device, host, store;
  std::string model;
  std::size_t max_blocks = CompactTrace::kDefaultLimit;
  ResultArguments results;
};

/// Sizes of blocks, as far as they are known.
struct Scale {
  std::size_t block_tokens = 0;
  std::optional<std::size_t> token_bytes;

  std::uint64_t tokens(std::uint64_t blocks) const { return blocks * block_tokens; }
  double bytes(std::uint64_t blocks) const {
    return static_cast<double>(tokens(blocks)) * static_cast<double>(*token_bytes);
  }
  std::string text(std::uint64_t blocks) const {
    return token_bytes ? size_text(bytes(blocks))
                       : fmt::format("{} tokens", grouped(tokens(blocks)));
  }
};

// ---- Recommending ------------------------------------------------------------------------------

/// What each tier has, in blocks; the tiers together are planned as one cache.
struct Owned {
  std::uint64_t device = 0, host = 0, store = 0;
  std::uint64_t all() const { return device + host + store; }
};

std::vector<std::string> recommendation(const Plan& plan, const Scale& scale, const Owned& owned) {
  const PlanCurve& lru = plan.curve("lru");
  std::vector<std::string> text;
  text.push_back(
      fmt::format("The knee of the curve is at {}: {} with lru. Beyond it, more buys less.",
                  scale.text(plan.knee_blocks), percent(lru.at(plan.knee_blocks))));
  const double enough = 0.99 * plan.infinite_hit_ratio;
  for (const PlanPoint& point : lru.points) {
    if (point.hit_ratio < enough) continue;
    text.push_back(fmt::format("{} is enough for 99 % of what can be hit at all ({}).",
                               scale.text(point.capacity_blocks),
                               percent(plan.infinite_hit_ratio)));
    break;
  }
  if (owned.all() == 0) return text;
  const double now = lru.at(owned.all());
  text.push_back(fmt::format("With the {} there are: {}.", scale.text(owned.all()), percent(now)));
  for (const auto& [name, blocks] : {std::pair{"the device", owned.device},
                                     {"host memory", owned.host},
                                     {"the store", owned.store}}) {
    if (blocks == 0) continue;
    const double then = lru.at(owned.all() + blocks);
    text.push_back(fmt::format("Twice as much of {} ({} more) buys {:.2f} points: {}.", name,
                               scale.text(blocks), 100 * (then - now), percent(then)));
  }
  const double optimum = plan.curve("optimum").at(owned.all());
  text.push_back(fmt::format("The best possible policy would hit {} there: {:.2f} points are left.",
                             percent(optimum), 100 * (optimum - now)));
  return text;
}

// ---- Telling -----------------------------------------------------------------------------------

std::string table(const Plan& plan, const Scale& scale, const std::vector<std::uint64_t>& at,
                  const std::vector<std::string>& advice, const TraceArguments& trace) {
  std::string text =
      fmt::format("trace     {}: {} requests, {} blocks of {} tokens, {} different\n",
                  joined(trace.paths, ", "), grouped(plan.requests), grouped(plan.blocks),
                  plan.block_tokens, grouped(plan.unique_blocks));
  if (plan.sample_rate < 1)
    text += fmt::format("          one block in {:.0f} was looked at: ratios are off by up to {}\n",
                        1 / plan.sample_rate, percent(plan.sample_error));
  text += '\n';
  std::vector<std::string> header{"share", "blocks", "tokens"};
  if (scale.token_bytes) header.emplace_back("size");
  for (const PlanCurve& curve : plan.curves) header.push_back(curve.policy);
  TextTable rows(std::move(header));
  for (const std::uint64_t blocks : at) {
    std::vector<std::string> row{
        percent(static_cast<double>(blocks) / static_cast<double>(plan.unique_blocks)),
        grouped(blocks), grouped(scale.tokens(blocks))};
    if (scale.token_bytes) row.push_back(size_text(scale.bytes(blocks)));
    for (const PlanCurve& curve : plan.curves) row.push_back(percent(curve.at(blocks)));
    rows.add(std::move(row));
  }
  text += rows.text();
  text +=
      "\noptimum: evicts what is used again last, by the rules of the others. ceiling: may also "
      "not "
      "keep a block\n\n";
  for (const std::string& line : advice) text += line + '\n';
  return text;
}

// ---- Running -----------------------------------------------------------------------------------

/// In blocks; shares only once the trace has been read, so they are left to the plan's own points.
Result<std::uint64_t> to_blocks(const Capacity& capacity, const Measures& measures) {
  const Result<std::size_t> tokens = to_tokens(capacity, measures);
  if (!tokens) return tokens.error();
  return *tokens / measures.block_tokens;
}

Result<std::vector<std::uint64_t>> rows_at(const Arguments& a, const Measures& measures) {
  std::vector<std::uint64_t> rows;
  std::vector<std::string> texts = a.at;
  if (texts.empty()) texts = {"1%", "2%", "5%", "10%", "25%", "50%", "100%"};
  for (const std::string& text : texts) {
    const Result<Capacity> capacity = parse_capacity(text);
    if (!capacity) return capacity.error();
    const Result<std::uint64_t> blocks = to_blocks(*capacity, measures);
    if (!blocks) return blocks.error();
    rows.push_back(*blocks);
  }
  return rows;
}

Status run(const Arguments& a) {
  Result<std::unique_ptr<PeekedTrace>> trace = open_trace(a.trace);
  if (!trace) return trace.error();
  Scale scale{.block_tokens = (*trace)->block_tokens(), .token_bytes = {}};
  if (!a.model.empty()) {
    const Result<Model> model = find_model(a.model);
    if (!model) return model.error();
    scale.token_bytes = model->geometry.token_bytes();
  }
  Measures measures{.block_tokens = scale.block_tokens, .token_bytes = scale.token_bytes};
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();

  PlanOptions options{.policies = a.policies,
                      .max_blocks = a.max_blocks,
                      .at_blocks = {},
                      .num_threads = std::max(1u, std::thread::hardware_concurrency())};
  // What is not a share is known before the trace is read, and planned for exactly.
  for (const std::string& text : a.at) {
    const Result<Capacity> capacity = parse_capacity(text);
    if (!capacity) return capacity.error();
    if (capacity->unit == Capacity::Unit::share) continue;
    const Result<std::uint64_t> blocks = to_blocks(*capacity, measures);
    if (!blocks) return blocks.error();
    options.at_blocks.push_back(*blocks);
  }
  Result<Plan> plan = Error{};
  {
    Progress progress("requests", !a.results.quiet);
    std::uint64_t requests = 0;
    plan = make_plan(**trace, options, [&](double done) { progress.update(done, ++requests); });
  }
  if (!plan) return plan.error();
  measures.unique_blocks = plan->unique_blocks;
  const Result<std::vector<std::uint64_t>> rows = rows_at(a, measures);
  if (!rows) return rows.error();
  Owned owned;
  for (const auto& [given, blocks] :
       {std::pair{&a.device, &owned.device}, {&a.host, &owned.host}, {&a.store, &owned.store}}) {
    if (!*given) continue;
    const Result<std::uint64_t> resolved = to_blocks(**given, measures);
    if (!resolved) return resolved.error();
    *blocks = *resolved;
  }
  const std::vector<std::string> advice = recommendation(*plan, scale, owned);
  Json json = pando::to_json(*plan, {.files = a.trace.paths,
                                     .skipped_lines = (*trace)->skipped_lines(),
                                     .model = a.model,
                                     .token_bytes = scale.token_bytes});
  json["recommendation"]["text"] = advice;
  return writer->write(std::move(json), table(*plan, scale, *rows, advice, a.trace));
}

}  // namespace

Command add_plan_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* app = root.add_subcommand(
      "plan", "Hit ratio of a trace at all capacities, the best possible, and what more would buy");
  add_trace_options(*app, a.trace);
  app->add_option("--policy", a.policies, "Policies beside lru, by a set of replays")
      ->type_name("NAME")
      ->delimiter(',');
  app->add_option("--at", a.at, "Capacities for the table (default: 1% to 100%)")
      ->type_name("SIZE")
      ->delimiter(',');
  add_model(*app, a.model);
  add_capacity(*app, "--device", a.device, "What there is, for the recommendation");
  add_capacity(*app, "--host", a.host, "What there is, for the recommendation");
  add_capacity(*app, "--store", a.store, "What there is, for the recommendation");
  add_quantity(*app, "--max-blocks", a.max_blocks,
               "Of more different blocks than this, only a sample is looked at");
  add_result_options(*app, a.results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
