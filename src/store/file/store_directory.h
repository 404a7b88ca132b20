// SPDX-License-Identifier: Apache-2.0
// The directory of a file store and the names of everything in it:
//
//     pando.lock      who has it open (lock_file.h)
//     pando.index     the pages, for all who have it open (file_index.h)
//     00/ ... ff/     the pages' files, each named by its key
//     tmp/member-N-X/ files that member N writes, those that have a name, renamed when they are
//                     whole; X is never the same, so that who has lost the directory and its number
//                     does not write here
//     set_aside/      what was found damaged, or is not ours; nothing in it is ever removed
//
// Membership and PageFiles are above it. Calls may come from any thread, and other processes do the
// same meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"

namespace pando {

class StoreDirectory {
 public:
  /// The path becomes absolute. Nothing is touched.
  static Result<StoreDirectory> name(const std::string& path);
  StoreDirectory(StoreDirectory&& other) noexcept
      : root_(std::move(other.root_)),
        is_ours_(other.is_ours_),
        num_names_(other.num_names_.load()) {}

  /// Makes the directory if it is not there. Refuses one that has some of 00 ... ff but was never a
  /// store; not after the first time: what somebody removes of ours may leave that behind. One call
  /// at a time.
  Status make_root();
  /// What is in it, but for the locks, the index and the pages.
  Status make_inside() const;
  /// not_found: there is no store.
  Status check_there() const;

  /// A directory and the files in it.
  static void remove_with_files(const std::string& directory);
  /// Names of entries beside our own, which are left alone.
  std::vector<std::string> foreign_names() const;

  const std::string& root() const { return root_; }
  std::string subdirectory(std::uint8_t number) const;
  /// They are made when first needed: 256 at once can take a second where many were removed lately.
  Status make_subdirectory(std::uint8_t number);
  std::string path_of(std::string_view key) const;
  std::string index_path() const;
  /// A directory of its own for a member's files; says where.
  Result<std::string> make_temporaries_of(std::uint32_t member) const;
  /// Files and directories of members for which is_dead(member) is true, and of versions that had
  /// no members.
  void remove_temporaries(const std::function<bool(std::uint32_t)>& is_dead) const;
  /// Moves a file or whatever it is to set_aside/, under its name behind a number; says where to.
  Result<std::string> set_aside(const std::string& path);
  std::string temporaries() const;     ///< the directory of these
  std::string set_aside_root() const;  ///< likewise
  /// For this user, on the file system. Nothing: it does not say.
  std::optional<std::uint64_t> free_bytes() const;

  /// What addresses and lengths must be multiples of for I/O past the page cache; nothing where the
  /// file system does not have it. Writes and removes this file.
  static std::optional<std::size_t> probe_direct(const std::string& file);

 private:
  explicit StoreDirectory(std::string root) : root_(std::move(root)) {}
  std::string root_;
  bool is_ours_ = false;                      // it was found to be a store, or was made
  std::atomic<std::uint64_t> num_names_ = 0;  // of what was set aside
};

}  // namespace pando
