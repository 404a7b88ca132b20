// SPDX-License-Identifier: Apache-2.0
// fork, exec, poll. A child asks the kernel to be ended when its parent is.
#include "tools/child_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pando::tools {
namespace {

struct Child {
  std::size_t command = 0;
  pid_t pid = 0;
  std::array<int, 2> pipes{-1, -1};  // standard output, standard error
  std::array<std::string, 2> texts;

  bool is_open() const { return pipes[0] >= 0 || pipes[1] >= 0; }
};

[[noreturn]] void become(const std::vector<std::string>& words, pid_t parent, int out, int err) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // it ended before
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  std::vector<char*> arguments{const_cast<char*>("pando")};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

Result<Child> start(std::size_t command, const std::vector<std::string>& words) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    return make_error(ErrorCode::io_error, "cannot make a pipe: {}", std::strerror(errno));
  if (::pipe2(err, O_CLOEXEC) != 0) {
    ::close(out[0]);
    ::close(out[1]);
    return make_error(ErrorCode::io_error, "cannot make a pipe: {}", std::strerror(errno));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(words, parent, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  if (pid < 0) {
    ::close(out[0]);
    ::close(err[0]);
    return make_error(ErrorCode::io_error, "cannot start a process: {}", std::strerror(errno));
  }
  return Child{command, pid, {out[0], err[0]}, {}};
}

void read_some(Child& child, std::size_t which) {
  char buffer[1 << 16];
  const ssize_t got = ::read(child.pipes[which], buffer, sizeof buffer);
  if (got > 0) {
    child.texts[which].append(buffer, static_cast<std::size_t>(got));
  } else if (got == 0 || errno != EINTR) {
    ::close(std::exchange(child.pipes[which], -1));
  }
}

/// Waits until something can be read, and reads it.
void wait_for_output(std::vector<Child>& children) {
  std::vector<pollfd> polled;
  std::vector<std::pair<Child*, std::size_t>> owners;
  for (Child& child : children) {
    for (std::size_t which = 0; which < 2; ++which) {
      if (child.pipes[which] < 0) continue;
      polled.push_back({child.pipes[which], POLLIN, 0});
      owners.emplace_back(&child, which);
    }
  }
  if (::poll(polled.data(), polled.size(), -1) <= 0) return;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents != 0) read_some(*owners[i].first, owners[i].second);
  }
}

/// Its exit status; an error with its own words unless that is 0.
Status end_of(const Child& child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::string message = child.texts[1];
  while (!message.empty() && message.back() == '\n') message.pop_back();
  if (message.empty()) message = fmt::format("a replay ended with status {}", status);
  const bool bad_usage = WIFEXITED(status) && WEXITSTATUS(status) == 2;
  return Error{bad_usage ? ErrorCode::invalid_argument : ErrorCode::io_error, message};
}

void stop(std::vector<Child>& children) {
  for (const Child& child : children) ::kill(child.pid, SIGTERM);
  for (const Child& child : children) {
    for (const int pipe : child.pipes) {
      if (pipe >= 0) ::close(pipe);
    }
    (void)end_of(child);
  }
}

}  // namespace

Result<std::vector<std::string>> run_children(
    const std::vector<std::vector<std::string>>& commands, std::size_t at_a_time,
    const std::function<void(std::size_t done)>& progress) {
  std::vector<std::string> outputs(commands.size());
  std::vector<Child> running;
  std::size_t started = 0, done = 0;
  while (done < commands.size()) {
    while (started < commands.size() && running.size() < std::max<std::size_t>(at_a_time, 1)) {
      Result<Child> child = start(started, commands[started]);
      if (!child) {
        stop(running);
        return child.error();
      }
      running.push_back(std::move(*child));
      ++started;
    }
    wait_for_output(running);
    for (std::size_t i = 0; i < running.size();) {
      if (running[i].is_open()) {
        ++i;
        continue;
      }
      Child child = std::move(running[i]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      if (Status s = end_of(child); !s) {
        stop(running);
        return s.error();
      }
      outputs[child.command] = std::move(child.texts[0]);
      ++done;
      if (progress) progress(done);
    }
  }
  return outputs;
}

}  // namespace pando::tools
