// SPDX-License-Identifier: Apache-2.0
// Names of stores, taken apart.
#include "tools/store_place.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>

#include "base/check.h"

namespace pando::tools {
namespace {

constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

struct Parsed {
  std::string kind, where;
};

Result<Parsed> parse(const std::string& text) {
  const std::size_t at = text.find(':');
  Parsed parsed{text.substr(0, at), at == std::string::npos ? "" : text.substr(at + 1)};
  if ((parsed.kind == "file" || parsed.kind == "redis") && !parsed.where.empty()) return parsed;
  return make_error(ErrorCode::invalid_argument,
                    "store '{}': expected file:DIRECTORY or redis:HOST:PORT", text);
}

/// The first line: editors end a file with a line's end.
Result<std::string> read_password(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line))
    return make_error(ErrorCode::io_error, "cannot read a password from {}", path);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

Result<RedisStoreOptions> redis_options(const StorePlace& place, const std::string& where) {
  RedisStoreOptions options;
  options.servers.clear();
  for (std::size_t at = 0; at <= where.size();) {
    const std::size_t end = std::min(where.find(',', at), where.size());
    options.servers.push_back(where.substr(at, end - at));
    at = end + 1;
  }
  options.cluster = place.cluster;
  options.username = place.username;
  options.key_prefix = place.key_prefix;
  if (!place.password_file.empty()) {
    Result<std::string> password = read_password(place.password_file);
    if (!password) return password.error();
    options.password = std::move(*password);
  }
  return options;
}

}  // namespace

void add_server_options(CLI::App& app, const std::string& before, StorePlace& place) {
  const std::string dashes = "--" + before;
  app.add_option(dashes + "key-prefix", place.key_prefix, "redis: what its keys begin with")
      ->type_name("TEXT")
      ->capture_default_str();
  app.add_flag(dashes + "cluster", place.cluster,
               "redis: the servers, HOST:PORT,HOST:PORT, are some of a cluster's");
  app.add_option(dashes + "username", place.username, "redis: who logs in")->type_name("NAME");
  app.add_option(dashes + "password-file", place.password_file,
                 "redis: a file whose first line is the password")
      ->type_name("FILE");
}

void add_store_place(CLI::App& app, StorePlace& place) {
  app.add_option("STORE", place.text, "file:DIRECTORY or redis:HOST:PORT")
      ->required()
      ->type_name("");
  add_server_options(app, "", place);
}

Result<std::unique_ptr<StoreReader>> open_reader(const StorePlace& place, StoreAccess access) {
  const Result<Parsed> parsed = parse(place.text);
  if (!parsed) return parsed.error();
  if (parsed->kind == "file") return open_file_reader(parsed->where, access);
  const Result<RedisStoreOptions> options = redis_options(place, parsed->where);
  if (!options) return options.error();
  return open_redis_reader(*options);
}

Result<std::unique_ptr<StoreBackend>> open_backend(const StorePlace& place,
                                                   std::optional<std::uint64_t> capacity_bytes) {
  const Result<Parsed> parsed = parse(place.text);
  if (!parsed) return parsed.error();
  if (parsed->kind == "file")
    return make_file_store({.directory = parsed->where,
                            .capacity_bytes = capacity_bytes.value_or(kNoLimit),
                            .min_free_bytes = 0});
  const Result<RedisStoreOptions> options = redis_options(place, parsed->where);
  if (!options) return options.error();
  return make_redis_store(*options);
}

bool is_same_place(const StorePlace& a, const StorePlace& b) {
  const Result<Parsed> first = parse(a.text), second = parse(b.text);
  if (!first || !second || first->kind != second->kind) return false;
  if (first->kind == "redis") return first->where == second->where && a.key_prefix == b.key_prefix;
  std::error_code error;
  return first->where == second->where ||
         std::filesystem::equivalent(first->where, second->where, error);
}

}  // namespace pando::tools
