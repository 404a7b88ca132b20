// SPDX-License-Identifier: Apache-2.0
// What a file among the pages of a directory is, told from its name, its length and its header:
// what a store looks at when it opens, and whoever looks at one from outside. Reads one block; the
// bytes of the page are checked by check_file(). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "store/file/directory.h"

namespace pando {

struct ScannedFile {
  std::string key;
  std::uint64_t page_bytes = 0;
  std::int64_t modified_ns = 0;  ///< since 1970
};

enum class FileVerdict : std::uint8_t {
  page,
  damaged,     ///< a page's name and place, but not its header or length
  foreign,     ///< anything else
  unreadable,  ///< the file system does not let us look, or a version that is newer wrote it
  gone,        ///< another process has removed it meanwhile
};

struct FileFinding {
  FileVerdict verdict = FileVerdict::page;
  ScannedFile page = {};  ///< of a page
  std::string why = {};   ///< of what is none
};

/// `name` is that of the file, `directory` the number of the one that it is in.
FileFinding inspect_file(const Directory& in, const std::string& name, std::uint8_t directory);

/// Reads all of a page's file into `page_bytes`, which takes its size. corrupt: header, key, length
/// or checksum are not as they were written. out_of_capacity: there is no memory for it. not_found:
/// there is no file, or another one by now: a process that has the store open may have evicted the
/// page and written over its file. Leaves the time of the file as it is.
Status check_file(const Directory& in, const std::string& key, std::vector<std::byte>& page_bytes);

}  // namespace pando
