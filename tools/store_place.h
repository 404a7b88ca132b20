// SPDX-License-Identifier: Apache-2.0
// Where a store is, as the command line says it: file:DIRECTORY or redis:HOST:PORT with what a
// server wants to know. Opened from outside to be looked at, or as a backend to be filled.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>

#include "pando/result.h"
#include "store/store_reader.h"

namespace pando::tools {

struct StorePlace {
  std::string text;  ///< as given
  std::string key_prefix = "pando:";
  bool cluster = false;
  std::string username;
  std::string password_file;
};

/// STORE and the options of servers.
void add_store_place(CLI::App& app, StorePlace& place);
/// The options of servers alone, named "--<before>key-prefix" and so on.
void add_server_options(CLI::App& app, const std::string& before, StorePlace& place);

Result<std::unique_ptr<StoreReader>> open_reader(const StorePlace& place, StoreAccess access);
/// Makes a directory that is not there. Without a capacity nothing is evicted before the disk is
/// full.
Result<std::unique_ptr<StoreBackend>> open_backend(const StorePlace& place,
                                                   std::optional<std::uint64_t> capacity_bytes);
/// They are one store, as far as their names tell.
bool is_same_place(const StorePlace& a, const StorePlace& b);

}  // namespace pando::tools
