// SPDX-License-Identifier: Apache-2.0
// O_TMPFILE and linkat.
#include "store/file/unnamed_file.h"

#include <fmt/format.h>

namespace pando {
namespace {

/// By the descriptor, for which kernels before 6.10 want a capability; without, by its name in
/// /proc. Both say ENOENT where the directory is not there any more.
int link_to(const Fd& file, const Directory& directory, const std::string& name) {
  if (::linkat(file.get(), "", directory.fd(), name.c_str(), AT_EMPTY_PATH) == 0) return 0;
  if (errno != ENOENT) return errno;
  const std::string in_proc = fmt::format("/proc/self/fd/{}", file.get());
  const int done =
      ::linkat(AT_FDCWD, in_proc.c_str(), directory.fd(), name.c_str(), AT_SYMLINK_FOLLOW);
  return done == 0 ? 0 : errno;
}

}  // namespace

Fd open_unnamed(const Directory& directory, int flags, mode_t mode) {
  return directory.open(".", flags | O_TMPFILE | O_WRONLY, mode);
}

int give_name(const Fd& file, const Directory& directory, const std::string& name) {
  const int why = link_to(file, directory, name);
  if (why != EEXIST || directory.unlink(name) != 0) return why;
  return link_to(file, directory, name);
}

bool can_name_files(const Directory& directory, const std::string& name) {
  const Fd file = open_unnamed(directory, 0, S_IRUSR | S_IWUSR);
  if (!file.ok() || give_name(file, directory, name) != 0) return false;
  directory.unlink(name);
  return true;
}

}  // namespace pando
