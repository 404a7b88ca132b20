// SPDX-License-Identifier: Apache-2.0
// Which pages a directory holds, how large each is, and in which order they were used; and how much
// room there is: for all processes that have the store open, in a mapping that they share. A put of
// one is seen by the others at once, the capacity is one sum, eviction one order. PageFiles keeps
// it in step with the files; nothing here touches them.
//
// A page is found here, or it is *pending*: its file is being written or removed by a member, whose
// list it is in, and its bytes are counted. A file that appears gets its record before and is found
// after; one that goes is no longer found before and counted until after. So whenever a process
// dies, every file under a page's name is that of a page found here or of a record in a list, and
// whoever cleans up after the dead goes through its list.
//
// Cost: 64 bytes a page and 4 to 8 of buckets, whatever the length of its key (packed_key.h): a
// terabyte of 1 MiB pages is about 70 MB. Every call takes the one lock and changes a few dozen
// words: with 100 000 pages 0.5 µs to find one, 0.7 to use it, 1.4 for a new one. A holder that
// dies is noticed by who waits within 10 ms, and what it had begun is undone from the log: the
// index is as before its call. Nothing is read from the disk.
//
// What is read from the mapping is checked before it is followed. Where it leads nowhere the index
// is broken for all members: calls find nothing and change nothing, and they make a new one from
// the files (Membership). Nobody needs the file pando.index once the store is closed.
//
// Invariant: every page is in one bucket and in the list of use, every record in one member's list,
// and the bytes are the sum of their files'. Calls may come from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "pando/store.h"
#include "store/file/index_mapping.h"
#include "store/file/key_tails.h"
#include "store/file/shared_lock.h"
#include "store/file/unit_table.h"

namespace pando {

/// Reads refresh the time of a file when it is older than this, so that the order of use survives a
/// restart to within ten minutes, and a page that is read all the time costs no extra writes.
inline constexpr std::uint32_t kRestampSeconds = 600;

/// Of a page whose file is being written or removed.
using RecordId = UnitId;

class FileIndex {
 public:
  /// `liveness` must outlive it.
  FileIndex(std::unique_ptr<IndexMapping> mapping, std::uint32_t member, const Liveness& liveness);

  struct Found {
    std::uint64_t size_bytes = 0;
    bool restamp = false;  ///< set its file's time, to the `now` of the call
  };
  /// Makes it the last used.
  std::optional<Found> touch(std::string_view key, std::uint32_t now_seconds);
  std::optional<std::uint64_t> size_of(std::string_view key);
  bool contains(std::string_view key) { return size_of(key).has_value(); }

  /// Sets room aside for the file of a page. Nothing: there is not enough, and something must go
  /// first. out_of_capacity: the index itself cannot grow.
  Result<std::optional<RecordId>> begin_write(std::string_view key, std::uint64_t page_bytes);
  /// The page is no longer found; its bytes count until end(). Nothing: there is no such page.
  struct Removal {
    RecordId record = kNoUnit;
    std::uint64_t page_bytes = 0;
  };
  std::optional<Removal> begin_remove(std::string_view key);
  /// The room of a page that goes, for one whose file has as many bytes.
  Status reuse(RecordId record, std::string_view key, std::uint64_t page_bytes);
  /// The file is there: the page is found from now on, as the last used. No page with this key may
  /// be there.
  Status commit(RecordId record, std::uint32_t stamp_seconds);
  /// The file is gone, or was never there.
  void end(RecordId record);
  /// A page with its file, as the last used; one that was there is replaced.
  Status insert(std::string_view key, std::uint64_t size_bytes, std::uint32_t stamp_seconds);

  /// What a member, ours or a dead one, had under way.
  struct Pending {
    RecordId record = kNoUnit;
    std::string key;
  };
  std::vector<Pending> pending_of(std::uint32_t member);
  /// end() for a dead member.
  void end_of(std::uint32_t member, RecordId record);

  /// The page that goes first.
  std::optional<std::string> oldest();
  /// Some of the pages, going on where `cursor` (0 at first) says; none at the end.
  std::vector<StoredPage> list_some(std::size_t& cursor);

  std::size_t num_pages();
  std::uint64_t used_bytes();  ///< of files, those being written among them
  std::uint64_t capacity_bytes() const { return mapping_->header().capacity_bytes; }
  bool is_broken() const { return mapping_->is_broken(); }
  bool is_lost() const { return mapping_->is_lost(); }
  IndexHeader& header() { return mapping_->header(); }

  /// Proves the invariant; O(pages).
  Status check();

 private:
  class Held;

  UnitId find(std::string_view key);  // kNoUnit: not there
  PageUnit& page(UnitId id) { return mapping_->unit(id).page; }
  IndexState& state() { return mapping_->header().state; }
  template <typename T>
  void set(T& field, T value) {
    mapping_->set(field, value);
  }
  void link_newest(UnitId id);
  void unlink(UnitId id);
  UnitId new_record(std::string_view key, std::uint64_t page_bytes);
  void link_pending(UnitId id);
  void unlink_pending(UnitId id, std::uint32_t member);
  void drop_pending(UnitId id, std::uint32_t member);
  void to_page(UnitId id, std::uint32_t stamp_seconds);
  bool to_pending(UnitId id);
  void set_size(UnitId id, std::uint64_t page_bytes);

  std::unique_ptr<IndexMapping> mapping_;
  const std::uint32_t member_;
  SharedLock lock_;
  UnitTable table_;
  KeyTails tails_;
};

}  // namespace pando
