// SPDX-License-Identifier: Apache-2.0
// Another process with a file store open (tests/store/file_store_member.cc), and how much a store's
// files take on the disk.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/file_store_fixture.h"

namespace pando::testing {

class ChildMember {
 public:
  /// `more`: further arguments.
  ChildMember(const std::string& directory, std::uint64_t capacity_bytes, bool uring,
              std::vector<std::string> more = {}) {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
    std::vector<std::string> words = {PANDO_MEMBER, directory, std::to_string(capacity_bytes),
                                      uring ? "uring" : "plain"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execv(PANDO_MEMBER, arguments.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = ::fdopen(in[1], "w");
    out_ = ::fdopen(out[0], "r");
    first_line_ = line();
  }
  ~ChildMember() {
    if (pid_ > 0) kill();
    std::fclose(in_);
    std::fclose(out_);
  }
  ChildMember(const ChildMember&) = delete;
  ChildMember& operator=(const ChildMember&) = delete;

  /// "ready", or why it could not open the store.
  const std::string& first_line() const { return first_line_; }
  std::string ask(const std::string& verb, std::uint64_t first = 0, std::uint64_t num = 0) {
    std::fprintf(in_, "%s %llu %llu\n", verb.c_str(), static_cast<unsigned long long>(first),
                 static_cast<unsigned long long>(num));
    std::fflush(in_);
    return line();
  }
  /// Empty: it has ended.
  std::string line() {
    char text[4096];
    if (std::fgets(text, sizeof text, out_) == nullptr) return "";
    std::string got(text);
    if (got.ends_with('\n')) got.pop_back();
    return got;
  }
  void send(int signal) { ::kill(pid_, signal); }
  /// Does no more until it is told to go on.
  void stop() {
    send(SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
    if (!WIFSTOPPED(status)) pid_ = 0;
  }
  void go_on() { send(SIGCONT); }
  bool has_ended() const { return pid_ == 0; }
  /// Whether it ran until then.
  bool kill() {
    if (pid_ == 0) return false;
    send(SIGKILL);
    int status = 0;
    const bool killed = ::waitpid(pid_, &status, 0) == pid_ && WIFSIGNALED(status);
    pid_ = 0;
    return killed;
  }
  /// Closes the store and ends; its exit status.
  int quit() {
    std::fprintf(in_, "quit 0 0\n");
    std::fflush(in_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// What it has said and nobody has read, after it has ended.
  std::vector<std::string> rest() {
    std::vector<std::string> lines;
    for (std::string got = line(); !got.empty(); got = line()) lines.push_back(got);
    return lines;
  }

 private:
  pid_t pid_ = 0;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
  std::string first_line_;
};

/// Bytes on the disk of all files among the pages and in tmp/, as du counts them. Only exact while
/// nobody changes them.
inline std::uint64_t disk_bytes(const std::string& directory) {
  std::uint64_t total = 0;
  std::set<ino_t> seen;
  for (const auto& top : fs::directory_iterator(directory)) {
    const std::string name = top.path().filename();
    if (!top.is_directory() || name == "set_aside") continue;
    for (const auto& entry : fs::recursive_directory_iterator(top.path())) {
      struct stat info;
      if (::lstat(entry.path().c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
          seen.insert(info.st_ino).second)
        total += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }
  return total;
}

/// Of one page of a ChildMember.
inline constexpr Shape kMemberShape{40'000};
inline std::uint64_t member_capacity(std::size_t num_pages) {
  return num_pages * file_bytes(kMemberShape.size_bytes);
}

}  // namespace pando::testing
