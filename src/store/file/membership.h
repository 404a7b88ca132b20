// SPDX-License-Identifier: Apache-2.0
// One store's place among the processes that have a directory open: its number, the index they
// share, the locks of keys, and cleaning up after members that died. PageFiles holds one, and takes
// a new one when the directory or the index was replaced behind its back.
//
// Joining. Under the setup lock, one at a time. Where no other member lives the index of before is
// worth nothing: a new one is made from the files. Else its index is mapped; the capacity must be
// the same. An index that is foreign, cut off or broken is made anew as well, and members that
// still have the old one find that out (is_stale) and join again.
//
// Dying. The kernel gives the member's byte in pando.lock free. Locks that it held are taken over
// by who waits. Its files in tmp/, its records in the index and with them its bytes stay counted
// until clean_up() of any member has removed them: one cleans at a time, under a lock that goes
// with the cleaner, so that the next one starts over.
//
// Sharing. On file systems that machines may share (NFS and the like) a mapping says nothing of the
// others: there a store has its directory alone, with an index in its own memory.
//
// Order of locks: setup or cleaning, then a key's, then the index's own. Calls may come from any
// thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "pando/result.h"
#include "store/file/file_index.h"
#include "store/file/lock_file.h"
#include "store/file/store_directory.h"

namespace pando {

/// What was found among the pages when the index was made.
struct FoundFiles {
  std::uint64_t num_damaged = 0;
  std::uint64_t num_foreign = 0;
};

class Membership {
 public:
  /// `known`: the directory was this store's before. in_use: somebody needs the directory alone.
  /// invalid_argument: others have it with another capacity, it was never a store, or others could
  /// change it.
  static Result<std::shared_ptr<Membership>> join(const std::string& root, bool known,
                                                  std::uint64_t capacity_bytes, FoundFiles& found);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  FileIndex& index() { return *index_; }
  std::uint32_t number() const { return number_; }
  /// The directory or the index is not the one that was joined, or the index is broken.
  bool is_stale() const;
  const StoreDirectory& directory() const { return directory_; }
  /// A directory of its own, for files being written.
  const Directory& temporaries() const { return temporaries_; }
  std::string temporaries_path() const;  ///< for messages
  /// A new name in it.
  std::string new_temporary();
  /// A time later than all that members have had.
  std::int64_t next_stamp_ns();

  /// Held while a file and its entry change together, and while one is opened.
  class KeyLock {
   public:
    KeyLock(Membership& member, std::string_view key);
    ~KeyLock() { member_.stripes_[stripe_].unlock(); }
    KeyLock(const KeyLock&) = delete;
    KeyLock& operator=(const KeyLock&) = delete;
    /// Somebody has a file of one of its keys open.
    bool has_readers() const;
    /// Until done_reading(), files of its keys are not written over.
    void add_reader();

   private:
    Membership& member_;
    const std::size_t stripe_;
  };
  void done_reading(std::string_view key);

  /// Removes what dead members left. Does nothing while another member does it.
  void clean_up();

  /// Something in the directory of this key could not be looked at, and may be a page.
  void look_later(std::string_view key);
  bool has_unlooked() const;
  /// Looks at all that could not be looked at before: what is whole is a page from now on. False:
  /// something still cannot be.
  bool look_again(FoundFiles& found);

 private:
  Membership(StoreDirectory directory, LockFile lock, bool is_shared)
      : directory_(std::move(directory)), lock_(std::move(lock)), is_shared_(is_shared) {}
  IndexPlace index_place() const;
  Status set_up(std::uint64_t capacity_bytes, FoundFiles& found);
  Status join_others(std::uint64_t capacity_bytes);
  Status start_anew(std::unique_ptr<IndexMapping> mapping, FoundFiles& found);
  Status take_number();
  void enter(std::unique_ptr<IndexMapping> mapping);
  Status make_own_directory();
  void clean_after(std::uint32_t member);
  void mark_unlooked(std::size_t directory);
  bool look_again_at(std::uint8_t directory, FoundFiles& found);

  const StoreDirectory directory_;
  LockFile lock_;
  const bool is_shared_;
  std::uint32_t number_ = 0;
  std::unique_ptr<FileIndex> index_;
  std::array<SharedLock, kNumStripes> stripes_;
  std::mutex cleaning_;
  Directory temporaries_;  // where our files are written
  std::string temporaries_name_;
  std::atomic<std::uint64_t> num_temporaries_ = 0;
};

}  // namespace pando
