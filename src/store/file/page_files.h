// SPDX-License-Identifier: Apache-2.0
// The pages of a directory: their files and the index of them, kept in step. FileStore asks here
// for a file to read or write and says what became of it; the bytes are moved elsewhere.
//
// A file and its entry change together, under one of the locks that keys are spread over: a page
// that was put is found until it is removed, evicted or set aside, whatever other threads do. Files
// that vanish or are damaged behind our back are found when they are read. Calls may come from any
// thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "pando/result.h"
#include "pando/store.h"
#include "pando/store_backends.h"
#include "store/file/fd.h"
#include "store/file/file_index.h"
#include "store/file/spare_files.h"
#include "store/file/store_directory.h"

namespace pando {

class PageFiles {
 public:
  /// Locks the directory, tidies it up and finds the pages in it.
  static Result<std::unique_ptr<PageFiles>> open(const FileStoreOptions& options);
  ~PageFiles() { spares_.remove_all(); }

  FileIndex& index() { return index_; }
  const FileIndex& index() const { return index_; }
  StoreDirectory& directory() { return directory_; }

  /// Seconds since 1970.
  static std::uint32_t now_seconds();
  /// Sets the time of a file that was used to one later than all before.
  void stamp(const Fd& file);

  /// Room for the page's file, by the capacity and on the file system; what was used least goes.
  Status reserve(std::uint64_t page_bytes);
  /// Gives up on a page for which there was room.
  void unreserve(std::uint64_t page_bytes);
  /// After the disk was full all the same: evicts twice what the page needs.
  Status make_more_room(std::uint64_t page_bytes);
  /// A file in tmp/ to write the page to, and its path: that of an evicted page, or an empty one.
  /// Makes the directory anew if it is gone. out_of_capacity: the file system takes no more.
  Result<Fd> create(std::string& path, std::uint64_t page_bytes, int flags);
  /// The file is whole: from now on it is the page's.
  Status commit(const std::string& temporary, std::string_view key, std::uint64_t page_bytes);

  /// For reading; follow with done_reading(), when it is closed, unless it is !ok().
  Fd open_page(std::string_view key, int flags);
  void done_reading(std::string_view key);
  /// Removes a page; it need not be there.
  Status remove(std::string_view key);
  /// A page's file could not be found: it is no page any more, unless it has come back.
  void forget_if_gone(std::string_view key);
  /// A page's file is not what was written.
  void set_aside_damaged(std::string_view key);

  void add_stats(BackendStats& stats) const;

 private:
  PageFiles(const FileStoreOptions& options, StoreDirectory directory)
      : min_free_bytes_(options.min_free_bytes),
        directory_(std::move(directory)),
        index_(options.capacity_bytes) {}

  struct KeyLock {
    std::mutex mutex;
    std::size_t num_readers = 0;  // of files of all its keys
  };
  enum class Fate { removed, spare };

  KeyLock& lock_of(std::string_view key);
  Status make_again();
  /// The bytes that its file had; nothing: there was no page.
  Result<std::optional<std::uint64_t>> remove_file(std::string_view key, Fate fate);
  /// The bytes that are free now; nothing: there are no pages left.
  Result<std::optional<std::uint64_t>> evict_oldest(Fate fate);
  Status evict_bytes(std::uint64_t file_size_bytes);
  Status make_room_on_disk(std::uint64_t file_size_bytes);
  bool make_spare(const std::string& path, std::string_view key);
  void scan();

  const std::uint64_t min_free_bytes_;
  StoreDirectory directory_;
  FileIndex index_;
  SpareFiles spares_;
  std::array<KeyLock, 256> key_locks_;
  std::mutex making_again_;
  std::atomic<std::int64_t> unasked_bytes_ = 0;  // may be written before asking what is free
  std::atomic<std::int64_t> last_stamp_ns_ = 0;
  std::atomic<std::uint64_t> evicted_ = 0;
  std::atomic<std::uint64_t> damaged_ = 0;
  std::atomic<std::uint64_t> foreign_ = 0;
};

}  // namespace pando
