// SPDX-License-Identifier: Apache-2.0
// Which pages a directory holds, how large each is, and in which order they were used; and how much
// room there is. PageFiles keeps it in step with the files; nothing here touches a disk.
//
// A page costs 64 bytes here and 4 to 8 of the hash table, whatever the length of its key (see
// packed_key.h): a terabyte of 1 MiB pages is about 70 MB.
//
// Invariant: every entry in use is in one bucket and in the list of use, and the bytes are the sum
// of their files'. Calls may come from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "pando/store.h"
#include "store/file/packed_key.h"

namespace pando {

/// Reads refresh the time of a file when it is older than this, so that the order of use survives a
/// restart to within ten minutes, and a page that is read all the time costs no extra writes.
inline constexpr std::uint32_t kRestampSeconds = 600;

class FileIndex {
 public:
  explicit FileIndex(std::uint64_t capacity_bytes);

  struct Found {
    std::uint64_t size_bytes = 0;
    bool restamp = false;  ///< set its file's time, to the `now` of the call
  };
  /// Makes it the last used.
  std::optional<Found> touch(std::string_view key, std::uint32_t now_seconds);
  std::optional<std::uint64_t> size_of(std::string_view key) const;
  bool contains(std::string_view key) const { return size_of(key).has_value(); }

  /// Sets room aside for a file. False: there is not enough, and something must go first.
  bool reserve(std::uint64_t file_size_bytes);
  void release(std::uint64_t file_size_bytes);
  /// As the last used; one that was there is replaced.
  void insert(std::string_view key, std::uint64_t size_bytes, std::uint32_t stamp_seconds);
  /// insert() in place of what reserve() set aside for it.
  void insert_reserved(std::string_view key, std::uint64_t size_bytes, std::uint32_t stamp_seconds);
  /// The size of the page; nothing if there is none.
  std::optional<std::uint64_t> erase(std::string_view key);
  void clear();

  /// The page that goes first.
  std::optional<std::string> oldest() const;
  /// Some of the pages, going on where `cursor` (0 at first) says; none at the end.
  std::vector<StoredPage> list_some(std::size_t& cursor) const;

  std::size_t num_pages() const;
  std::uint64_t used_bytes() const;  ///< of files, those being written among them
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }

  /// Proves the invariant; O(pages).
  Status check() const;

 private:
  // Entry 0 is no page: the list of use begins and ends there (its newer is the oldest page), and
  // chains of buckets end there.
  static constexpr std::uint32_t kAnchor = 0;
  struct Entry {
    PackedKey key;
    std::uint32_t next = kAnchor;  // in its bucket, or of the free ones
    std::uint32_t older = kAnchor;
    std::uint32_t newer = kAnchor;
    std::uint32_t stamp_seconds = 0;  // time of the file
    std::uint64_t size_bytes = 0;
  };
  static_assert(sizeof(Entry) == 64);

  std::uint32_t find(std::string_view key) const;  // kAnchor: not there
  std::size_t bucket_of(const PackedKey& key) const;
  void link_newest(std::uint32_t i);
  void unlink(std::uint32_t i);
  void put(std::string_view key, std::uint64_t size_bytes, std::uint32_t stamp_seconds);
  void drop(std::uint32_t i);
  std::uint32_t take_entry();
  void grow_buckets();

  const std::uint64_t capacity_bytes_;
  mutable std::mutex mutex_;
  KeyTails tails_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> buckets_;  // a power of two of them, at least as many as pages
  std::uint32_t free_ = kAnchor;        // chain of entries not in use
  std::size_t num_pages_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace pando
