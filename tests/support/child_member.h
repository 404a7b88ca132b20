// SPDX-License-Identifier: Apache-2.0
// Another process with a file store open (tests/store/file_store_member.cc), and how much a store's
// files take on the disk.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "support/file_store_fixture.h"
#include "support/piped_child.h"

namespace pando::testing {

class ChildMember {
 public:
  /// `more`: further arguments.
  ChildMember(const std::string& directory, std::uint64_t capacity_bytes, bool uring,
              const std::vector<std::string>& more = {})
      : child_(words(directory, capacity_bytes, uring, more)), first_line_(line()) {}
  ~ChildMember() { kill(); }
  ChildMember(const ChildMember&) = delete;
  ChildMember& operator=(const ChildMember&) = delete;

  /// "ready", or why it could not open the store.
  const std::string& first_line() const { return first_line_; }
  std::string ask(const std::string& verb, std::uint64_t first = 0, std::uint64_t num = 0) {
    child_.tell(verb + " " + std::to_string(first) + " " + std::to_string(num));
    return line();
  }
  /// Empty: it has ended.
  std::string line() { return child_.line(); }
  void send(int signal) { child_.send(signal); }
  /// Does no more until it is told to go on.
  void stop() {
    send(SIGSTOP);
    has_ended_ = !WIFSTOPPED(child_.wait(WUNTRACED));
  }
  void go_on() { send(SIGCONT); }
  bool has_ended() const { return has_ended_; }
  /// Whether it ran until then.
  bool kill() {
    if (has_ended_) return false;
    send(SIGKILL);
    has_ended_ = true;
    return WIFSIGNALED(child_.wait());
  }
  /// Closes the store and ends; its exit status.
  int quit() {
    child_.tell("quit 0 0");
    has_ended_ = true;
    const int status = child_.wait();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// What it has said and nobody has read, after it has ended.
  std::vector<std::string> rest() {
    std::vector<std::string> lines;
    for (std::string got = line(); !got.empty(); got = line()) lines.push_back(got);
    return lines;
  }

 private:
  static std::vector<std::string> words(const std::string& directory, std::uint64_t capacity_bytes,
                                        bool uring, const std::vector<std::string>& more) {
    std::vector<std::string> words = {PANDO_MEMBER, directory, std::to_string(capacity_bytes),
                                      uring ? "uring" : "plain"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  PipedChild child_;
  bool has_ended_ = false;
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
