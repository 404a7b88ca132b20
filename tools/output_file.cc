// SPDX-License-Identifier: Apache-2.0
// Unfinished outputs are listed where a signal handler can see them: fixed memory, one flag each.
#include "tools/output_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pando::tools {
namespace {

struct Unfinished {
  std::atomic<bool> is_used = false;
  std::array<char, 4096> path{};
};
std::array<Unfinished, 8> unfinished_outputs;

void remember(const std::string& path) {
  for (Unfinished& entry : unfinished_outputs) {
    if (entry.is_used || path.size() >= entry.path.size()) continue;
    std::memcpy(entry.path.data(), path.c_str(), path.size() + 1);
    entry.is_used = true;
    return;
  }
}

void forget(const std::string& path) {
  for (Unfinished& entry : unfinished_outputs) {
    if (entry.is_used && path == entry.path.data()) entry.is_used = false;
  }
}

extern "C" void remove_unfinished(int signal) {
  for (Unfinished& entry : unfinished_outputs) {
    if (entry.is_used) ::unlink(entry.path.data());
  }
  // With the default action back, the caller's shell sees what ended it.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void clean_up_on_signals() {
  std::signal(SIGINT, remove_unfinished);
  std::signal(SIGTERM, remove_unfinished);
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  if (path == "-") return OutputFile(path, "", stdout);
  std::string unfinished = fmt::format("{}.{}.unfinished", path, ::getpid());
  remember(unfinished);
  std::FILE* const file = std::fopen(unfinished.c_str(), "w");
  if (file == nullptr) {
    forget(unfinished);
    return make_error(ErrorCode::io_error, "cannot write '{}': {}", path, std::strerror(errno));
  }
  return OutputFile(path, std::move(unfinished), file);
}

OutputFile::OutputFile(std::string path, std::string unfinished, std::FILE* file)
    : path_(std::move(path)), unfinished_(std::move(unfinished)), file_(file) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      unfinished_(std::exchange(other.unfinished_, {})),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (unfinished_.empty()) return;
  if (file_ != nullptr) std::fclose(file_);
  ::unlink(unfinished_.c_str());
  forget(unfinished_);
}

Status OutputFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) == text.size()) return {};
  return make_error(ErrorCode::io_error, "cannot write '{}': {}", path_, std::strerror(errno));
}

Status OutputFile::commit() {
  bool written = std::fflush(file_) == 0;
  if (!unfinished_.empty()) {
    written = std::fclose(std::exchange(file_, nullptr)) == 0 && written;
    written = written && ::rename(unfinished_.c_str(), path_.c_str()) == 0;
    if (written) forget(std::exchange(unfinished_, {}));
  }
  if (written) return {};
  return make_error(ErrorCode::io_error, "cannot write '{}': {}", path_, std::strerror(errno));
}

}  // namespace pando::tools
