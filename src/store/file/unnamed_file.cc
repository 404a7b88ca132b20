// SPDX-License-Identifier: Apache-2.0
// O_TMPFILE and linkat.
#include "store/file/unnamed_file.h"

#include <sys/stat.h>

#include <fmt/format.h>

namespace pando {
namespace {

/// By the descriptor, for which kernels before 6.10 want a capability; without, by its name in
/// /proc. Both say ENOENT where the directory of `path` is not there.
int link_to(const Fd& file, const std::string& path) {
  if (::linkat(file.get(), "", AT_FDCWD, path.c_str(), AT_EMPTY_PATH) == 0) return 0;
  if (errno != ENOENT) return errno;
  const std::string in_proc = fmt::format("/proc/self/fd/{}", file.get());
  const int done = ::linkat(AT_FDCWD, in_proc.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
  return done == 0 ? 0 : errno;
}

}  // namespace

Fd open_unnamed(const std::string& directory, int flags, mode_t mode) {
  return Fd::open(directory, flags | O_TMPFILE | O_WRONLY, mode);
}

int give_name(const Fd& file, const std::string& path) {
  const int why = link_to(file, path);
  if (why != EEXIST || ::unlink(path.c_str()) != 0) return why;
  return link_to(file, path);
}

bool can_name_files(const std::string& directory, const std::string& path) {
  const Fd file = open_unnamed(directory, 0, S_IRUSR | S_IWUSR);
  if (!file.ok() || give_name(file, path) != 0) return false;
  ::unlink(path.c_str());
  return true;
}

}  // namespace pando
