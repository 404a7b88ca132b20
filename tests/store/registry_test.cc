// SPDX-License-Identifier: Apache-2.0
// Stores by name, and the options that the stores of Pando take.
#include <algorithm>
#include <stdexcept>

#include "pando/config.h"
#include "support/store_fixture.h"

namespace pando::testing {
namespace {

Config config(std::initializer_list<std::pair<std::string, Config::Value>> options) {
  Config out;
  for (const auto& [name, value] : options) out.set(name, value);
  return out;
}

TEST(Registry, KnowsTheStoresThatComeWithPando) {
  const std::vector<std::string> names = registered_stores();
  for (const char* name : {"file", "memory", "redis"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
}

TEST(Registry, MakesAStoreFromItsOptions) {
  const auto store = make_store_backend("memory", config({{"capacity_bytes", "2KiB"}}));
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ((*store)->name(), "memory");
  EXPECT_EQ((*store)->stats().capacity_bytes, 2048u);
}

TEST(Registry, AnUnknownStoreIsAnErrorThatNamesTheKnownOnes) {
  EXPECT_TRUE(fails(make_store_backend("tape", {}), ErrorCode::not_found,
                    "there is no store 'tape'; expected one of "));
  EXPECT_TRUE(fails(make_store_backend("tape", {}), ErrorCode::not_found, "file, memory, redis"));
}

TEST(Registry, AnUnknownOptionIsAnErrorThatNamesTheKnownOnes) {
  EXPECT_TRUE(fails(make_store_backend("memory", config({{"capacity", std::int64_t{1}}})),
                    ErrorCode::invalid_argument,
                    "memory store: unknown option capacity; expected some of capacity_bytes"));
  EXPECT_TRUE(fails(make_store_backend("file", config({{"dir", "/tmp"}})),
                    ErrorCode::invalid_argument,
                    "file store: unknown option dir; expected some of directory, capacity_bytes, "
                    "min_free_bytes, direct, io_uring, sync, depth"));
  EXPECT_TRUE(fails(make_store_backend("redis", config({{"host", "a"}, {"port", "b"}})),
                    ErrorCode::invalid_argument,
                    "redis store: unknown options host, port; expected some of servers, cluster, "
                    "username, password, key_prefix, ttl, connect_timeout, io_timeout, "
                    "min_backoff, max_backoff, pipeline_bytes"));
}

TEST(Registry, OptionsOfAnotherTypeAreErrorsThatNameThem) {
  const auto refuses = [](std::string_view store, const std::string& name, Config::Value value,
                          std::string_view message) {
    return fails(make_store_backend(store, config({{name, std::move(value)}})),
                 ErrorCode::invalid_argument, message);
  };
  EXPECT_TRUE(refuses("memory", "capacity_bytes", true,
                      "memory store: capacity_bytes must be a size such as 4096, \"500MB\" or "
                      "\"64GiB\", got a boolean"));
  EXPECT_TRUE(refuses("file", "direct", "yes", "direct must be a boolean, got text"));
  EXPECT_TRUE(refuses("file", "depth", "many", "depth must be an integer, got text"));
  EXPECT_TRUE(refuses("file", "depth", std::int64_t{-1}, "depth must be at least 0, got -1"));
  EXPECT_TRUE(refuses("file", "directory", false, "directory must be text, got a boolean"));
  EXPECT_TRUE(refuses("redis", "servers", 1.5, "servers must be a list of text, got a fraction"));
  EXPECT_TRUE(refuses("redis", "ttl", "1h", "ttl must be a number, got text"));
  EXPECT_TRUE(refuses("redis", "io_timeout", -1.0,
                      "io_timeout must be seconds from 0 to 1000000000, got -1"));
}

TEST(Registry, TakesStoresOfTheUser) {
  const StoreFactory factory = [](const Config& options) -> Result<std::unique_ptr<StoreBackend>> {
    if (options.has("throw")) throw std::runtime_error("no such luck");
    if (options.has("nothing")) return std::unique_ptr<StoreBackend>();
    return make_memory_store();
  };
  ASSERT_TRUE(register_store("attic", factory).ok());
  EXPECT_TRUE(make_store_backend("attic", {}).ok());
  EXPECT_TRUE(fails(make_store_backend("attic", config({{"throw", true}})), ErrorCode::unavailable,
                    "store 'attic': its factory threw: no such luck"));
  EXPECT_TRUE(fails(make_store_backend("attic", config({{"nothing", true}})),
                    ErrorCode::unavailable, "store 'attic': its factory made nothing"));
  EXPECT_TRUE(fails(register_store("attic", factory), ErrorCode::invalid_argument,
                    "there is a store 'attic' already"));
  EXPECT_TRUE(fails(register_store("memory", factory), ErrorCode::invalid_argument, "already"));
  EXPECT_TRUE(fails(register_store("", factory), ErrorCode::invalid_argument, "named ''"));
  EXPECT_TRUE(fails(register_store("a b", factory), ErrorCode::invalid_argument, "named 'a b'"));
  EXPECT_TRUE(fails(register_store("empty", {}), ErrorCode::invalid_argument, "no factory"));
}

}  // namespace
}  // namespace pando::testing
