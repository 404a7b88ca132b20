// SPDX-License-Identifier: Apache-2.0
// `pando bench`: how fast the control plane is on this machine, for people without the source tree.
// Single operations and whole workloads, each beside the limit of the same work in the same run.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "replay/generate.h"
#include "replay/replayer.h"
#include "tools/bench_cases.h"
#include "tools/command.h"
#include "tools/machine.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/results.h"
#include "tools/text.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  bool quick = false;
  std::string only;
  ResultArguments results;
};

constexpr WorkloadKind kWorkloads[] = {WorkloadKind::chat, WorkloadKind::agent, WorkloadKind::rag};

struct WorkloadResult {
  std::string name;
  ReplayResults replay;
  double cache_ns = 0;  // per request, in all calls of the cache
  double limit_ns = 0;  // its tokens compared and their slots copied
};

Result<WorkloadResult> run_workload(WorkloadKind kind, bool quick, double token_ns) {
  WorkloadOptions options = WorkloadOptions::of(kind);
  options.requests = quick ? 1'000 : 20'000;
  options.sessions_per_s = 10;
  Result<std::unique_ptr<Trace>> trace = make_workload(kind, options);
  if (!trace) return trace.error();
  ReplayOptions replayed;
  replayed.block_tokens = options.block_tokens;
  replayed.stack.page_size = options.block_tokens;
  replayed.stack.device_tokens = 2'000'000;
  Result<ReplayResults> results = replay(**trace, replayed);
  if (!results) return results.error();
  WorkloadResult done{.name = std::string(to_string(kind)), .replay = std::move(*results)};
  const auto requests = static_cast<double>(std::max<std::uint64_t>(1, done.replay.requests));
  for (const Operation operation : kOperations) {
    const Histogram& took = done.replay.nanoseconds[operation];
    done.cache_ns += took.mean() * static_cast<double>(took.count()) / requests;
  }
  const auto tokens = static_cast<double>(done.replay.input_tokens);
  done.limit_ns = token_ns * tokens / requests;
  return done;
}

Json case_json(const BenchCase& one, const CaseResult& result) {
  return {{"name", one.name},
          {"what", one.what},
          {"work_ns", result.measured.work_ns},
          {"limit_ns", result.measured.limit_ns},
          {"ratio", result.measured.ratio},
          {"unit", one.unit},
          {"units", result.units},
          {"ns_per_unit", result.measured.work_ns / result.units},
          {"limit", one.limit}};
}

Json workload_json(const WorkloadResult& done) {
  const ReplayResults& replay = done.replay;
  Json operations;
  for (const Operation operation : kOperations) {
    const Histogram& took = replay.nanoseconds[operation];
    if (took.count() == 0) continue;
    operations[std::string(to_string(operation))] = {{"calls", took.count()},
                                                     {"mean_ns", took.mean()},
                                                     {"p50_ns", took.percentile(50)},
                                                     {"p99_ns", took.percentile(99)}};
  }
  const auto hit = static_cast<double>(replay.all_hit_tokens());
  return {{"name", done.name},
          {"requests", replay.requests},
          {"input_tokens", replay.input_tokens},
          {"hit_ratio", hit / static_cast<double>(std::max<std::uint64_t>(1, replay.input_tokens))},
          {"work_ns", done.cache_ns},
          {"limit_ns", done.limit_ns},
          {"ratio", done.cache_ns / done.limit_ns},
          {"operations", std::move(operations)}};
}

std::string rounded(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : 0); }

std::string table_of(const Machine& machine, const Json& cases, const Json& workloads) {
  std::string text =
      fmt::format("{}, {} of {} cores, {}; one thread\n\n", machine.cpu, machine.usable,
                  machine.cores, size_text(static_cast<double>(machine.memory_bytes)));
  if (!cases.empty()) {
    TextTable table({"operation", "time", "each", "limit", "ratio", "beside"});
    for (const Json& one : cases)
      table.add({one["what"], duration(one["work_ns"]), duration(one["ns_per_unit"]),
                 duration(one["limit_ns"]), rounded(one["ratio"]), one["limit"]});
    text += table.text();
  }
  if (!workloads.empty()) {
    TextTable table({"workload", "requests", "hit", "a request", "limit", "ratio"});
    for (const Json& one : workloads)
      table.add({one["name"], grouped(one["requests"]),
                 fmt::format("{:.1f} %", 100 * one["hit_ratio"].get<double>()),
                 duration(one["work_ns"]), duration(one["limit_ns"]), rounded(one["ratio"])});
    text += fmt::format("{}{}", cases.empty() ? "" : "\n", table.text());
  }
  return text +
         "\nA ratio of 1 is the speed of the C library or the hash library at the same work; lower "
         "is faster.\nOf workloads: memcmp of all tokens and memcpy of their slots.\n";
}

Status run(const Arguments& a) {
  const std::vector<BenchCase> cases = bench_cases(a.quick);
  const auto is_wanted = [&](const std::string& name) {
    return a.only.empty() || name.find(a.only) != std::string::npos;
  };
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  const auto begin = std::chrono::steady_clock::now();
  Json case_results = Json::array(), workload_results = Json::array();
  {
    Progress progress("steps", !a.results.quiet);
    const double total = static_cast<double>(cases.size() + std::size(kWorkloads));
    std::uint64_t done = 0;
    for (const BenchCase& one : cases) {
      progress.update(static_cast<double>(done) / total, done);
      ++done;
      if (is_wanted(one.name)) case_results.push_back(case_json(one, one.run(a.quick ? 0.5 : 3)));
    }
    const double token_ns = token_limit_ns();
    for (const WorkloadKind kind : kWorkloads) {
      progress.update(static_cast<double>(done) / total, done);
      ++done;
      if (!is_wanted(std::string(to_string(kind)))) continue;
      Result<WorkloadResult> result = run_workload(kind, a.quick, token_ns);
      if (!result) return result.error();
      workload_results.push_back(workload_json(*result));
    }
  }
  if (case_results.empty() && workload_results.empty())
    return make_error(ErrorCode::invalid_argument, "no case has '{}' in its name", a.only);
  const Machine machine = this_machine();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  std::string table = table_of(machine, case_results, workload_results);
  Json json{{"command", "bench"},
            {"quick", a.quick},
            {"machine",
             {{"cpu", machine.cpu},
              {"cores", machine.cores},
              {"usable_cores", machine.usable},
              {"memory_bytes", machine.memory_bytes}}},
            {"seconds", spent.count()},
            {"cases", std::move(case_results)},
            {"workloads", std::move(workload_results)}};
  return writer->write(std::move(json), table);
}

}  // namespace

Command add_bench_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* app = root.add_subcommand(
      "bench", "Measure the control plane on this machine, each operation beside its limit");
  app->add_flag("--quick", arguments->quick, "A few seconds: smaller trees, less often");
  app->add_option("--only", arguments->only, "Cases and workloads with this in their name")
      ->type_name("TEXT");
  add_json_options(*app, arguments->results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
