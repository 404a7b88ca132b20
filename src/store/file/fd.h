// SPDX-License-Identifier: Apache-2.0
// A file descriptor that closes itself, and errno in words.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace pando {

class Fd {
 public:
  Fd() = default;
  /// Follow with error() where it may fail.
  static Fd open(const std::string& path, int flags, mode_t mode = 0) {
    Fd fd;
    do fd.fd_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    while (fd.fd_ < 0 && errno == EINTR);
    if (fd.fd_ < 0) fd.error_ = errno;
    return fd;
  }
  /// What a system call returned: a descriptor, or less than 0 with errno set.
  static Fd own(int descriptor) {
    Fd fd;
    fd.fd_ = descriptor;
    if (descriptor < 0) fd.error_ = errno;
    return fd;
  }
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), error_(std::exchange(other.error_, EBADF)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(error_, other.error_);
    return *this;
  }
  ~Fd() { close(); }

  bool ok() const { return fd_ >= 0; }
  /// errno of open(); only when !ok().
  int error() const { return error_; }
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
  int error_ = EBADF;
};

/// No room for more: blocks, inodes, or what a quota allows.
inline bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }

/// Says something of this process or machine, nothing of the file.
inline bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
}
/// Of open(): there is a link, a directory, a pipe or the like under this name.
inline bool is_no_file(int error) {
  return error == ELOOP || error == EISDIR || error == ENXIO || error == ENODEV;
}

inline std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace pando
