// SPDX-License-Identifier: Apache-2.0
// `pando gen`: writes a workload from nothing but a seed, as a trace that the others read.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/check.h"
#include "replay/generate.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/output_file.h"
#include "tools/progress.h"

namespace pando::tools {
namespace {

struct Arguments {
  WorkloadOptions options;
  std::string output = "-";
  bool quiet = false;
};

Status run(WorkloadKind kind, const Arguments& a) {
  Result<std::unique_ptr<Trace>> workload = make_workload(kind, a.options);
  if (!workload) return workload.error();
  Result<OutputFile> out = OutputFile::create(a.output);
  if (!out) return out.error();
  Progress progress("requests", !a.quiet && a.output != "-");
  TraceRequest request;
  std::uint64_t made = 0;
  while (true) {
    const Result<bool> more = (*workload)->next(request);
    if (!more) return more.error();
    if (!*more) return out->commit();
    if (Status s = out->write(to_json_line(request) + "\n"); !s) return s;
    progress.update((*workload)->progress(), ++made);
  }
}

constexpr const char* kDescriptions[] = {
    "Multi-turn conversations under a few system prompts",
    "Coding agents: one long shared prompt, a repository, many turns",
    "Popular documents in front of a question",
    "Tree of thought: every thought branches into several",
    "One system prompt in front of many unrelated inputs",
};

void add_options(CLI::App& app, WorkloadKind kind, Arguments& a) {
  a.options = WorkloadOptions::of(kind);
  WorkloadOptions& o = a.options;
  app.add_option("-o,--output", a.output, "Where to; - for standard output")
      ->type_name("FILE")
      ->capture_default_str();
  add_quantity(app, "--seed", o.seed, "Same seed and options, same trace");
  add_quantity(app, "--requests", o.requests, "Requests in all");
  add_quantity(app, "--block-tokens", o.block_tokens, "Tokens per block");
  app.add_option("--rate", o.sessions_per_s, "Sessions that begin per second")
      ->capture_default_str();
  app.add_option("--think", o.think_s, "Mean seconds between two requests of a session")
      ->capture_default_str();
  add_quantity(app, "--system-prompts", o.system_prompts, "Different system prompts");
  add_quantity(app, "--system-tokens", o.system_tokens, "Mean tokens of a system prompt");
  add_quantity(app, "--user-tokens", o.user_tokens, "Mean tokens of a message");
  add_quantity(app, "--output-tokens", o.output_tokens, "Mean tokens of an answer");
  app.add_option("--zipf", o.zipf, "Popularity of the first over the others; 0: all the same")
      ->capture_default_str();
  add_quantity(app, "--contexts", o.contexts, "Texts behind the system prompt that some share");
  add_quantity(app, "--context-tokens", o.context_tokens, "Mean tokens of such a text");
  if (kind == WorkloadKind::tree) {
    add_quantity(app, "--branching", o.branching, "Thoughts that follow each");
    add_quantity(app, "--depth", o.depth, "Thoughts on top of each other");
    return;
  }
  add_quantity(app, "--turns", o.turns, "Mean requests of a session");
  if (kind != WorkloadKind::rag) return;
  add_quantity(app, "--documents", o.documents, "Documents to choose from");
  add_quantity(app, "--document-tokens", o.document_tokens, "Mean tokens of a document");
  add_quantity(app, "--documents-per-request", o.documents_per_request, "Documents in front");
}

}  // namespace

Command add_gen_command(CLI::App& root) {
  CLI::App* app = root.add_subcommand("gen", "Write a workload from nothing but a seed");
  app->require_subcommand(1);
  std::vector<std::pair<CLI::App*, std::function<Status()>>> kinds;
  for (const std::string& name : workload_names()) {
    const WorkloadKind kind = *parse_workload_kind(name);
    CLI::App* sub = app->add_subcommand(name, kDescriptions[static_cast<std::size_t>(kind)]);
    const auto arguments = std::make_shared<Arguments>();
    add_options(*sub, kind, *arguments);
    sub->add_flag("--quiet", arguments->quiet, "No progress bar");
    kinds.emplace_back(sub, [kind, arguments] { return run(kind, *arguments); });
  }
  return {app, [kinds]() -> Status {
            for (const auto& [sub, run_kind] : kinds) {
              if (*sub) return run_kind();
            }
            return {};
          }};
}

}  // namespace pando::tools
