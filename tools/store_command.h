// SPDX-License-Identifier: Apache-2.0
// The verbs of `pando store`, each in a file of its own; tools/store.cc joins them. Those that only
// read change nothing, and make nothing that is not there.
#pragma once

#include "tools/command.h"

namespace pando::tools {

Command add_store_ls(CLI::App& store);
Command add_store_stat(CLI::App& store);
Command add_store_verify(CLI::App& store);
Command add_store_gc(CLI::App& store);
Command add_store_import(CLI::App& store);
Command add_store_export(CLI::App& store);

}  // namespace pando::tools
