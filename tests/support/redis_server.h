// SPDX-License-Identifier: Apache-2.0
// Real redis-server processes for tests: on loopback, on ports of their own, in a temporary folder,
// without persistence. They are killed and reaped by their ids when the objects go, and by the
// kernel should the test die first. Belongs to one thread, the main one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/temp_directory.h"

namespace pando::testing {

/// Both can be run.
bool have_redis();

/// Skips the test in a fixture's or a test's body.
#define PANDO_REQUIRE_REDIS()                           \
  if (!pando::testing::have_redis())                    \
  GTEST_SKIP() << "redis-server and redis-cli are not " \
                  "installed"

/// Tries until it is true; false when the time is over.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds timeout = std::chrono::seconds(20));

class RedisServer {
 public:
  /// Runs, and answers PING (or asks for a password), when the constructor returns.
  explicit RedisServer(std::vector<std::string> options = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::uint16_t port() const { return port_; }
  std::string address() const;
  std::string unix_path() const;

  void kill();     ///< at once, and reaped
  void restart();  ///< on the same port, empty
  void freeze();   ///< accepts connections and answers nothing
  void thaw();

  /// One command on a connection of its own; integers and arrays as text, errors with a '-'.
  std::string command(const std::vector<std::string>& arguments,
                      const std::string& password = {}) const;
  std::string get(const std::string& key) const { return command({"GET", key}); }
  std::uint64_t info(const std::string& field) const;

 private:
  bool start();

  testing::TempDirectory folder_;
  std::vector<std::string> options_;
  std::uint16_t port_ = 0;
  pid_t pid_ = 0;
};

/// Masters are the first half (or all), replicas the second.
class RedisCluster {
 public:
  RedisCluster(std::size_t num_masters, std::size_t replicas_per_master);

  std::size_t size() const { return servers_.size(); }
  RedisServer& server(std::size_t i) { return *servers_[i]; }
  std::vector<std::string> addresses() const;
  std::string id(std::size_t i) const;
  /// The master that has the slot of this key.
  std::size_t owner(const std::string& key) const;
  bool is_master(std::size_t i) const;
  /// All running servers say that the cluster works.
  bool is_up() const;
  void kill(std::size_t i);

 private:
  std::vector<std::unique_ptr<RedisServer>> servers_;
  std::vector<bool> running_;
};

/// Runs a program to its end; its exit status is 0.
bool run_program(const std::vector<std::string>& arguments);

}  // namespace pando::testing
