// SPDX-License-Identifier: Apache-2.0
// The `pando` command: parses the command line and hands over to one subcommand.
// Results go to standard output; errors and the progress bar to standard error.
// Exit codes: 0 done, 1 failed, 2 bad usage (command.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <exception>

#include "tools/command.h"
#include "tools/output_file.h"

namespace pando::tools {
namespace {

ExitCode run(const Command& command) {
  clean_up_on_signals();
  const Status done = command.run();
  if (done) return kOk;
  fmt::print(stderr, "pando {}: {}\n", command.app->get_name(), done.error().message);
  return done.error().code == ErrorCode::invalid_argument ? kBadUsage : kFailed;
}

ExitCode dispatch(int argc, char** argv) {
  CLI::App root("Pando: the KV-cache manager for LLM inference engines.", "pando");
  root.set_version_flag("--version", "pando " PANDO_VERSION);
  root.require_subcommand(0, 1);
  const std::array commands{add_replay_command(root),  add_plan_command(root),
                            add_compare_command(root), add_why_command(root),
                            add_gen_command(root),     add_store_command(root),
                            add_bench_command(root),   add_top_command(root)};

  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // also thrown for --help and --version
    return root.exit(error) == 0 ? kOk : kBadUsage;
  }
  for (const Command& command : commands) {
    if (*command.app) return run(command);
  }
  fmt::print("{}", root.help());
  return kOk;
}

}  // namespace
}  // namespace pando::tools

int main(int argc, char** argv) {
  try {
    return pando::tools::dispatch(argc, argv);
  } catch (const std::exception& error) {  // out of memory, a closed standard output
    fmt::print(stderr, "pando: {}\n", error.what());
    return pando::tools::kFailed;
  }
}
