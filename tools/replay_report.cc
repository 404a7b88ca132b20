// SPDX-License-Identifier: Apache-2.0
// The table and the JSON of a replay. Plain formatting suffices for the JSON: every name and string
// in it is one of ours and needs no escaping.
#include "tools/replay_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace pando::tools {
namespace {

/// 1234567 as "1,234,567", whatever the locale.
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

/// Three digits and the unit that suits them.
std::string duration(double ns) {
  for (const std::string_view unit : {"ns", "us", "ms"}) {
    if (ns < 9.995) return fmt::format("{:.2f} {}", ns, unit);
    if (ns < 99.95) return fmt::format("{:.1f} {}", ns, unit);
    if (ns < 999.5) return fmt::format("{:.0f} {}", ns, unit);
    ns /= 1000;
  }
  return fmt::format("{:.2f} s", ns);
}

std::string duration(std::uint64_t ns) { return duration(static_cast<double>(ns)); }

/// Not fmt::join: gcc 12 warns inside fmt 9 about it when it optimizes.
std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

/// A name in JSON: to_string() gives words, JSON wants them joined.
std::string json_name(std::string_view words) {
  std::string name(words);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

/// One line of the table: what, how many, of what.
void add_row(std::string& out, std::string_view label, std::string_view value,
             std::string_view unit) {
  fmt::format_to(std::back_inserter(out), "{:<16}{:>16}  {}\n", label, value, unit);
}

void add_totals(std::string& out, const ReplaySummary& summary) {
  const ReplayReport& report = summary.report;
  const std::uint64_t mean_prompt = report.served == 0 ? 0 : report.prompt_tokens / report.served;
  add_row(out, "hit ratio", fmt::format("{:.3f}", report.hit_ratio()), "of prompt tokens");
  add_row(out, "requests", grouped(report.served),
          fmt::format("served, {} refused", grouped(report.refused)));
  add_row(out, "prompts", grouped(report.prompt_tokens),
          fmt::format("tokens, {} per request", grouped(mean_prompt)));
  add_row(out, "  cached", grouped(report.cached_tokens), "tokens");
  add_row(out, "  computed", grouped(report.computed_tokens()), "tokens");
  add_row(out, "outputs", grouped(report.output_tokens), "tokens");
  add_row(out, "evicted", grouped(report.evicted.tokens),
          fmt::format("tokens, {} nodes", grouped(report.evicted.nodes)));
  add_row(out, "held at the end", grouped(summary.held.total),
          fmt::format("tokens, {} nodes, {:.1f} MiB of bookkeeping", grouped(summary.num_nodes),
                      static_cast<double>(summary.index_bytes) / (1 << 20)));
}

void add_match_ends(std::string& out, const ReplayReport& report) {
  out += "\nwhy matches ended\n";
  for (const MatchEnd end : kMatchEnds) {
    const std::uint64_t count = report.ended(end);
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(report.served);
    fmt::format_to(std::back_inserter(out), "  {:<20}{:>10}  {:6.2f} %\n", to_string(end),
                   grouped(count), 100 * share);
  }
}

void add_operations(std::string& out, const ReplayReport& report) {
  constexpr std::string_view kFormat = "{:<12}{:>12}{:>12}{:>12}{:>12}{:>12}\n";
  out += '\n';
  fmt::format_to(std::back_inserter(out), kFormat, "operation", "calls", "mean", "p50", "p99",
                 "max");
  for (const Operation operation : kOperations) {
    const Histogram& latency = report.latency(operation);
    if (latency.count() == 0) continue;
    fmt::format_to(std::back_inserter(out), kFormat, to_string(operation), grouped(latency.count()),
                   duration(latency.mean()), duration(latency.percentile(50)),
                   duration(latency.percentile(99)), duration(latency.max()));
  }
}

void add_speed(std::string& out, const ReplaySummary& summary) {
  const auto requests = static_cast<double>(summary.report.served + summary.report.refused);
  const double rate = requests / std::max(summary.wall_seconds, 1e-9);
  const double cache_ns = 1e9 * summary.report.cache_seconds();
  const std::uint64_t started = summary.report.latency(Operation::start).count();
  out += fmt::format("\n{} in all, {} requests/s; in the cache {}, {} per request\n",
                     duration(1e9 * summary.wall_seconds),
                     grouped(static_cast<std::uint64_t>(rate)), duration(cache_ns),
                     duration(cache_ns / std::max(static_cast<double>(started), 1.0)));
}

std::string json_operation(Operation operation, const Histogram& latency) {
  return fmt::format(
      R"("{}": {{"calls": {}, "mean_ns": {:.1f}, "p50_ns": {}, "p99_ns": {}, "max_ns": {}}})",
      to_string(operation), latency.count(), latency.mean(), latency.percentile(50),
      latency.percentile(99), latency.max());
}

}  // namespace

std::string replay_table(const ReplaySummary& summary) {
  const ReplayReport& report = summary.report;
  std::vector<std::string> parameters;
  for (const auto& [name, value] : summary.parameters)
    parameters.push_back(fmt::format("{} {}", name, value));

  std::string out = fmt::format("workload  {}: {}\n", summary.workload, joined(parameters, ", "));
  out += fmt::format("cache     {} tokens in pages of {}, {} eviction\n\n",
                     grouped(summary.capacity_tokens), summary.page_size, summary.policy);
  add_totals(out, summary);
  add_match_ends(out, report);
  add_operations(out, report);

  add_speed(out, summary);
  return out;
}

std::string replay_json(const ReplaySummary& summary) {
  const ReplayReport& report = summary.report;
  std::vector<std::string> workload{fmt::format(R"("name": "{}")", summary.workload)};
  for (const auto& [name, value] : summary.parameters)
    workload.push_back(fmt::format(R"("{}": {})", json_name(name), value));
  std::vector<std::string> ends;
  for (const MatchEnd end : kMatchEnds)
    ends.push_back(fmt::format(R"("{}": {})", json_name(to_string(end)), report.ended(end)));
  std::vector<std::string> operations;
  for (const Operation operation : kOperations)
    operations.push_back(json_operation(operation, report.latency(operation)));

  std::string out = "{\n";
  const auto add = [&out]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
  };
  add("  \"workload\": {{{}}},\n", joined(workload, ", "));
  add("  \"cache\": {{\"capacity_tokens\": {}, \"page_size\": {}, \"policy\": \"{}\"}},\n",
      summary.capacity_tokens, summary.page_size, summary.policy);
  add("  \"served_requests\": {},\n  \"refused_requests\": {},\n", report.served, report.refused);
  add("  \"prompt_tokens\": {},\n  \"cached_tokens\": {},\n  \"computed_tokens\": {},\n",
      report.prompt_tokens, report.cached_tokens, report.computed_tokens());
  add("  \"output_tokens\": {},\n  \"hit_ratio\": {:.6f},\n", report.output_tokens,
      report.hit_ratio());
  add("  \"evicted_tokens\": {},\n  \"evicted_nodes\": {},\n", report.evicted.tokens,
      report.evicted.nodes);
  add("  \"held_tokens\": {},\n  \"held_nodes\": {},\n  \"index_bytes\": {},\n", summary.held.total,
      summary.num_nodes, summary.index_bytes);
  add("  \"match_ends\": {{{}}},\n", joined(ends, ", "));
  add("  \"operations\": {{\n    {}\n  }},\n", joined(operations, ",\n    "));
  add("  \"cache_s\": {:.6f},\n  \"wall_s\": {:.6f}\n}}\n", report.cache_seconds(),
      summary.wall_seconds);
  return out;
}

}  // namespace pando::tools
