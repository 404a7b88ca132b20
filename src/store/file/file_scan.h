// SPDX-License-Identifier: Apache-2.0
// Finds the pages of a directory when a store is opened. Reads the header of every file, so that
// what is listed has the name, the length and a header as they were written; the bytes of a page
// are checked when it is read. What is damaged is set aside; what is not ours, and what could not
// be looked at, stays where it is.
//
// Threads of its own, because most of the time goes into waiting for the disk; none is left when
// it returns.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "store/file/inspect_file.h"
#include "store/file/store_directory.h"

namespace pando {

struct FileScan {
  std::vector<ScannedFile> pages;  ///< least recently used first
  std::uint64_t num_damaged = 0;   ///< a page's name and place, but not its header or length
  std::uint64_t num_foreign = 0;   ///< anything else among the pages
  /// Of the 256 directories, those in which something could not be looked at: no descriptors left,
  /// no permission, a disk that does not answer. It may be whole, and is looked at again later.
  std::bitset<256> unlooked;
};

FileScan scan_directory(const StoreDirectory& directory);
/// One of the 256, without the names for which is_known(name) is true; nothing is set aside.
struct SubdirectoryScan {
  std::vector<ScannedFile> pages;
  std::vector<std::string> damaged;
  std::uint64_t num_foreign = 0;
  bool is_complete = true;  ///< false: something could not be looked at
};
SubdirectoryScan scan_subdirectory(const Directory& in, std::uint8_t number,
                                   const std::function<bool(const std::string&)>& is_known);

}  // namespace pando
