// SPDX-License-Identifier: Apache-2.0
// Work in a forked process, with a limit on how long it may take: for what may hang, changes limits
// or users of the whole process, or must not outlive the test.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace pando::testing {

/// Runs `work` in a child; "" if it returned true in time, else what happened.
template <typename Work>
std::string failure_in_child(const Work& work,
                             std::chrono::seconds limit = std::chrono::seconds(20)) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = false;
    try {
      good = work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "in the child: %s\n", e.what());
    }
    std::_Exit(good ? 0 : 1);
  }
  const auto until = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return "it hung";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (WIFSIGNALED(status)) return "it was ended by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "it was wrong";
}

}  // namespace pando::testing
