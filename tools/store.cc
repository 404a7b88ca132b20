// SPDX-License-Identifier: Apache-2.0
// `pando store`: looks after the pages that caches leave in a file or Redis store.
#include <CLI/CLI.hpp>
#include <vector>

#include "base/check.h"
#include "tools/store_command.h"

namespace pando::tools {

Command add_store_command(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("store", "List, check, shrink, fill and copy a file or Redis store");
  app->require_subcommand(1);
  const std::vector<Command> verbs = {add_store_ls(*app),     add_store_stat(*app),
                                      add_store_verify(*app), add_store_gc(*app),
                                      add_store_import(*app), add_store_export(*app)};
  return {app, [verbs]() -> Status {
            for (const Command& verb : verbs) {
              if (!*verb.app) continue;
              Status done = verb.run();
              if (done) return done;
              return make_error(done.error().code, "{}: {}", verb.app->get_name(),
                                done.error().message);
            }
            return {};
          }};
}

}  // namespace pando::tools
