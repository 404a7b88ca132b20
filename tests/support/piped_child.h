// SPDX-License-Identifier: Apache-2.0
// A child process that is spoken to line by line: its input and its output are pipes of ours.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pando::testing {

class PipedChild {
 public:
  /// `words`: the program and its arguments.
  explicit PipedChild(std::vector<std::string> words) {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = ::fdopen(in[1], "w");
    out_ = ::fdopen(out[0], "r");
  }
  /// Its input ends. That the process does, and is waited for, is the owner's to see to.
  ~PipedChild() {
    std::fclose(in_);
    std::fclose(out_);
  }
  PipedChild(const PipedChild&) = delete;
  PipedChild& operator=(const PipedChild&) = delete;

  void tell(const std::string& line) {
    std::fputs((line + "\n").c_str(), in_);
    std::fflush(in_);
  }
  /// The next line it has said, of any length. Empty: it has ended.
  std::string line() {
    std::string line;
    for (int c; (c = std::fgetc(out_)) != EOF && c != '\n';) line += static_cast<char>(c);
    return line;
  }
  void send(int signal) const { ::kill(pid_, signal); }
  /// Waits for its end, or with WUNTRACED for its stop: the status, as waitpid() has it.
  int wait(int options = 0) const {
    int status = 0;
    ::waitpid(pid_, &status, options);
    return status;
  }

 private:
  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

}  // namespace pando::testing
