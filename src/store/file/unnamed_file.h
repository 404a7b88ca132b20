// SPDX-License-Identifier: Apache-2.0
// Files that have no name until they are whole. One that never gets a name goes with the last who
// has it open, so that a process that is killed leaves nothing behind. PageFiles writes new pages
// to them. With a temporary name and a rename, a page of 64 KiB took 86 µs of processor time, so 75
// (medians of eleven rounds in turns, on a busy machine).
#pragma once

#include <string>

#include "store/file/directory.h"

namespace pando {

/// For writing, on the file system of this directory.
Fd open_unnamed(const Directory& directory, int flags, mode_t mode);
/// Another file with this name goes. Returns errno; 0: it has the name.
int give_name(const Fd& file, const Directory& directory, const std::string& name);
/// False: the file system has no such files, or this process may not name them. Makes a file of
/// this name and removes it.
bool can_name_files(const Directory& directory, const std::string& name);

}  // namespace pando
