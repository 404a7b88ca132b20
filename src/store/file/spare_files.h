// SPDX-License-Identifier: Apache-2.0
// Files of evicted pages, to be written over. A store that is full removes a page for each that it
// writes, and file systems make removing and creating dear: ext4 took a millisecond for both, with
// 4 MiB pages, and its search for a free inode grows with the number of those freed lately. Writing
// over a file that is there needs no inode and no blocks.
//
// Only files that nobody reads come here; they are in tmp/ and no page's any more. Few are kept,
// because the capacity does not count them. Calls may come from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "store/file/fd.h"

namespace pando {

class SpareFiles {
 public:
  /// Takes over a file of so many bytes. False: there are enough.
  bool add(const std::string& path, std::uint64_t file_size_bytes);
  /// A file of exactly so many bytes, opened, and its path; !ok(): there is none, and those of
  /// other sizes have been removed.
  Fd take(std::uint64_t file_size_bytes, int flags, std::string& path);
  void remove_all();

 private:
  static constexpr std::size_t kMaxFiles = 16;
  struct Spare {
    std::string path;
    std::uint64_t size_bytes;
  };

  std::mutex mutex_;
  std::vector<Spare> spares_;
};

}  // namespace pando
