// SPDX-License-Identifier: Apache-2.0
// FileIndex: entries in one array, chained by their numbers.
#include "store/file/file_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <limits>

#include "base/check.h"
#include "store/file/page_file.h"

namespace pando {
namespace {
constexpr std::size_t kFirstBuckets = 64;
constexpr std::size_t kListed = 256;  // pages copied out at a time
constexpr std::size_t kMaxEntries = std::numeric_limits<std::uint32_t>::max();
}  // namespace

FileIndex::FileIndex(std::uint64_t capacity_bytes)
    : capacity_bytes_(capacity_bytes), entries_(1), buckets_(kFirstBuckets, kAnchor) {}

// ---- Pages and room.

std::optional<FileIndex::Found> FileIndex::touch(std::string_view key, std::uint32_t now_seconds) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t i = find(key);
  if (i == kAnchor) return std::nullopt;
  Entry& entry = entries_[i];
  unlink(i);
  link_newest(i);
  const bool restamp = now_seconds >= entry.stamp_seconds + std::uint64_t{kRestampSeconds};
  if (restamp) entry.stamp_seconds = now_seconds;
  return Found{entry.size_bytes, restamp};
}

std::optional<std::uint64_t> FileIndex::size_of(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const std::uint32_t i = find(key);
  if (i == kAnchor) return std::nullopt;
  return entries_[i].size_bytes;
}

bool FileIndex::reserve(std::uint64_t file_size_bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t used = file_bytes_ + reserved_bytes_;
  if (used > capacity_bytes_ || file_size_bytes > capacity_bytes_ - used) return false;
  reserved_bytes_ += file_size_bytes;
  return true;
}

void FileIndex::release(std::uint64_t file_size_bytes) {
  const std::lock_guard lock(mutex_);
  PANDO_CHECK(file_size_bytes <= reserved_bytes_, "{} of {} reserved bytes are released",
              file_size_bytes, reserved_bytes_);
  reserved_bytes_ -= file_size_bytes;
}

void FileIndex::insert(std::string_view key, std::uint64_t size_bytes,
                       std::uint32_t stamp_seconds) {
  const std::lock_guard lock(mutex_);
  put(key, size_bytes, stamp_seconds);
}

void FileIndex::insert_reserved(std::string_view key, std::uint64_t size_bytes,
                                std::uint32_t stamp_seconds) {
  const std::lock_guard lock(mutex_);
  PANDO_CHECK(file_bytes(size_bytes) <= reserved_bytes_, "a page of {} bytes, {} were reserved",
              size_bytes, reserved_bytes_);
  reserved_bytes_ -= file_bytes(size_bytes);
  put(key, size_bytes, stamp_seconds);
}

std::optional<std::uint64_t> FileIndex::erase(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t i = find(key);
  if (i == kAnchor) return std::nullopt;
  const std::uint64_t size_bytes = entries_[i].size_bytes;
  drop(i);
  return size_bytes;
}

void FileIndex::clear() {
  const std::lock_guard lock(mutex_);
  tails_ = {};
  entries_.assign(1, {});
  buckets_.assign(kFirstBuckets, kAnchor);
  free_ = kAnchor;
  num_pages_ = 0;
  file_bytes_ = 0;  // what is reserved is still being written
}

// ---- Questions.

std::optional<std::string> FileIndex::oldest() const {
  const std::lock_guard lock(mutex_);
  const std::uint32_t i = entries_[kAnchor].newer;
  if (i == kAnchor) return std::nullopt;
  return tails_.text(entries_[i].key);
}

std::vector<StoredPage> FileIndex::list_some(std::size_t& cursor) const {
  const std::lock_guard lock(mutex_);
  std::vector<StoredPage> pages;
  for (cursor = std::max<std::size_t>(cursor, 1);
       cursor < entries_.size() && pages.size() < kListed; ++cursor) {
    const Entry& entry = entries_[cursor];
    if (entry.older == cursor) continue;  // free
    pages.push_back({tails_.text(entry.key), entry.size_bytes});
  }
  return pages;
}

std::size_t FileIndex::num_pages() const {
  const std::lock_guard lock(mutex_);
  return num_pages_;
}

std::uint64_t FileIndex::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return file_bytes_ + reserved_bytes_;
}

Status FileIndex::check() const {
  const std::lock_guard lock(mutex_);
  std::size_t in_list = 0, in_buckets = 0;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = entries_[kAnchor].newer; i != kAnchor; i = entries_[i].newer) {
    if (entries_[entries_[i].newer].older != i || ++in_list > num_pages_)
      return make_error(ErrorCode::corrupt, "the list of use is broken at entry {}", i);
    bytes += file_bytes(entries_[i].size_bytes);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::uint32_t i = buckets_[b]; i != kAnchor; i = entries_[i].next)
      if (bucket_of(entries_[i].key) != b || ++in_buckets > num_pages_)
        return make_error(ErrorCode::corrupt, "bucket {} is broken at entry {}", b, i);
  if (in_list != num_pages_ || in_buckets != num_pages_ || bytes != file_bytes_)
    return make_error(ErrorCode::corrupt,
                      "{} pages of {} bytes are counted; {} of {} bytes are in the list of use, "
                      "{} in buckets",
                      num_pages_, file_bytes_, in_list, bytes, in_buckets);
  return {};
}

// ---- With the lock held.

std::size_t FileIndex::bucket_of(const PackedKey& key) const {
  static_assert(sizeof(PackedKey) == 36);
  return XXH3_64bits(&key, sizeof key) & (buckets_.size() - 1);
}

std::uint32_t FileIndex::find(std::string_view key) const {
  const std::optional<PackedKey> packed = tails_.find(key);
  if (!packed) return kAnchor;
  std::uint32_t i = buckets_[bucket_of(*packed)];
  while (i != kAnchor && entries_[i].key != *packed) i = entries_[i].next;
  return i;
}

void FileIndex::link_newest(std::uint32_t i) {
  const std::uint32_t before = entries_[kAnchor].older;
  entries_[i].older = before;
  entries_[i].newer = kAnchor;
  entries_[before].newer = i;
  entries_[kAnchor].older = i;
}

void FileIndex::unlink(std::uint32_t i) {
  entries_[entries_[i].older].newer = entries_[i].newer;
  entries_[entries_[i].newer].older = entries_[i].older;
  entries_[i].older = i;  // list_some() knows free entries by this
}

void FileIndex::put(std::string_view key, std::uint64_t size_bytes, std::uint32_t stamp_seconds) {
  if (const std::uint32_t old = find(key); old != kAnchor) drop(old);
  if (num_pages_ >= buckets_.size()) grow_buckets();
  const std::uint32_t i = take_entry();
  Entry& entry = entries_[i];
  entry.key = tails_.hold(key);
  entry.size_bytes = size_bytes;
  entry.stamp_seconds = stamp_seconds;
  std::uint32_t& bucket = buckets_[bucket_of(entry.key)];
  entry.next = bucket;
  bucket = i;
  link_newest(i);
  ++num_pages_;
  file_bytes_ += file_bytes(size_bytes);
}

void FileIndex::drop(std::uint32_t i) {
  Entry& entry = entries_[i];
  std::uint32_t* at = &buckets_[bucket_of(entry.key)];
  while (*at != i) at = &entries_[*at].next;
  *at = entry.next;
  unlink(i);
  tails_.release(entry.key);
  --num_pages_;
  file_bytes_ -= file_bytes(entry.size_bytes);
  entry.next = free_;
  free_ = i;
}

std::uint32_t FileIndex::take_entry() {
  if (free_ == kAnchor) {
    PANDO_CHECK(entries_.size() < kMaxEntries, "more than {} pages in one directory", kMaxEntries);
    entries_.emplace_back();
    return static_cast<std::uint32_t>(entries_.size() - 1);
  }
  const std::uint32_t i = free_;
  free_ = entries_[i].next;
  return i;
}

void FileIndex::grow_buckets() {
  buckets_.assign(buckets_.size() * 2, kAnchor);
  for (std::uint32_t i = entries_[kAnchor].newer; i != kAnchor; i = entries_[i].newer) {
    std::uint32_t& bucket = buckets_[bucket_of(entries_[i].key)];
    entries_[i].next = bucket;
    bucket = i;
  }
}

}  // namespace pando
