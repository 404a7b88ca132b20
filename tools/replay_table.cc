// SPDX-License-Identifier: Apache-2.0
// The tables of a replay: what it was, hits by tier, why the rest missed, time per operation.
#include "tools/replay_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/text.h"

namespace pando::tools {
namespace {

std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  return percent(ratio(part, whole));
}

std::string heading(const ReplayResults& results, const ReplayOptions& options,
                    const ReplaySettings& settings) {
  std::string text =
      fmt::format("trace     {}: {} requests, {} blocks of {} tokens, {}{} different\n",
                  joined(settings.files, ", "), grouped(results.requests), grouped(results.blocks),
                  options.block_tokens, results.unique_blocks_estimated ? "about " : "",
                  grouped(results.unique_blocks));
  if (settings.skipped_lines > 0)
    text += fmt::format("          {} bad lines skipped\n", grouped(settings.skipped_lines));
  text += fmt::format(
      "cache     pages of {}, {} eviction{}, {}\n\n", options.stack.page_size, options.stack.policy,
      options.stack.window ? fmt::format(", window of {}", *options.stack.window) : std::string(),
      options.mode == ReplayMode::timed ? "timed" : "serial");
  return text;
}

std::string tiers(const ReplayResults& results, const ReplayOptions& options) {
  TextTable table({"hits", "blocks", "of blocks", "tokens", "of tokens", "capacity", "peak",
                   "evicted (tokens)"});
  const auto add = [&](std::string name, std::uint64_t blocks, std::uint64_t tokens,
                       std::vector<std::string> rest) {
    std::vector<std::string> row{std::move(name), grouped(blocks),
                                 percent_of(blocks, results.blocks), grouped(tokens),
                                 percent_of(tokens, results.input_tokens)};
    row.insert(row.end(), rest.begin(), rest.end());
    table.add(std::move(row));
  };
  for (const Tier tier : kTiers) {
    if (results.capacity_tokens[tier] == 0) continue;
    add(std::string(to_string(tier)), results.hit_blocks[tier], results.hit_tokens[tier],
        {grouped(results.capacity_tokens[tier]), grouped(results.peak_tokens[tier]),
         grouped(results.evicted_tokens[tier])});
  }
  if (options.stack.host_tokens > 0)
    add("all", results.all_hit_blocks(), results.all_hit_tokens(), {});
  return table.text();
}

std::string misses(const ReplayResults& results) {
  TextTable table({"misses", "blocks", "of blocks"});
  for (const Miss miss : kMisses) {
    const std::uint64_t blocks = results.missed_blocks[miss];
    std::string name(to_string(miss));
    std::replace(name.begin(), name.end(), '_', ' ');
    if (blocks > 0)
      table.add({std::move(name), grouped(blocks), percent_of(blocks, results.blocks)});
  }
  return table.text();
}

std::string operations(const ReplayResults& results) {
  TextTable table({"operation", "calls", "mean", "p50", "p99", "max"});
  const auto ns = [](std::uint64_t value) { return duration(static_cast<double>(value)); };
  for (const Operation operation : kOperations) {
    const Histogram& took = results.nanoseconds[operation];
    if (took.count() == 0) continue;
    table.add({std::string(to_string(operation)), grouped(took.count()), duration(took.mean()),
               ns(took.percentile(50)), ns(took.percentile(99)), ns(took.max())});
  }
  return table.text();
}

std::string moved(const ReplayResults& results, const ReplayOptions& options) {
  if (options.stack.host_tokens == 0) return "";
  TextTable table({"moved", "tokens", "bytes"});
  const auto add = [&](const char* way, std::uint64_t tokens) {
    const double bytes = static_cast<double>(tokens) * static_cast<double>(results.token_bytes);
    table.add({way, grouped(tokens), results.token_bytes > 0 ? size_text(bytes) : "-"});
  };
  add("device to host", results.backed_up_tokens);
  add("host to device", results.loaded_tokens);
  if (options.stack.store_tokens > 0) {
    add("host to store", results.stored_tokens);
    add("store to host", results.fetched_tokens);
  }
  return fmt::format("\n{}", table.text());
}

std::string timing(const ReplayResults& results) {
  if (!results.is_timed) return "";
  TextTable table({"waiting", "p50", "p99", "max"});
  const auto add = [&](const char* name, const Histogram& us) {
    const auto text = [](std::uint64_t value) {
      return duration(1e3 * static_cast<double>(value));
    };
    table.add({name, text(us.percentile(50)), text(us.percentile(99)), text(us.max())});
  };
  add("in the queue", results.queue_us);
  add("for the first token", results.first_token_us);
  return fmt::format("\n{}at most {} running; done after {:.1f} s\n", table.text(),
                     results.max_running, results.last_finish_s);
}

}  // namespace

std::string replay_table(const ReplayResults& results, const ReplayOptions& options,
                         const ReplaySettings& settings) {
  std::string text = heading(results, options, settings);
  text += fmt::format("{}\n{}", tiers(results, options), misses(results));
  text += fmt::format("\n{} of {} prompt tokens need not be computed ({})\n",
                      grouped(results.all_hit_tokens()), grouped(results.input_tokens),
                      percent_of(results.all_hit_tokens(), results.input_tokens));
  if (results.truncated_requests > 0)
    text += fmt::format("{} requests are longer than the device: only their beginning was kept\n",
                        grouped(results.truncated_requests));
  if (options.stack.geometry)
    text += fmt::format("the bytes of {} cached tokens were compared: all right\n",
                        grouped(results.verified_tokens));
  text += fmt::format("{}{}\n{}", moved(results, options), timing(results), operations(results));
  text += fmt::format("\n{} in all, {:.0f} requests/s; memory {} at most, {} of it the tree's\n",
                      duration(1e9 * results.wall_seconds),
                      static_cast<double>(results.requests) / std::max(results.wall_seconds, 1e-9),
                      size_text(static_cast<double>(results.peak_rss_bytes)),
                      size_text(static_cast<double>(results.index_bytes)));
  return text;
}

}  // namespace pando::tools
