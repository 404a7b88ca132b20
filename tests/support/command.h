// SPDX-License-Identifier: Apache-2.0
// Runs the pando command as a user would, and takes what it says. PANDO_COMMAND is its path.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temp_directory.h"

namespace pando::testing {

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct CommandResult {
  int code = -1;  ///< of exit; 128 and more: the signal that ended it
  std::string out, err;

  /// Of standard output; fails the test where it is no JSON.
  nlohmann::json json() const {
    nlohmann::json parsed = nlohmann::json::parse(out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << out << err;
    return parsed;
  }
};

/// A command that runs; ended and reaped when the object goes.
class RunningCommand {
 public:
  explicit RunningCommand(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), PANDO_COMMAND);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int out = ::open((temp_ / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int err = ::open((temp_ / "err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int in = ::open("/dev/null", O_RDONLY);
    ::dup2(in, 0);
    ::dup2(out, 1);
    ::dup2(err, 2);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ~RunningCommand() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  std::string out() const { return read_text(temp_ / "out"); }
  std::string err() const { return read_text(temp_ / "err"); }
  void signal(int number) { ::kill(pid_, number); }
  CommandResult wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(), err()};
  }

 private:
  TempDirectory temp_;
  pid_t pid_ = 0;
};

inline CommandResult pando_command(std::vector<std::string> arguments) {
  return RunningCommand(std::move(arguments)).wait();
}

}  // namespace pando::testing
