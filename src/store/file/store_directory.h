// SPDX-License-Identifier: Apache-2.0
// The directory of a file store and the names of everything in it:
//
//     pando.lock      who has it open (lock_file.h)
//     pando.index     the pages, for all who have it open (file_index.h)
//     00/ ... ff/     the pages' files, each named by its key
//     tmp/member-N-X/ files that member N writes, those that have a name, renamed when they are
//                     whole; X is never the same, so that who has lost the directory and its number
//                     does not write here
//     set_aside/      what was found damaged, up to a share of the capacity
//
// It is held open, and everything in it is reached from there (directory.h): if the path leads
// somewhere else later, this object does not. Who opens a store to use it is refused one that
// others could change; nothing is removed or moved but by the names above.
//
// Membership has one, PageFiles and the readers use it. Calls may come from any thread, and other
// processes do the same meanwhile.
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
#include "store/file/directory.h"

namespace pando {

class StoreDirectory {
 public:
  /// A user's path, made absolute. Nothing is touched.
  static Result<std::string> absolute(const std::string& path);

  /// To use it: makes the directory if it is not there. invalid_argument: another user owns it or
  /// could write to it; or it has some of 00 ... ff, tmp and set_aside but was never a store,
  /// unless it is `known` to be one: what somebody removes of ours may leave that behind.
  static Result<StoreDirectory> make(const std::string& root, bool known);
  /// To look at it. not_found: there is no store.
  static Result<StoreDirectory> open(const std::string& root);
  StoreDirectory(StoreDirectory&& other) noexcept
      : root_(std::move(other.root_)),
        directory_(std::move(other.directory_)),
        set_aside_bytes_(other.set_aside_bytes_.load()) {}

  /// What is in it, but for the locks, the index and the pages. invalid_argument: something else
  /// has the name of one of its directories.
  Status make_inside() const;

  /// Names of entries beside our own, which are left alone.
  std::vector<std::string> foreign_names() const;

  const std::string& root() const { return root_; }
  const Directory& directory() const { return directory_; }
  std::string path_of(std::string_view key) const;  ///< for messages
  /// "03" of 3.
  static std::string subdirectory_name(std::uint8_t number);
  static std::string path_in(const std::string& root, std::string_view key);

  /// Of a page's file, not through a link.
  Fd open_page(std::string_view key, int flags) const;
  /// The one of the 256 that a key's file is in; !ok() where there is none.
  Directory subdirectory(std::uint8_t number) const;
  Directory subdirectory_of(std::string_view key) const;
  /// They are made when first needed: 256 at once can take a second where many were removed lately.
  Status make_subdirectory(std::uint8_t number) const;
  /// A directory of its own for a member's files.
  Result<Directory> make_temporaries_of(std::uint32_t member, std::string& name) const;
  void remove_temporaries_of(const std::string& name) const;
  /// Files and directories of members for which is_dead(member) is true, and of versions that had
  /// no members.
  void remove_temporaries(const std::function<bool(std::uint32_t)>& is_dead) const;
  /// Moves a file or whatever it is to set_aside/, under its name behind the time; says where to.
  Result<std::string> set_aside(const Directory& from, const std::string& name) const;
  /// Removes what was set aside first until the rest is within this; folders stay and do not count.
  /// Looks only where it may be more, so that it can be called each time.
  void trim_set_aside(std::uint64_t max_bytes) const;
  Directory temporaries() const;       ///< the directory of these
  Directory set_aside_folder() const;  ///< likewise
  /// For this user, on the file system. Nothing: it does not say.
  std::optional<std::uint64_t> free_bytes() const;

  /// What addresses and lengths must be multiples of for I/O past the page cache; nothing where the
  /// file system does not have it. Writes and removes a file of this name.
  static std::optional<std::size_t> probe_direct(const Directory& directory,
                                                 const std::string& name);

 private:
  StoreDirectory(std::string root, Directory directory)
      : root_(std::move(root)), directory_(std::move(directory)) {}
  Status check_owner() const;
  Status check_is_store(bool known) const;
  Status make_directory(const std::string& name) const;

  std::string root_;     // for messages, and to see whether it still leads here
  Directory directory_;  // its own
  mutable std::atomic<std::uint64_t> set_aside_bytes_ = UINT64_MAX;  // no less than there are
};

/// set_aside/ may hold one part in so many of the capacity, beside it.
inline constexpr std::uint64_t kSetAsideShare = 16;

inline constexpr std::string_view kLockName = "pando.lock";
inline constexpr std::string_view kIndexName = "pando.index";

}  // namespace pando
