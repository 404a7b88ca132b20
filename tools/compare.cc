// SPDX-License-Identifier: Apache-2.0
// `pando compare`: the same traces through several caches, side by side. Every combination of the
// values given is one `pando replay` in a process of its own, several at a time.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/check.h"
#include "replay/optimum.h"
#include "tools/child_processes.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/results.h"
#include "tools/text.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

/// What is varied, by the name of replay's option.
const std::vector<std::pair<std::string, std::string>> kVaried = {
    {"device", "Device tiers"},
    {"host", "Host tiers"},
    {"store", "Stores"},
    {"page", "Page sizes"},
    {"window", "Sliding windows"},
    {"write-policy", "Write policies"},
    {"namespaces", "none, session"},
    {"mode", "serial, timed"},
    {"policy", "Eviction policies"},
};

struct Arguments {
  TraceArguments trace;
  std::map<std::string, std::vector<std::string>> varied;
  std::string model;
  std::size_t jobs = std::max(1u, std::thread::hardware_concurrency());
  bool no_optimum = false;
  ResultArguments results;
};

/// One replay: a trace, and a value for each thing that is given.
struct Variant {
  std::string trace;
  std::vector<std::pair<std::string, std::string>> settings;

  std::string value(const std::string& name) const {
    for (const auto& [known, value] : settings) {
      if (known == name) return value;
    }
    return "";
  }
};

std::vector<Variant> variants(const Arguments& a) {
  std::vector<Variant> all;
  for (const std::string& trace : a.trace.paths) {
    std::vector<Variant> some{{trace, {}}};
    for (const auto& [name, description] : kVaried) {
      const auto values = a.varied.find(name);
      if (values == a.varied.end() || values->second.empty()) continue;
      std::vector<Variant> more;
      for (const Variant& variant : some) {
        for (const std::string& value : values->second) {
          more.push_back(variant);
          more.back().settings.emplace_back(name, value);
        }
      }
      some = std::move(more);
    }
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<std::string> command_of(const Variant& variant, const Arguments& a) {
  std::vector<std::string> words{"replay", variant.trace, "--json", "-", "--quiet"};
  for (const auto& [name, value] : variant.settings) {
    words.push_back(fmt::format("--{}", name));
    words.push_back(value);
  }
  if (a.trace.options.block_tokens) {
    words.emplace_back("--block-tokens");
    words.push_back(std::to_string(*a.trace.options.block_tokens));
  }
  if (a.trace.options.skip_bad) words.emplace_back("--skip-bad");
  if (!a.model.empty()) words.insert(words.end(), {"--model", a.model});
  return words;
}

// ---- The optimum -------------------------------------------------------------------------------

/// For caches as large as those replayed, all tiers together; one pass over each trace.
class Optima {
 public:
  explicit Optima(const Arguments& a) : a_(a) {}

  Result<double> of(const std::string& trace, std::uint64_t capacity_blocks) {
    if (Status s = read(trace); !s) return s.error();
    const CompactTrace& compact = *traces_[trace].first;
    const std::uint64_t hits =
        traces_[trace].second->hits(capacity_blocks / compact.weight(), OptimumRule::same);
    return static_cast<double>(hits) / static_cast<double>(compact.num_accesses());
  }

 private:
  Status read(const std::string& path) {
    if (traces_.contains(path)) return {};
    Result<std::unique_ptr<PeekedTrace>> trace = open_trace({{path}, a_.trace.options});
    if (!trace) return trace.error();
    Result<CompactTrace> read = CompactTrace::read(**trace);
    if (!read) return read.error();
    auto compact = std::make_unique<CompactTrace>(std::move(*read));
    auto optimum = std::make_unique<Optimum>(*compact);
    traces_[path] = {std::move(compact), std::move(optimum)};
    return {};
  }

  const Arguments& a_;
  std::map<std::string, std::pair<std::unique_ptr<CompactTrace>, std::unique_ptr<Optimum>>> traces_;
};

// ---- Telling -----------------------------------------------------------------------------------

Json row_of(const Variant& variant, const Json& result) {
  std::uint64_t evicted = 0;
  std::uint64_t capacity = 0;
  for (const auto& [tier, figures] : result["tiers"].items()) {
    evicted += figures["evicted_tokens"].get<std::uint64_t>();
    capacity += figures["capacity_tokens"].get<std::uint64_t>();
  }
  Json row{{"trace", variant.trace}};
  for (const auto& [name, description] : kVaried) {
    if (const std::string value = variant.value(name); !value.empty()) row[name] = value;
  }
  if (!row.contains("policy")) row["policy"] = result["settings"]["policy"];
  for (const char* key : {"requests", "unique_blocks", "hit_ratio_blocks", "hit_ratio_tokens"})
    row[key] = result[key];
  row["capacity_tokens"] = capacity;
  row["evicted_tokens"] = evicted;
  row["wall_seconds"] = result["wall_seconds"];
  row["peak_rss_bytes"] = result["memory"]["peak_rss_bytes"];
  return row;
}

/// Policies side by side; everything else that varies makes a line.
std::string table(const Json& rows) {
  std::vector<std::string> keys, policies;
  for (const auto& [name, description] : kVaried) {
    std::set<std::string> values;
    for (const Json& row : rows) values.insert(row.value(name, ""));
    if (name != "policy" && (values.size() > 1 || !values.begin()->empty())) keys.push_back(name);
  }
  std::vector<std::pair<std::vector<std::string>, std::map<std::string, std::string>>> lines;
  for (const Json& row : rows) {
    const std::string policy = row["policy"];
    if (std::find(policies.begin(), policies.end(), policy) == policies.end())
      policies.push_back(policy);
    std::vector<std::string> head{row["trace"].get<std::string>()};
    for (const std::string& key : keys) head.push_back(row.value(key, ""));
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const auto& known) { return known.first == head; });
    if (line == lines.end()) line = lines.insert(lines.end(), {head, {}});
    line->second[policy] = percent(row["hit_ratio_blocks"].get<double>());
    if (row.contains("optimum")) line->second["optimum"] = percent(row["optimum"].get<double>());
  }
  if (!rows.empty() && rows[0].contains("optimum")) policies.emplace_back("optimum");
  std::vector<std::string> header{"trace"};
  header.insert(header.end(), keys.begin(), keys.end());
  header.insert(header.end(), policies.begin(), policies.end());
  TextTable text(std::move(header));
  for (const auto& [head, cells] : lines) {
    std::vector<std::string> row = head;
    for (const std::string& policy : policies) {
      const auto cell = cells.find(policy);
      row.push_back(cell == cells.end() ? "" : cell->second);
    }
    text.add(std::move(row));
  }
  return fmt::format("hit ratio by blocks\n\n{}", text.text());
}

// ---- Running -----------------------------------------------------------------------------------

Status run(const Arguments& a) {
  if (std::count(a.trace.paths.begin(), a.trace.paths.end(), "-") > 0)
    return Error{ErrorCode::invalid_argument, "compare reads traces several times: give files"};
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  const std::vector<Variant> all = variants(a);
  std::vector<std::vector<std::string>> commands;
  for (const Variant& variant : all) commands.push_back(command_of(variant, a));
  Result<std::vector<std::string>> outputs = Error{};
  {
    Progress progress("replays", !a.results.quiet);
    outputs = run_children(commands, a.jobs, [&](std::size_t done) {
      progress.update(static_cast<double>(done) / static_cast<double>(commands.size()), done);
    });
  }
  if (!outputs) return outputs.error();
  Json rows = Json::array();
  Optima optima(a);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Json result = Json::parse((*outputs)[i], nullptr, /*allow_exceptions=*/false);
    if (!result.is_object())
      return make_error(ErrorCode::corrupt, "a replay of '{}' gave no JSON", all[i].trace);
    Json row = row_of(all[i], result);
    if (!a.no_optimum) {
      const std::uint64_t blocks = row["capacity_tokens"].get<std::uint64_t>() /
                                   result["trace"]["block_tokens"].get<std::uint64_t>();
      const Result<double> optimum = optima.of(all[i].trace, blocks);
      if (!optimum) return optimum.error();
      row["optimum"] = *optimum;
    }
    rows.push_back(std::move(row));
  }
  const std::string text = table(rows);
  return writer->write({{"command", "compare"}, {"rows", std::move(rows)}}, text);
}

}  // namespace

Command add_compare_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* app = root.add_subcommand(
      "compare", "Several policies or sizes side by side on several traces, in parallel");
  add_trace_options(*app, a.trace);
  for (const auto& [name, description] : kVaried)
    app->add_option(fmt::format("--{}", name), a.varied[name],
                    fmt::format("{}, as of replay; one or more, with commas between", description))
        ->type_name("LIST")
        ->delimiter(',');
  add_model(*app, a.model);
  add_quantity(*app, "--jobs", a.jobs, "Replays at a time");
  app->add_flag("--no-optimum", a.no_optimum, "Leave out the offline optimum");
  add_result_options(*app, a.results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
