// SPDX-License-Identifier: Apache-2.0
// A file of lines; see the header.
#include "observe/rotated_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace pando {
namespace {

Error io_error(const char* what, const std::string& path) {
  return make_error(ErrorCode::io_error, "trace: cannot {} {}: {}", what, path,
                    std::strerror(errno));
}

bool is_file(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

RotatedFile::~RotatedFile() { close(); }

void RotatedFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

// From the oldest on; the last one is written over. What is no file (a device, a pipe) stays.
Status RotatedFile::put_aside() {
  for (std::size_t i = max_files_ - 1; i > 0; --i) {
    const std::string from = i == 1 ? path_ : fmt::format("{}.{}", path_, i - 1);
    const std::string to = fmt::format("{}.{}", path_, i);
    if (is_file(from) && std::rename(from.c_str(), to.c_str()) != 0)
      return io_error("put aside", from);
  }
  return {};
}

Status RotatedFile::open() {
  close();
  if (Status s = put_aside(); !s) return s;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd_ < 0) return io_error("open", path_);
  size_ = 0;
  return {};
}

Status RotatedFile::write(std::string_view line) {
  const bool full = size_ > 0 && size_ + line.size() > max_bytes_;
  if (fd_ < 0 || full) {
    if (Status s = open(); !s) return s;
    ++num_rotations_;
  }
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Error error = io_error("write", path_);
      // The part of a line that is there goes again; if even that fails, so does the file.
      const auto whole = static_cast<off_t>(size_);
      if (done > 0 && (::ftruncate(fd_, whole) != 0 || ::lseek(fd_, whole, SEEK_SET) != whole))
        close();
      return error;
    }
    done += static_cast<std::size_t>(n);
  }
  size_ += line.size();
  return {};
}

}  // namespace pando
