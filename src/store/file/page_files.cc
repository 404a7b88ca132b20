// SPDX-License-Identifier: Apache-2.0
// PageFiles: one page's file at a time, and making room for it.
#include "store/file/page_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "store/file/page_file.h"
#include "store/file/unnamed_file.h"

namespace pando {
namespace {

bool is_gone(int error) { return error == ENOENT || error == ENOTDIR; }

constexpr mode_t kFileMode = 0644;
constexpr int kRoundsOfRoom = 4;
constexpr std::int64_t kUnaskedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::int64_t kMaxLookAgainNs = 60 * kNsPerSecond;

template <typename Clock>
std::int64_t ns_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

/// The page's file is still this one.
bool is_file_of(const Membership& member, std::string_view key, const Fd& file) {
  struct stat open;
  const Directory in = member.directory().subdirectory_of(key);
  if (!in.ok() || ::fstat(file.get(), &open) != 0) return false;
  const auto found = in.look_at(std::string(key));
  return found && open.st_ino == found->st_ino;
}

}  // namespace

// ---- Joining.

Result<std::unique_ptr<PageFiles>> PageFiles::open(const FileStoreOptions& options) {
  Result<std::string> root = StoreDirectory::absolute(options.directory);
  if (!root) return root.error();
  std::unique_ptr<PageFiles> files(new PageFiles(options, std::move(*root)));
  if (Status joined = files->join_again(nullptr); !joined) return joined.error();
  files->keep_up();
  const std::shared_ptr<Membership> member = files->member();
  files->has_unnamed_files_ = can_name_files(member->temporaries(), member->new_temporary());
  // It may have been larger the last time.
  if (Status fits = files->evict_beyond_capacity(member); !fits) return fits.error();
  return files;
}

Status PageFiles::evict_beyond_capacity(const std::shared_ptr<Membership>& member) {
  while (member->index().used_bytes() > capacity_bytes_) {
    const auto evicted = evict_oldest(member, std::nullopt, 0);
    if (!evicted) return evicted.error();
    if (!evicted->has_value()) break;
  }
  return {};
}

std::shared_ptr<Membership> PageFiles::member() const {
  const std::lock_guard lock(mutex_);
  return member_;
}

/// Pages under way keep the old membership until they are done.
Status PageFiles::join_again(const std::shared_ptr<Membership>& old) {
  const std::lock_guard joining(joining_);
  if (member() != old) return {};
  FoundFiles found;
  Result<std::shared_ptr<Membership>> joined =
      Membership::join(root_, old != nullptr, capacity_bytes_, found);
  if (!joined) return joined.error();
  damaged_ += found.num_damaged;
  foreign_ += found.num_foreign;
  const std::lock_guard lock(mutex_);
  member_ = std::move(*joined);
  return {};
}

void PageFiles::keep_up() {
  const std::int64_t now = ns_of<std::chrono::steady_clock>();
  std::int64_t due = next_look_ns_.load(std::memory_order_relaxed);
  const std::shared_ptr<Membership> now_member = member();
  if (now_member->index().is_broken()) static_cast<void>(join_again(now_member).ok());
  if (now < due || !next_look_ns_.compare_exchange_strong(due, now + kNsPerSecond)) return;
  if (now_member->is_stale()) static_cast<void>(join_again(now_member).ok());
  const std::shared_ptr<Membership> joined = member();
  joined->clean_up();
  if (!joined->has_unlooked() || now < next_look_again_ns_) return;
  look_again(*joined, now);
  static_cast<void>(evict_beyond_capacity(joined).ok());
}

/// Less and less often while it is of no use: a file may stay unreadable for ever.
void PageFiles::look_again(Membership& member, std::int64_t now_ns) {
  FoundFiles found;
  const bool all = member.look_again(found);
  damaged_ += found.num_damaged;
  const std::int64_t after =
      all ? 0 : std::clamp(2 * look_again_after_ns_.load(), kNsPerSecond, kMaxLookAgainNs);
  look_again_after_ns_ = after;
  next_look_again_ns_ = now_ns + after;
}

void PageFiles::add_stats(BackendStats& stats) const {
  const std::shared_ptr<Membership> now = member();
  stats.num_pages = now->index().num_pages();
  stats.size_bytes = now->index().used_bytes();
  stats.capacity_bytes = now->index().capacity_bytes();
  stats.evicted_pages = evicted_;
  stats.damaged_pages = damaged_;
  stats.foreign_files = foreign_;
}

// ---- Times.

std::uint32_t PageFiles::now_seconds() {
  return static_cast<std::uint32_t>(ns_of<std::chrono::system_clock>() / kNsPerSecond);
}

void PageFiles::stamp(const Fd& file) {
  const std::int64_t next = member()->next_stamp_ns();
  const timespec time{next / kNsPerSecond, next % kNsPerSecond};
  const timespec times[] = {time, time};
  ::futimens(file.get(), times);  // if it cannot be set, the page goes a little early
}

std::optional<FileIndex::Found> PageFiles::touch(std::string_view key) {
  return member()->index().touch(key, now_seconds());
}

std::vector<StoredPage> PageFiles::list_some(std::size_t& cursor) {
  return member()->index().list_some(cursor);
}

// ---- Room.

Result<PageWrite> PageFiles::begin_write(std::string_view key, std::uint64_t page_bytes,
                                         int flags) {
  if (page_bytes > kMaxPageBytes)
    return make_error(ErrorCode::invalid_argument, "a page of {} bytes; expected at most {}",
                      page_bytes, kMaxPageBytes);
  const std::uint64_t needed = file_bytes(page_bytes);
  if (needed > capacity_bytes_)
    return make_error(ErrorCode::invalid_argument,
                      "a page of {} bytes takes {} on disk, the capacity of {} is {}", page_bytes,
                      needed, root_, capacity_bytes_);
  if (Status on_disk = make_room_on_disk(needed); !on_disk) return on_disk.error();
  for (bool joined_again = false;; joined_again = true) {
    const std::shared_ptr<Membership> now = member();
    Result<PageWrite> write = find_room(now, key, page_bytes, flags);
    if (!write || write->file.ok()) return write;
    const Status created = create_file(*write, flags);
    if (created) return write;
    abandon(*write);
    if (joined_again || !now->is_stale()) return created.error();
    if (Status joined = join_again(now); !joined) return joined.error();
  }
}

/// A record, and where an evicted page's file can be had for it, that.
Result<PageWrite> PageFiles::find_room(const std::shared_ptr<Membership>& member,
                                       std::string_view key, std::uint64_t page_bytes, int flags) {
  const std::uint64_t needed = file_bytes(page_bytes);
  for (bool cleaned_up = false;;) {
    const Result<std::optional<RecordId>> record = member->index().begin_write(key, page_bytes);
    if (!record) return record.error();
    if (record->has_value())
      return PageWrite{.member = member, .record = **record, .page_bytes = page_bytes};
    Result<std::optional<Evicted>> evicted = evict_oldest(member, needed, flags);
    if (!evicted) return evicted.error();
    if (evicted->has_value()) {
      Result<std::optional<PageWrite>> taken = take_over(std::move(**evicted), key, page_bytes);
      if (!taken) return taken.error();
      if (taken->has_value()) return std::move(**taken);
    } else if (cleaned_up) {
      return make_error(ErrorCode::out_of_capacity,
                        "no room for {} bytes in {}: all {} are being written to", needed, root_,
                        capacity_bytes_);
    } else {
      member->clean_up();  // the dead may have it
      cleaned_up = true;
    }
  }
}

/// The evicted page's room and file, if they were kept.
Result<std::optional<PageWrite>> PageFiles::take_over(Evicted evicted, std::string_view key,
                                                      std::uint64_t page_bytes) {
  if (!evicted.reusable) return std::optional<PageWrite>();
  PageWrite& write = *evicted.reusable;
  if (Status reused = write.member->index().reuse(write.record, key, page_bytes); !reused) {
    abandon(write);
    return reused.error();
  }
  write.page_bytes = page_bytes;
  return std::optional(std::move(write));
}

// Freed blocks may take a moment to be counted as free, so it looks again a few times, and does not
// throw everything away because of that.
Status PageFiles::make_room_on_disk(std::uint64_t file_size_bytes) {
  const auto more = static_cast<std::int64_t>(file_size_bytes);
  if (unasked_bytes_.fetch_sub(more) >= more) return {};
  const std::uint64_t needed = min_free_bytes_ + file_size_bytes;
  std::uint64_t available = 0;
  for (int round = 0; round < kRoundsOfRoom; ++round) {
    const std::optional<std::uint64_t> free = member()->directory().free_bytes();
    if (!free) return {};  // writing will tell
    if (*free >= needed) {
      unasked_bytes_ = std::min<std::int64_t>(kUnaskedBytes, std::int64_t(*free - needed));
      return {};
    }
    available = *free;
    if (member()->index().num_pages() == 0) break;
    if (Status evicted = evict_bytes(needed - available); !evicted) return evicted;
  }
  return make_error(ErrorCode::out_of_capacity,
                    "no room for {} bytes in {}: the file system has {} free, {} are to stay so",
                    file_size_bytes, root_, available, min_free_bytes_);
}

Status PageFiles::make_more_room(std::uint64_t page_bytes) {
  return evict_bytes(2 * file_bytes(page_bytes));
}

Status PageFiles::evict_bytes(std::uint64_t file_size_bytes) {
  const std::shared_ptr<Membership> now = member();
  for (std::uint64_t freed = 0; freed < file_size_bytes;) {
    const auto evicted = evict_oldest(now, std::nullopt, 0);
    if (!evicted) return evicted.error();
    if (!evicted->has_value()) break;
    freed += (*evicted)->file_bytes;
  }
  return {};
}

Result<std::optional<PageFiles::Evicted>> PageFiles::evict_oldest(
    const std::shared_ptr<Membership>& member, std::optional<std::uint64_t> reuse_bytes,
    int flags) {
  while (const std::optional<std::string> key = member->index().oldest()) {
    auto removed = remove_file(member, *key, reuse_bytes, flags);
    if (!removed) return removed;
    if (!removed->has_value()) continue;  // another thread or process was faster
    ++evicted_;
    return removed;
  }
  return std::optional<Evicted>();
}

// ---- Writing.

Status PageFiles::create_file(PageWrite& write, int flags) const {
  if (has_unnamed_files_) {
    write.file = open_unnamed(write.member->temporaries(), flags, kFileMode);
  } else {
    do {  // one may be there that could not be removed when the store was opened
      write.name = write.member->new_temporary();
      write.file = write.member->temporaries().open(write.name, flags | O_WRONLY | O_CREAT | O_EXCL,
                                                    kFileMode);
    } while (!write.file.ok() && write.file.error() == EEXIST);
  }
  if (write.file.ok()) return {};
  const int why = write.file.error();
  return make_error(is_full(why) ? ErrorCode::out_of_capacity : ErrorCode::io_error,
                    "cannot create a file in {}: {}", write.member->temporaries_path(),
                    errno_text(why));
}

/// errno; 0: the file is the one of this name.
int PageFiles::move_to(const PageWrite& write, const Directory& directory, const std::string& key) {
  if (!directory.ok()) return directory.error();
  if (write.name.empty()) return give_name(write.file, directory, key);
  return write.member->temporaries().rename(write.name, directory, key);
}

Status PageFiles::commit(PageWrite& write, std::string_view key) {
  const std::string name(key);
  const StoreDirectory& directory = write.member->directory();
  FileIndex& index = write.member->index();
  const Membership::KeyLock lock(*write.member, key);
  const std::optional<std::uint64_t> there = index.size_of(key);
  if (there == write.page_bytes) {  // another thread or process put it meanwhile
    abandon(write);
    return {};
  }
  // One of another size goes: its file is named over.
  RecordId replaced = kNoUnit;
  if (there)
    if (const auto removal = index.begin_remove(key)) replaced = removal->record;
  Directory in = directory.subdirectory_of(key);
  int why = move_to(write, in, name);
  if (why == ENOENT && directory.make_subdirectory(directory_of(key)).ok()) {
    in = directory.subdirectory_of(key);
    why = move_to(write, in, name);
  }
  if (why == EISDIR || why == EEXIST) {  // a folder has its name
    static_cast<void>(directory.set_aside(in, name).ok());
    why = move_to(write, in, name);
  }
  if (replaced != kNoUnit && why == 0) index.end(replaced);
  if (replaced != kNoUnit && why != 0)
    static_cast<void>(index.commit(replaced, now_seconds()).ok());
  if (why != 0)
    return make_error(ErrorCode::io_error, "cannot name a file {}: {}", path_of(key),
                      errno_text(why));
  write.name.clear();
  Status committed = index.commit(write.record, now_seconds());
  if (committed) {
    write.record = kNoUnit;
  } else {
    in.unlink(name);
  }
  return committed;
}

void PageFiles::abandon(PageWrite& write) {
  write.file.close();
  if (!write.name.empty()) write.member->temporaries().unlink(write.name);
  if (write.record != kNoUnit) write.member->index().end(write.record);
  write.record = kNoUnit;
  write.name.clear();
}

// ---- Removing.

Status PageFiles::remove(std::string_view key) {
  const auto removed = remove_file(member(), key, std::nullopt, 0);
  return removed ? Status() : Status(removed.error());
}

Result<std::optional<PageFiles::Evicted>> PageFiles::remove_file(
    const std::shared_ptr<Membership>& member, std::string_view key,
    std::optional<std::uint64_t> reuse_bytes, int flags) {
  const std::string name(key);
  const Membership::KeyLock lock(*member, key);
  const std::optional<FileIndex::Removal> removal = member->index().begin_remove(key);
  if (!removal) return std::optional<Evicted>();
  Evicted evicted{.file_bytes = file_bytes(removal->page_bytes)};
  const Directory in = member->directory().subdirectory_of(key);
  if (in.ok() && reuse_bytes == evicted.file_bytes && !lock.has_readers())
    evicted.reusable = keep_file(member, in, name, evicted.file_bytes, flags);
  if (evicted.reusable) {
    evicted.reusable->record = removal->record;
    return std::optional(std::move(evicted));
  }
  const int why = in.ok() ? in.unlink(name) : in.error();
  if (why != 0 && !is_gone(why) && !is_no_file(why)) {
    // It is still there, and so is the page.
    static_cast<void>(member->index().commit(removal->record, now_seconds()).ok());
    return make_error(ErrorCode::io_error, "cannot remove {}: {}", path_of(key), errno_text(why));
  }
  member->index().end(removal->record);
  return std::optional(std::move(evicted));
}

/// Moved before it is written to. Somebody may have linked to the page to keep it, or cut it.
std::optional<PageWrite> PageFiles::keep_file(const std::shared_ptr<Membership>& member,
                                              const Directory& directory, const std::string& key,
                                              std::uint64_t file_size_bytes, int flags) {
  PageWrite write{.member = member, .name = member->new_temporary(), .is_reused = true};
  const Directory& temporaries = member->temporaries();
  if (directory.rename(key, temporaries, write.name) != 0) return std::nullopt;
  write.file = temporaries.open_regular(write.name, flags | O_WRONLY);
  struct stat info;
  if (write.file.ok() && ::fstat(write.file.get(), &info) == 0 && info.st_nlink == 1 &&
      static_cast<std::uint64_t>(info.st_size) == file_size_bytes)
    return write;
  write.file.close();
  if (temporaries.unlink(write.name) == EISDIR)  // a folder: it is not ours to take
    temporaries.rename(write.name, directory, key);
  return std::nullopt;
}

// ---- Reading.

PageRead PageFiles::open_page(std::string_view key, int flags) {
  PageRead read{.member = member()};
  Membership::KeyLock lock(*read.member, key);
  read.file = read.member->directory().open_page(key, O_RDONLY | flags);
  if (read.file.ok()) lock.add_reader();
  return read;
}

void PageFiles::done_reading(PageRead& read, std::string_view key) {
  read.file.close();
  read.member->done_reading(key);
  read.member.reset();
}

void PageFiles::forget_unopened(std::string_view key) {
  const std::shared_ptr<Membership> now = member();
  const Membership::KeyLock lock(*now, key);
  const Fd file = now->directory().open_page(key, O_RDONLY);
  if (file.ok() || is_shortage(file.error())) return;
  forget(*now, key);
  if (is_no_file(file.error())) ++foreign_;
  if (!is_gone(file.error()) && !is_no_file(file.error())) now->look_later(key);
}

void PageFiles::forget_unread(std::string_view key, const Fd& file) {
  const std::shared_ptr<Membership> now = member();
  const Membership::KeyLock lock(*now, key);
  if (!is_file_of(*now, key, file)) return;
  forget(*now, key);
  now->look_later(key);
}

/// With the key's lock held.
void PageFiles::forget(Membership& member, std::string_view key) {
  if (const auto removal = member.index().begin_remove(key)) member.index().end(removal->record);
}

void PageFiles::set_aside_damaged(std::string_view key, const Fd& file) {
  const std::shared_ptr<Membership> now = member();
  const Membership::KeyLock lock(*now, key);
  if (is_file_of(*now, key, file)) set_aside(*now, key);
}

/// With the key's lock held.
void PageFiles::set_aside(Membership& member, std::string_view key) {
  const auto removal = member.index().begin_remove(key);
  if (!removal) return;  // by another thread or process
  ++damaged_;
  // Where it cannot be moved it stays, and is not found: the next put goes over it.
  if (const Directory in = member.directory().subdirectory_of(key); in.ok())
    static_cast<void>(member.directory().set_aside(in, std::string(key)).ok());
  member.directory().trim_set_aside(capacity_bytes_ / kSetAsideShare);
  member.index().end(removal->record);
}

}  // namespace pando
