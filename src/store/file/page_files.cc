// SPDX-License-Identifier: Apache-2.0
// PageFiles: one page's file at a time, and making room for it.
#include "store/file/page_files.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>

#include "base/check.h"
#include "store/file/file_scan.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

bool is_gone(int error) { return error == ENOENT || error == ENOTDIR; }

constexpr mode_t kFileMode = 0644;
constexpr int kRoundsOfRoom = 4;
constexpr std::int64_t kUnaskedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<std::unique_ptr<PageFiles>> PageFiles::open(const FileStoreOptions& options) {
  Result<StoreDirectory> directory = StoreDirectory::name(options.directory);
  if (!directory) return directory.error();
  std::unique_ptr<PageFiles> files(new PageFiles(options, std::move(*directory)));
  if (Status made = files->directory_.lock_and_make(); !made) return made.error();
  files->directory_.remove_temporaries();
  files->scan();
  while (files->index_.used_bytes() > options.capacity_bytes)  // it was larger the last time
    if (const auto evicted = files->evict_oldest(Fate::removed); !evicted) return evicted.error();
  return files;
}

void PageFiles::scan() {
  const FileScan found = scan_directory(directory_);
  for (const ScannedFile& file : found.pages) {
    index_.insert(file.key, file.page_bytes,
                  static_cast<std::uint32_t>(file.modified_ns / kNsPerSecond));
    last_stamp_ns_ = std::max<std::int64_t>(last_stamp_ns_, file.modified_ns);
  }
  // Files from the future would keep all that come later from being newer than them.
  last_stamp_ns_ = std::min<std::int64_t>(last_stamp_ns_, now_ns());
  damaged_ += found.num_damaged;
  foreign_ += found.num_foreign + directory_.foreign_names().size();
}

void PageFiles::add_stats(BackendStats& stats) const {
  stats.num_pages = index_.num_pages();
  stats.size_bytes = index_.used_bytes();
  stats.capacity_bytes = index_.capacity_bytes();
  stats.evicted_pages = evicted_;
  stats.damaged_pages = damaged_;
  stats.foreign_files = foreign_;
}

// ---- Times.

std::uint32_t PageFiles::now_seconds() {
  return static_cast<std::uint32_t>(now_ns() / kNsPerSecond);
}

void PageFiles::stamp(const Fd& file) {
  std::int64_t last = last_stamp_ns_.load();
  std::int64_t next;
  do next = std::max(last + 1, now_ns());
  while (!last_stamp_ns_.compare_exchange_weak(last, next));
  const timespec time{next / kNsPerSecond, next % kNsPerSecond};
  const timespec times[] = {time, time};
  ::futimens(file.get(), times);  // if it cannot be set, the page goes a little early
}

// ---- Room.

Status PageFiles::reserve(std::uint64_t page_bytes) {
  const std::uint64_t needed = file_bytes(page_bytes);
  if (needed > index_.capacity_bytes())
    return make_error(ErrorCode::out_of_capacity,
                      "a page of {} bytes takes {} on disk, the capacity of {} is {}", page_bytes,
                      needed, directory_.root(), index_.capacity_bytes());
  while (!index_.reserve(needed)) {
    const auto evicted = evict_oldest(Fate::spare);
    if (!evicted) return evicted.error();
    if (!evicted->has_value())
      return make_error(ErrorCode::out_of_capacity,
                        "no room for {} bytes in {}: all {} are being written to", needed,
                        directory_.root(), index_.capacity_bytes());
  }
  Status on_disk = make_room_on_disk(needed);
  if (!on_disk) index_.release(needed);
  return on_disk;
}

void PageFiles::unreserve(std::uint64_t page_bytes) { index_.release(file_bytes(page_bytes)); }

// Freed blocks may take a moment to be counted as free, so it looks again a few times, and does not
// throw everything away because of that.
Status PageFiles::make_room_on_disk(std::uint64_t file_size_bytes) {
  const auto more = static_cast<std::int64_t>(file_size_bytes);
  if (unasked_bytes_.fetch_sub(more) >= more) return {};
  const std::uint64_t needed = min_free_bytes_ + file_size_bytes;
  std::uint64_t available = 0;
  for (int round = 0; round < kRoundsOfRoom; ++round) {
    const std::optional<std::uint64_t> free = directory_.free_bytes();
    if (!free) return {};  // writing will tell
    if (*free >= needed) {
      unasked_bytes_ = std::min<std::int64_t>(kUnaskedBytes, std::int64_t(*free - needed));
      return {};
    }
    available = *free;
    if (index_.num_pages() == 0) break;
    if (Status evicted = evict_bytes(needed - available); !evicted) return evicted;
  }
  return make_error(ErrorCode::out_of_capacity,
                    "no room for {} bytes in {}: the file system has {} free, {} are to stay so",
                    file_size_bytes, directory_.root(), available, min_free_bytes_);
}

Status PageFiles::make_more_room(std::uint64_t page_bytes) {
  return evict_bytes(2 * file_bytes(page_bytes));
}

Status PageFiles::evict_bytes(std::uint64_t file_size_bytes) {
  spares_.remove_all();
  for (std::uint64_t freed = 0; freed < file_size_bytes;) {
    const auto evicted = evict_oldest(Fate::removed);
    if (!evicted) return evicted.error();
    if (!evicted->has_value()) break;
    freed += **evicted;
  }
  return {};
}

Result<std::optional<std::uint64_t>> PageFiles::evict_oldest(Fate fate) {
  while (const std::optional<std::string> key = index_.oldest()) {
    auto removed = remove_file(*key, fate);
    if (!removed) return removed;
    if (!removed->has_value()) continue;  // another thread was faster
    ++evicted_;
    return removed;
  }
  return std::optional<std::uint64_t>();
}

// ---- Files.

PageFiles::KeyLock& PageFiles::lock_of(std::string_view key) {
  return key_locks_[std::hash<std::string_view>()(key) % key_locks_.size()];
}

Result<Fd> PageFiles::create(std::string& path, std::uint64_t page_bytes, int flags) {
  if (Fd spare = spares_.take(file_bytes(page_bytes), flags, path); spare.ok()) return spare;
  bool made_again = false;
  while (true) {
    path = directory_.new_temporary();
    Fd file = Fd::open(path, flags | O_WRONLY | O_CREAT | O_EXCL, kFileMode);
    if (file.ok()) return file;
    if (file.error() == EEXIST) continue;  // it could not be removed when the store was opened
    if (file.error() != ENOENT || made_again)
      return make_error(is_full(file.error()) ? ErrorCode::out_of_capacity : ErrorCode::io_error,
                        "cannot create {}: {}", path, errno_text(file.error()));
    if (Status made = make_again(); !made) return made.error();
    made_again = true;
  }
}

Status PageFiles::make_again() {
  const std::lock_guard lock(making_again_);
  if (directory_.lost()) index_.clear();
  return directory_.lock_and_make();
}

Status PageFiles::commit(const std::string& temporary, std::string_view key,
                         std::uint64_t page_bytes) {
  const std::string path = directory_.path_of(key);
  const std::lock_guard lock(lock_of(key).mutex);
  int done = ::rename(temporary.c_str(), path.c_str());
  if (done != 0 && errno == ENOENT && directory_.make_subdirectory(directory_of(key)).ok())
    done = ::rename(temporary.c_str(), path.c_str());
  if (done != 0)
    return make_error(ErrorCode::io_error, "cannot rename {} to {}: {}", temporary, path,
                      errno_text(errno));
  index_.insert_reserved(key, page_bytes, now_seconds());
  return {};
}

Status PageFiles::remove(std::string_view key) {
  const auto removed = remove_file(key, Fate::removed);
  return removed ? Status() : Status(removed.error());
}

Result<std::optional<std::uint64_t>> PageFiles::remove_file(std::string_view key, Fate fate) {
  const std::string path = directory_.path_of(key);
  KeyLock& key_lock = lock_of(key);
  const std::lock_guard lock(key_lock.mutex);
  const bool spare = fate == Fate::spare && key_lock.num_readers == 0 && make_spare(path, key);
  if (!spare && ::unlink(path.c_str()) != 0 && !is_gone(errno))
    return make_error(ErrorCode::io_error, "cannot remove {}: {}", path, errno_text(errno));
  const std::optional<std::uint64_t> page_bytes = index_.erase(key);
  if (!page_bytes) return std::optional<std::uint64_t>();
  return std::optional(file_bytes(*page_bytes));
}

// Moved first: a file that is known as a spare may be written to at once.
bool PageFiles::make_spare(const std::string& path, std::string_view key) {
  const std::optional<std::uint64_t> page_bytes = index_.size_of(key);
  const std::string to = directory_.new_temporary();
  if (!page_bytes || ::rename(path.c_str(), to.c_str()) != 0) return false;
  if (!spares_.add(to, file_bytes(*page_bytes))) ::unlink(to.c_str());
  return true;
}

Fd PageFiles::open_page(std::string_view key, int flags) {
  KeyLock& key_lock = lock_of(key);
  const std::lock_guard lock(key_lock.mutex);
  Fd file = Fd::open(directory_.path_of(key), O_RDONLY | O_NOFOLLOW | flags);
  if (file.ok()) ++key_lock.num_readers;
  return file;
}

void PageFiles::done_reading(std::string_view key) {
  KeyLock& key_lock = lock_of(key);
  const std::lock_guard lock(key_lock.mutex);
  --key_lock.num_readers;
}

void PageFiles::forget_if_gone(std::string_view key) {
  const std::lock_guard lock(lock_of(key).mutex);
  struct stat info;
  if (::stat(directory_.path_of(key).c_str(), &info) != 0 && is_gone(errno)) index_.erase(key);
}

void PageFiles::set_aside_damaged(std::string_view key) {
  const std::lock_guard lock(lock_of(key).mutex);
  if (!index_.erase(key)) return;  // by another thread
  ++damaged_;
  // Where it cannot be moved it stays, and is not found: the next put goes over it.
  static_cast<void>(directory_.set_aside(directory_.path_of(key)).ok());
}

}  // namespace pando
