// SPDX-License-Identifier: Apache-2.0
// An open directory and what is in it, by name. Whoever can write to a directory of the store, or
// to one above it, can put a link where the store expects something of its own: so names are looked
// up in directories that are held open, and no link is followed on the way. StoreDirectory is above
// it.
//
// Files that are there already are opened without waiting (O_NONBLOCK): opening a pipe would, for
// somebody to write to it. Any thread.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/file/fd.h"

namespace pando {

class Directory {
 public:
  Directory() = default;
  /// By the path that a user gave: links in it are followed. !ok(): see error().
  static Directory at(const std::string& path);
  /// What paths from outside are relative to, for tests.
  static const Directory& here();

  bool ok() const { return fd_.ok(); }
  int error() const { return fd_.error(); }
  /// AT_FDCWD of here().
  int fd() const { return is_here_ ? AT_FDCWD : fd_.get(); }

  /// A directory in it. error(): ENOTDIR or ELOOP where it is a link or anything else.
  Directory enter(const std::string& name) const;
  /// A file in it, or in a directory in it ("00/name"); ELOOP: there is a link.
  Fd open(const std::string& path, int flags, mode_t mode = 0) const;
  /// The same, if it is a file and not a pipe, a device or a directory (EISDIR for all of these);
  /// reads and writes then wait as usual.
  Fd open_regular(const std::string& path, int flags) const;

  // Names have no '/'. All return errno; 0: done.
  int make(const std::string& name, mode_t mode) const;
  int unlink(const std::string& name) const;
  int remove_directory(const std::string& name) const;
  /// What was there under the new name goes.
  int rename(const std::string& name, const Directory& to, const std::string& new_name) const;
  /// EEXIST: there is something under the new name.
  int rename_if_free(const std::string& name, const Directory& to,
                     const std::string& new_name) const;
  /// Of the entry itself, not of what it links to. Nothing: see errno.
  std::optional<struct stat> look_at(const std::string& name) const;
  /// Of the directory.
  std::optional<struct stat> look() const;
  /// Calls visit(name) for each entry, in any order; errno where that ended early, else 0.
  template <typename Visit>
  int for_each_name(Visit&& visit) const {
    std::vector<std::string> some;
    const int why = list(some);
    for (const std::string& name : some) visit(name);
    return why;
  }

 private:
  explicit Directory(Fd fd) : fd_(std::move(fd)) {}
  int list(std::vector<std::string>& names) const;

  Fd fd_;
  bool is_here_ = false;
};

}  // namespace pando
