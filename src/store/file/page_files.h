// SPDX-License-Identifier: Apache-2.0
// The pages of a directory: their files and the index of them, kept in step, for this process among
// those that have the store open. FileStore asks here for a file to read or write and says what
// became of it; the bytes are moved elsewhere.
//
// A file and its entry change together, under one of the locks that keys are spread over: a page
// that was put is found until it is removed, evicted or set aside, whatever other threads and
// processes do. Files that vanish or are damaged behind our back are found when they are read.
//
// A store that is full removes a page for each that it writes, and file systems make removing and
// creating dear: ext4 took a millisecond for both, with 4 MiB pages. So the file of the page that
// goes becomes the one of the page that comes, where they are equally long and nobody, in any
// process, has it open or another link to it. It is moved to tmp/ before it is written to; who
// looks for the old page meanwhile finds none.
//
// A new page is written to a file without a name where the file system has such (unnamed_file.h).
// The capacity counts every file among the pages and being written. Calls may come from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "pando/store.h"
#include "pando/store_backends.h"
#include "store/file/fd.h"
#include "store/file/membership.h"
#include "store/file/store_directory.h"

namespace pando {

/// A file being written, with room set aside for it: in tmp/, or without a name.
struct PageWrite {
  std::shared_ptr<Membership> member = {};
  RecordId record = kNoUnit;
  Fd file = {};
  std::uint64_t page_bytes = 0;
  std::string name = {};   ///< in the member's temporaries; empty: it has none yet
  bool is_reused = false;  ///< has its blocks already
};

/// A page's file, open for reading. !ok() of `file`: it could not be opened.
struct PageRead {
  std::shared_ptr<Membership> member = {};
  Fd file = {};
};

class PageFiles {
 public:
  /// Joins the processes that have the directory open; alone, tidies it up and finds the pages.
  static Result<std::unique_ptr<PageFiles>> open(const FileStoreOptions& options);

  const std::string& root() const { return root_; }
  /// For messages.
  std::string path_of(std::string_view key) const { return StoreDirectory::path_in(root_, key); }
  /// As on a file system where every file has a name from the beginning; for tests.
  void use_named_files() { has_unnamed_files_ = false; }
  /// Who we are now; another one after the directory or the index was replaced.
  std::shared_ptr<Membership> member() const;

  /// Before a call's pages: cleans up after dead processes, joins anew where the directory or the
  /// index was replaced, and looks again at files that could not be looked at; once a second at
  /// most.
  void keep_up();

  /// Seconds since 1970.
  static std::uint32_t now_seconds();
  /// Sets the time of a file that was used to one later than all before.
  void stamp(const Fd& file);

  std::optional<FileIndex::Found> touch(std::string_view key);
  bool contains(std::string_view key) { return member()->index().contains(key); }
  std::vector<StoredPage> list_some(std::size_t& cursor);

  /// Room for the page, by the capacity and on the file system (what was used least goes), and a
  /// file for it. Makes the directory anew if it is gone. invalid_argument: the page is larger than
  /// the capacity. out_of_capacity: there is no more to be had. Follow with commit() or abandon().
  Result<PageWrite> begin_write(std::string_view key, std::uint64_t page_bytes, int flags);
  /// After the disk was full all the same: evicts twice what the page needs.
  Status make_more_room(std::uint64_t page_bytes);
  /// The file is whole: from now on it is the page's, unless the page has come meanwhile with as
  /// many bytes. After an error, abandon() it.
  Status commit(PageWrite& write, std::string_view key);
  /// Removes the file and gives its room back.
  void abandon(PageWrite& write);

  /// For reading; follow with done_reading(), unless it is !ok().
  PageRead open_page(std::string_view key, int flags);
  void done_reading(PageRead& read, std::string_view key);
  /// Removes a page; it need not be there.
  Status remove(std::string_view key);
  /// A page's file could not be opened: it is no page any more, unless it can be by now. If it is
  /// there it is looked at again later.
  void forget_unopened(std::string_view key);
  /// The same for one that could not be read. Does nothing if the page has another file by now.
  void forget_unread(std::string_view key, const Fd& file);
  /// What was read from a page's file is not what was written. Does nothing if the page has another
  /// file by now.
  void set_aside_damaged(std::string_view key, const Fd& file);

  void add_stats(BackendStats& stats) const;

 private:
  PageFiles(const FileStoreOptions& options, std::string root)
      : capacity_bytes_(options.capacity_bytes),
        min_free_bytes_(options.min_free_bytes),
        root_(std::move(root)) {}

  /// A page that went to make room: its file in tmp/ and its record, for a page as long.
  struct Evicted {
    std::uint64_t file_bytes = 0;
    std::optional<PageWrite> reusable = {};
  };
  Status join_again(const std::shared_ptr<Membership>& old);
  void look_again(Membership& member, std::int64_t now_ns);
  Status evict_beyond_capacity(const std::shared_ptr<Membership>& member);
  Result<PageWrite> find_room(const std::shared_ptr<Membership>& member, std::string_view key,
                              std::uint64_t page_bytes, int flags);
  Result<std::optional<PageWrite>> take_over(Evicted evicted, std::string_view key,
                                             std::uint64_t page_bytes);
  Status create_file(PageWrite& write, int flags) const;
  static int move_to(const PageWrite& write, const Directory& directory, const std::string& key);
  /// With `reuse_bytes`, a file as long may be kept. Nothing: there was no page.
  Result<std::optional<Evicted>> remove_file(const std::shared_ptr<Membership>& member,
                                             std::string_view key,
                                             std::optional<std::uint64_t> reuse_bytes, int flags);
  /// Nothing: there are no pages left.
  Result<std::optional<Evicted>> evict_oldest(const std::shared_ptr<Membership>& member,
                                              std::optional<std::uint64_t> reuse_bytes, int flags);
  Status evict_bytes(std::uint64_t file_size_bytes);
  Status make_room_on_disk(std::uint64_t file_size_bytes);
  std::optional<PageWrite> keep_file(const std::shared_ptr<Membership>& member,
                                     const Directory& directory, const std::string& key,
                                     std::uint64_t file_size_bytes, int flags);
  void forget(Membership& member, std::string_view key);
  void set_aside(Membership& member, std::string_view key);

  const std::uint64_t capacity_bytes_;
  const std::uint64_t min_free_bytes_;
  const std::string root_;
  bool has_unnamed_files_ = false;  // as found when it was opened
  mutable std::mutex mutex_;        // of the next
  std::shared_ptr<Membership> member_;
  std::mutex joining_;
  std::atomic<std::int64_t> next_look_ns_ = 0;        // of keep_up(), by the steady clock
  std::atomic<std::int64_t> next_look_again_ns_ = 0;  // likewise, of files that could not be read
  std::atomic<std::int64_t> look_again_after_ns_ = 0;
  std::atomic<std::int64_t> unasked_bytes_ = 0;  // may be written before asking what is free
  std::atomic<std::uint64_t> evicted_ = 0;
  std::atomic<std::uint64_t> damaged_ = 0;
  std::atomic<std::uint64_t> foreign_ = 0;
};

}  // namespace pando
