// SPDX-License-Identifier: Apache-2.0
// A Python program as a child process that answers each line with a line of JSON. Ended, and waited
// for, when it goes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pando::testing {

inline constexpr const char* kPython = "/usr/bin/python3";

/// Whether the system's Python has these modules.
inline bool python_has(const std::string& modules) {
  const std::string command = std::string(kPython) + " -c 'import " + modules + "' 2>/dev/null";
  return std::system(command.c_str()) == 0;
}

class PythonChild {
 public:
  PythonChild(const std::string& program, const std::vector<std::string>& arguments) {
    int to_child[2], from_child[2];
    EXPECT_EQ(::pipe(to_child), 0);
    EXPECT_EQ(::pipe(from_child), 0);
    std::vector<std::string> words = {kPython, program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_child[0], 0);
      ::dup2(from_child[1], 1);
      for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) ::close(fd);
      ::execv(kPython, argv.data());
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    in_ = ::fdopen(to_child[1], "w");
    out_ = ::fdopen(from_child[0], "r");
  }
  ~PythonChild() {
    std::fclose(in_);
    std::fclose(out_);
    ::kill(pid_, SIGTERM);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  void tell(const std::string& line) {
    std::fputs((line + "\n").c_str(), in_);
    std::fflush(in_);
  }
  nlohmann::json answer() {
    std::string line;
    for (int c; (c = std::fgetc(out_)) != EOF && c != '\n';) line += static_cast<char>(c);
    nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(value.is_discarded()) << "the child answered: " << line;
    return value;
  }
  nlohmann::json ask(const std::string& line) {
    tell(line);
    return answer();
  }

 private:
  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

}  // namespace pando::testing
