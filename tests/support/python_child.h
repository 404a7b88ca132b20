// SPDX-License-Identifier: Apache-2.0
// A Python program as a child process that answers each line with a line of JSON. Ended, and waited
// for, when it goes.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/piped_child.h"

namespace pando::testing {

inline constexpr const char* kPython = "/usr/bin/python3";

/// Whether the system's Python has these modules.
inline bool python_has(const std::string& modules) {
  const std::string command = std::string(kPython) + " -c 'import " + modules + "' 2>/dev/null";
  return std::system(command.c_str()) == 0;
}

class PythonChild {
 public:
  PythonChild(const std::string& program, const std::vector<std::string>& arguments)
      : child_(words(program, arguments)) {}
  ~PythonChild() {
    child_.send(SIGTERM);
    child_.wait();
  }
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  void tell(const std::string& line) { child_.tell(line); }
  nlohmann::json answer() {
    const std::string line = child_.line();
    nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(value.is_discarded()) << "the child answered: " << line;
    return value;
  }
  nlohmann::json ask(const std::string& line) {
    tell(line);
    return answer();
  }

 private:
  static std::vector<std::string> words(const std::string& program,
                                        const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {kPython, program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

  PipedChild child_;
};

}  // namespace pando::testing
