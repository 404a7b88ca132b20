// SPDX-License-Identifier: Apache-2.0
// `pando why`: why a request of a trace hit or missed, block by block.
#include "replay/why.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "replay/replay_results.h"
#include "tools/cache_options.h"
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
  CacheArguments cache;
  std::uint64_t request = 0;
  std::size_t remember = 4'000'000;
  ResultArguments results;
};

/// What happened to the blocks, in words.
std::string reason(const BlockStory& story, const RequestStory& of, std::size_t block_tokens) {
  if (story.beyond_device) return "longer than the device: not kept";
  if (story.finding == Finding::on_host)
    return story.from_store ? "hit: in the store" : "hit: on the host";
  if (story.finding == Finding::on_device) return "hit: on the device";
  if (story.finding == Finding::other_namespace)
    return fmt::format("miss: only under another namespace ('{}')", story.ns);
  if (story.finding == Finding::never_seen)
    return of.forgetful ? "miss: never seen, or longer ago than is remembered" : "miss: never seen";
  if (story.finding != Finding::evicted) return fmt::format("miss: {}", to_string(story.finding));
  const Eviction& eviction = *story.eviction;
  return fmt::format("miss: evicted from the {} {} requests ago, at request {}: {}, {} blocks",
                     to_string(eviction.from), of.request - eviction.at_match, eviction.at_match,
                     to_string(eviction.pressure),
                     grouped((eviction.pressure_tokens + block_tokens - 1) / block_tokens));
}

std::string table(const RequestStory& story, std::size_t block_tokens) {
  std::string text =
      fmt::format("request {}{}: {} tokens in {} blocks, at {:.3f} s\n\n", story.request,
                  story.session.empty() ? "" : fmt::format(" of session {}", story.session),
                  grouped(story.input_length), grouped(story.num_blocks), story.arrival_s);
  std::size_t hits = 0;
  for (const BlockStory& part : story.blocks) {
    text += fmt::format("blocks {:>7} to {:>7}  {:>7}  {}\n", part.from, part.to - 1,
                        part.to - part.from, reason(part, story, block_tokens));
    if (part.finding == Finding::on_device || part.finding == Finding::on_host)
      hits += part.to - part.from;
  }
  if (story.tail_tokens > 0)
    text += fmt::format("the last {} tokens are shorter than a page: never cached\n",
                        story.tail_tokens);
  text += fmt::format("\n{} of {} blocks hit\n", grouped(hits), grouped(story.num_blocks));
  return text;
}

Json to_json(const RequestStory& story, std::size_t block_tokens) {
  Json parts = Json::array();
  for (const BlockStory& part : story.blocks) {
    std::string finding(to_string(part.finding));
    std::replace(finding.begin(), finding.end(), ' ', '_');
    if (part.from_store) finding = "in_the_store";
    if (part.beyond_device) finding = "longer_than_the_device";
    Json item{{"from_block", part.from}, {"to_block", part.to}, {"finding", finding}};
    if (!part.ns.empty()) item["namespace"] = part.ns;
    if (part.eviction)
      item["eviction"] = {{"from", to_string(part.eviction->from)},
                          {"at_request", part.eviction->at_match},
                          {"pressure", to_string(part.eviction->pressure)},
                          {"pressure_tokens", part.eviction->pressure_tokens}};
    parts.push_back(std::move(item));
  }
  return {{"command", "why"},
          {"request", story.request},
          {"session", story.session},
          {"arrival_s", story.arrival_s},
          {"input_tokens", story.input_length},
          {"blocks", story.num_blocks},
          {"block_tokens", block_tokens},
          {"tail_tokens", story.tail_tokens},
          {"forgetful", story.forgetful},
          {"parts", std::move(parts)}};
}

Status run(const Arguments& a) {
  Result<std::unique_ptr<PeekedTrace>> trace = open_trace(a.trace);
  if (!trace) return trace.error();
  Result<ReplayOptions> options = resolve(a.cache, a.trace, **trace, a.results.quiet);
  if (!options) return options.error();
  options->stack.remember_evicted = a.remember;
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  Result<RequestStory> story = Error{};
  {
    Progress progress("requests", !a.results.quiet);
    story = explain_request(**trace, *options, a.request, [&](std::uint64_t done) {
      progress.update(static_cast<double>(done) / static_cast<double>(a.request), done);
    });
  }
  if (!story) return story.error();
  return writer->write(to_json(*story, options->block_tokens),
                       table(*story, options->block_tokens));
}

}  // namespace

Command add_why_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* app =
      root.add_subcommand("why", "Why a request of a trace hit or missed, block by block");
  add_trace_options(*app, arguments->trace);
  app->add_option("--request", arguments->request, "Which, counted from 1")->required();
  add_cache_options(*app, arguments->cache);
  add_quantity(*app, "--remember", arguments->remember, "Evicted pages to remember");
  add_json_options(*app, arguments->results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
