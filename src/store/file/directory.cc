// SPDX-License-Identifier: Apache-2.0
// Directory: openat2 where the kernel has it (5.6), else one component after the other.
#include "store/file/directory.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include <cstdio>
#include <memory>

namespace pando {
namespace {

constexpr int kEnter = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
constexpr int kOpen = O_NOFOLLOW | O_NOCTTY | O_CLOEXEC;

Fd open_in(int directory, const char* name, int flags, mode_t mode) {
  int fd;
  do fd = ::openat(directory, name, flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return Fd::own(fd);
}

/// ENOSYS and EPERM may mean that there is no such call here, or that a filter forbids it.
Fd open_beneath(int directory, const char* path, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long fd;
  do fd = ::syscall(SYS_openat2, directory, path, &how, sizeof how);
  while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  return Fd::own(static_cast<int>(fd));
}

int errno_of(int returned) { return returned == 0 ? 0 : errno; }

}  // namespace

Directory Directory::at(const std::string& path) {
  return Directory(Fd::open(path, O_RDONLY | O_DIRECTORY));
}

const Directory& Directory::here() {
  static const Directory directory = [] {
    Directory made;
    made.is_here_ = true;
    return made;
  }();
  return directory;
}

Directory Directory::enter(const std::string& name) const {
  return Directory(open_in(fd(), name.c_str(), kEnter, 0));
}

Fd Directory::open(const std::string& path, int flags, mode_t mode) const {
  const bool is_new = (flags & O_EXCL) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  flags |= kOpen | (is_new ? 0 : O_NONBLOCK);
  const std::size_t slash = path.find('/');
  if (is_here_ || slash == path.npos) return open_in(fd(), path.c_str(), flags, mode);
  Fd file = open_beneath(fd(), path.c_str(), flags, mode);
  if (file.ok() || (file.error() != ENOSYS && file.error() != EPERM)) return file;
  const Fd inner = open_in(fd(), path.substr(0, slash).c_str(), O_PATH | kEnter, 0);
  if (!inner.ok()) {
    errno = inner.error();
    return Fd::own(-1);
  }
  return open_in(inner.get(), path.c_str() + slash + 1, flags, mode);
}

Fd Directory::open_regular(const std::string& path, int flags) const {
  const auto is_regular = [](const Fd& opened) {
    struct stat info;
    return ::fstat(opened.get(), &info) == 0 && S_ISREG(info.st_mode);
  };
  Fd file = open(path, flags);
  const bool is_refused = !file.ok() && file.error() == EINVAL;  // pipes are, with O_DIRECT
  if (!file.ok() && !is_refused) return file;
  if (is_refused ? !is_regular(open(path, O_RDONLY)) : !is_regular(file)) {
    errno = EISDIR;
    return Fd::own(-1);
  }
  if (is_refused) return file;
  // io_uring would give up where it should wait.
  ::fcntl(file.get(), F_SETFL, flags & (O_DIRECT | O_DSYNC));
  return file;
}

int Directory::make(const std::string& name, mode_t mode) const {
  return errno_of(::mkdirat(fd(), name.c_str(), mode));
}
int Directory::unlink(const std::string& name) const {
  return errno_of(::unlinkat(fd(), name.c_str(), 0));
}
int Directory::remove_directory(const std::string& name) const {
  return errno_of(::unlinkat(fd(), name.c_str(), AT_REMOVEDIR));
}
int Directory::rename(const std::string& name, const Directory& to,
                      const std::string& new_name) const {
  return errno_of(::renameat(fd(), name.c_str(), to.fd(), new_name.c_str()));
}

int Directory::rename_if_free(const std::string& name, const Directory& to,
                              const std::string& new_name) const {
  const int why =
      errno_of(::renameat2(fd(), name.c_str(), to.fd(), new_name.c_str(), RENAME_NOREPLACE));
  if (why != EINVAL) return why;
  // Where the file system cannot refuse to replace, look first.
  if (to.look_at(new_name)) return EEXIST;
  return rename(name, to, new_name);
}

std::optional<struct stat> Directory::look_at(const std::string& name) const {
  struct stat info;
  if (::fstatat(fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info;
}

std::optional<struct stat> Directory::look() const {
  struct stat info;
  if (::fstat(fd(), &info) != 0) return std::nullopt;
  return info;
}

int Directory::list(std::vector<std::string>& names) const {
  // A position of its own, so that two may list at a time.
  const int own = ::openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return errno;
  struct Close {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> entries(::fdopendir(own));
  if (entries == nullptr) {
    const int why = errno;
    ::close(own);
    return why;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  return errno;
}

}  // namespace pando
