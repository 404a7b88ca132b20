// SPDX-License-Identifier: Apache-2.0
// SpareFiles.
#include "store/file/spare_files.h"

#include <sys/stat.h>

#include <algorithm>

namespace pando {

bool SpareFiles::add(const std::string& path, std::uint64_t file_size_bytes) {
  const std::lock_guard lock(mutex_);
  if (spares_.size() >= kMaxFiles) return false;
  spares_.push_back({path, file_size_bytes});
  return true;
}

Fd SpareFiles::take(std::uint64_t file_size_bytes, int flags, std::string& path) {
  const std::lock_guard lock(mutex_);
  while (!spares_.empty()) {
    const Spare spare = std::move(spares_.back());
    spares_.pop_back();
    if (spare.size_bytes == file_size_bytes) {
      Fd file = Fd::open(spare.path, flags | O_WRONLY | O_NOFOLLOW);
      struct stat info;
      // Somebody may have linked to the page to keep it, or cut it.
      if (file.ok() && ::fstat(file.get(), &info) == 0 && info.st_nlink == 1 &&
          static_cast<std::uint64_t>(info.st_size) == file_size_bytes) {
        path = spare.path;
        return file;
      }
    }
    ::unlink(spare.path.c_str());
  }
  return {};
}

void SpareFiles::remove_all() {
  const std::lock_guard lock(mutex_);
  for (const Spare& spare : spares_) ::unlink(spare.path.c_str());
  spares_.clear();
}

}  // namespace pando
