// SPDX-License-Identifier: Apache-2.0
// What main.cc and the subcommands agree on: how a subcommand joins the command line, and what the
// exit codes mean. To add one: write tools/<name>.cc, declare its add function here, and list it in
// main.cc.
#pragma once

#include <CLI/App.hpp>
#include <functional>

#include "pando/result.h"

namespace pando::tools {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,    ///< the command was understood but could not be done
  kBadUsage = 2,  ///< the command line makes no sense
};

struct Command {
  CLI::App* app;                ///< true when chosen; owned by the root
  std::function<Status()> run;  ///< after parsing. invalid_argument is bad usage, others failures
};

Command add_bench_command(CLI::App& root);
Command add_compare_command(CLI::App& root);
Command add_gen_command(CLI::App& root);
Command add_plan_command(CLI::App& root);
Command add_replay_command(CLI::App& root);
Command add_store_command(CLI::App& root);
Command add_top_command(CLI::App& root);
Command add_why_command(CLI::App& root);

}  // namespace pando::tools
