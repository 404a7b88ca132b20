// SPDX-License-Identifier: Apache-2.0
// The directory of a file store and everything in it that is not a page:
//
//     pando.lock      held by the process that has it open, with its number inside
//     00/ ... ff/     the pages' files, each named by its key
//     tmp/            files being written; they are renamed when they are whole
//     set_aside/      what was found damaged, or is not ours; nothing in it is ever removed
//
// PageFiles is above it. Calls may come from any thread, except lock_and_make(), which PageFiles
// calls one at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "store/file/fd.h"

namespace pando {

class StoreDirectory {
 public:
  /// The path becomes absolute. Nothing is touched.
  static Result<StoreDirectory> name(const std::string& path);
  StoreDirectory(StoreDirectory&& other) noexcept
      : root_(std::move(other.root_)),
        lock_(std::move(other.lock_)),
        num_names_(other.num_names_.load()) {}

  /// Makes what is not there and locks it, unless it is locked already. in_use: another process has
  /// it. Refuses a directory that has some of 00 ... ff but was never a store.
  Status lock_and_make();
  /// For others than the store itself: nothing is made or written, and others may read as well.
  /// not_found: there is no store. in_use: a process has it open.
  Status lock_for_reading();
  /// lock_and_make() of a store that is there; not_found: there is none.
  Status lock_existing();
  /// The directory that was locked is no longer the one under this path.
  bool lost() const;
  /// What processes before left in tmp/.
  void remove_temporaries();
  /// Names of entries beside our own, which are left alone.
  std::vector<std::string> foreign_names() const;

  const std::string& root() const { return root_; }
  std::string subdirectory(std::uint8_t number) const;
  /// They are made when first needed: 256 at once can take a second where many were removed lately.
  Status make_subdirectory(std::uint8_t number);
  std::string path_of(std::string_view key) const;
  std::string new_temporary();
  /// Moves a file or whatever it is to set_aside/, under its name behind a number; says where to.
  Result<std::string> set_aside(const std::string& path);
  std::string temporaries() const;     ///< the directory of these
  std::string set_aside_root() const;  ///< likewise
  /// For this user, on the file system. Nothing: it does not say.
  std::optional<std::uint64_t> free_bytes() const;

  /// What addresses and lengths must be multiples of for I/O past the page cache; nothing where the
  /// file system does not have it. Writes and removes a file.
  std::optional<std::size_t> probe_direct();

 private:
  explicit StoreDirectory(std::string root) : root_(std::move(root)) {}
  Status take_lock();
  Status check_there() const;

  std::string root_;
  Fd lock_;
  std::atomic<std::uint64_t> num_names_ = 0;  // handed out
};

}  // namespace pando
