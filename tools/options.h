// SPDX-License-Identifier: Apache-2.0
// Options that several subcommands have: which trace, how large a tier, which model, where results
// go. Each parses into a plain struct.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replay/capacity.h"
#include "replay/models.h"
#include "replay/survey.h"
#include "replay/trace_file.h"

namespace pando::tools {

struct TraceArguments {
  std::vector<std::string> paths;
  TraceOptions options;
};
void add_trace_options(CLI::App& app, TraceArguments& arguments);

/// Opened, and its first request looked at. An error if there is none.
Result<std::unique_ptr<PeekedTrace>> open_trace(const TraceArguments& arguments);
/// A pass over all of it, with a progress bar. Refused for standard input, which ends with it.
Result<Survey> survey_trace(const TraceArguments& arguments, bool quiet);

struct ResultArguments {
  std::string json;    ///< a path, "-" for standard output, empty for none
  std::string report;  ///< a path, or empty
  bool quiet = false;
};
void add_result_options(CLI::App& app, ResultArguments& arguments);
/// The same without a report, for results that it has no pictures for.
void add_json_options(CLI::App& app, ResultArguments& arguments);

/// An option that takes a quantity such as 64k.
void add_quantity(CLI::App& app, const std::string& name, std::size_t& target,
                  const std::string& description);
void add_quantity(CLI::App& app, const std::string& name, std::optional<std::size_t>& target,
                  const std::string& description);
/// An option that takes a capacity such as 64GiB or 5%.
CLI::Option* add_capacity(CLI::App& app, const std::string& name, std::optional<Capacity>& target,
                          const std::string& description);
void add_model(CLI::App& app, std::string& target);

}  // namespace pando::tools
