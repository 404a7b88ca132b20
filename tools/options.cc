// SPDX-License-Identifier: Apache-2.0
// Shared options. What cannot be parsed is bad usage, with the library's own words.
#include "tools/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/check.h"
#include "tools/progress.h"

namespace pando::tools {
namespace {

template <typename Target>
void add_quantity_to(CLI::App& app, const std::string& name, Target& target,
                     const std::string& description, const std::string& shown) {
  const auto assign = [name, &target](const std::string& text) {
    const Result<std::uint64_t> value = parse_quantity(text);
    if (!value) throw CLI::ValidationError(name, value.error().message);
    target = static_cast<std::size_t>(*value);
  };
  app.add_option_function<std::string>(name, assign, description)
      ->type_name("N")
      ->default_str(shown);
}

}  // namespace

void add_quantity(CLI::App& app, const std::string& name, std::size_t& target,
                  const std::string& description) {
  add_quantity_to(app, name, target, description, std::to_string(target));
}
void add_quantity(CLI::App& app, const std::string& name, std::optional<std::size_t>& target,
                  const std::string& description) {
  add_quantity_to(app, name, target, description, "");
}

CLI::Option* add_capacity(CLI::App& app, const std::string& name, std::optional<Capacity>& target,
                          const std::string& description) {
  const auto assign = [name, &target](const std::string& text) {
    const Result<Capacity> value = parse_capacity(text);
    if (!value) throw CLI::ValidationError(name, value.error().message);
    target = *value;
  };
  return app.add_option_function<std::string>(name, assign, description)->type_name("SIZE");
}

void add_model(CLI::App& app, std::string& target) {
  std::string names;
  for (const std::string& name : model_names()) names += names.empty() ? name : ", " + name;
  app.add_option("--model", target,
                 "What a token takes, for sizes in bytes: a config.json, or one of " + names)
      ->type_name("NAME|FILE");
}

void add_trace_options(CLI::App& app, TraceArguments& arguments) {
  app.add_option("TRACE", arguments.paths,
                 "JSONL with hash_ids or tokens, or CSV with lengths; plain, gzip or zstd; - for "
                 "standard input. Several are merged by time")
      ->required()
      ->type_name("");
  add_quantity(app, "--block-tokens", arguments.options.block_tokens,
               "Tokens that one of the trace's blocks stands for (default: told by the trace)");
  app.add_flag("--skip-bad", arguments.options.skip_bad,
               "Count lines that make no sense instead of stopping at them");
  add_quantity(app, "--reorder", arguments.options.reorder,
               "Look ahead N requests and take the earliest first: for recorded traces");
  app.add_flag("--same-ids", arguments.options.same_ids,
               "Of several traces: equal ids are equal blocks, as in parts of one recording");
}

Result<std::unique_ptr<PeekedTrace>> open_trace(const TraceArguments& arguments) {
  if (std::count(arguments.paths.begin(), arguments.paths.end(), "-") > 1)
    return Error{ErrorCode::invalid_argument, "standard input can be read only once"};
  Result<std::unique_ptr<Trace>> trace = MergedTrace::open(arguments.paths, arguments.options);
  if (!trace) return trace.error();
  Result<std::unique_ptr<PeekedTrace>> peeked = PeekedTrace::create(std::move(*trace));
  if (!peeked) return peeked.error();
  if ((*peeked)->empty())
    return make_error(ErrorCode::not_found, "'{}' has no requests", arguments.paths[0]);
  return peeked;
}

Result<Survey> survey_trace(const TraceArguments& arguments, bool quiet) {
  if (std::count(arguments.paths.begin(), arguments.paths.end(), "-") > 0)
    return Error{
        ErrorCode::invalid_argument,
        "a share of the different blocks, or sessions, need a trace that can be read twice; "
        "standard input cannot"};
  Result<std::unique_ptr<PeekedTrace>> trace = open_trace(arguments);
  if (!trace) return trace.error();
  Progress progress("requests", !quiet);
  std::uint64_t requests = 0;
  return survey(**trace, [&](double done) { progress.update(done, ++requests); });
}

void add_json_options(CLI::App& app, ResultArguments& arguments) {
  app.add_option("--json", arguments.json, "Write the results as JSON; - for standard output")
      ->type_name("FILE");
  app.add_flag("--quiet", arguments.quiet, "No progress bar, no table");
}

void add_result_options(CLI::App& app, ResultArguments& arguments) {
  add_json_options(app, arguments);
  app.add_option("--report", arguments.report, "Write the results as one HTML page")
      ->type_name("FILE");
}

}  // namespace pando::tools
