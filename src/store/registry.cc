// SPDX-License-Identifier: Apache-2.0
// Stores by name. One table for the process, which begins with the stores of Pando; names are added
// and never taken away. Factories run outside its lock: they may take long, or register others.
#include "store/registry.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "pando/store_backends.h"
#include "store/option_reader.h"

namespace pando {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, StoreFactory, std::less<>> factories = {
      {"file", make_file_store_from},
      {"memory", make_memory_store_from},
      {"redis", make_redis_store_from},
  };
};

Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

Result<std::unique_ptr<StoreBackend>> make_contained(std::string_view name,
                                                     const StoreFactory& factory,
                                                     const Config& config) try {
  Result<std::unique_ptr<StoreBackend>> made = factory(config);
  if (made.ok() && *made == nullptr)
    return make_error(ErrorCode::unavailable, "store '{}': its factory made nothing", name);
  return made;
} catch (const std::exception& e) {
  return make_error(ErrorCode::unavailable, "store '{}': its factory threw: {}", name, e.what());
} catch (...) {
  return make_error(ErrorCode::unavailable, "store '{}': its factory threw", name);
}

}  // namespace

Result<std::unique_ptr<StoreBackend>> make_memory_store_from(const Config& config) {
  MemoryStoreOptions options;
  OptionReader reader(config, "memory store");
  reader.read_bytes("capacity_bytes", options.capacity_bytes);
  if (Status valid = reader.finish(); !valid) return valid.error();
  return make_memory_store(options);
}

Status register_store(std::string name, StoreFactory factory) {
  const auto is_bad = [](char c) { return std::isgraph(static_cast<unsigned char>(c)) == 0; };
  if (name.empty() || std::any_of(name.begin(), name.end(), is_bad))
    return make_error(ErrorCode::invalid_argument,
                      "a store named '{}'; expected visible ASCII without blanks", name);
  if (!factory) return make_error(ErrorCode::invalid_argument, "store '{}' has no factory", name);
  const std::lock_guard lock(registry().mutex);
  const auto [at, added] = registry().factories.emplace(std::move(name), std::move(factory));
  if (added) return {};
  return make_error(ErrorCode::invalid_argument, "there is a store '{}' already", at->first);
}

std::vector<std::string> registered_stores() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry().factories) names.push_back(name);
  return names;
}

Result<std::unique_ptr<StoreBackend>> make_store_backend(std::string_view name,
                                                         const Config& config) {
  StoreFactory factory;
  {
    const std::lock_guard lock(registry().mutex);
    if (const auto at = registry().factories.find(name); at != registry().factories.end())
      factory = at->second;
  }
  if (factory) return make_contained(name, factory, config);
  std::string names;
  for (const std::string& known : registered_stores()) {
    if (!names.empty()) names += ", ";
    names += known;
  }
  return make_error(ErrorCode::not_found, "there is no store '{}'; expected one of {}", name,
                    names);
}

}  // namespace pando
