// SPDX-License-Identifier: Apache-2.0
// Finds the pages of a directory when a store is opened. Reads the header of every file, so that
// what is listed has the name, the length and a header as they were written; the bytes of a page
// are checked when it is read. What is damaged or not ours is set aside.
//
// Threads of its own, because most of the time goes into waiting for the disk; none is left when
// it returns.
#pragma once

#include <cstdint>
#include <vector>

#include "store/file/inspect_file.h"
#include "store/file/store_directory.h"

namespace pando {

struct FileScan {
  std::vector<ScannedFile> pages;  ///< least recently used first
  std::uint64_t num_damaged = 0;   ///< a page's name and place, but not its header or length
  std::uint64_t num_foreign = 0;   ///< anything else among the pages
};

FileScan scan_directory(const StoreDirectory& directory);

}  // namespace pando
