// SPDX-License-Identifier: Apache-2.0
// Membership: joining, leaving, and cleaning up after the dead.
#include "store/file/membership.h"

#define XXH_INLINE_ALL
#include <linux/magic.h>
#include <sys/vfs.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "store/file/file_scan.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr int kAttempts = 10;  // at a directory that others remove meanwhile

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// False: other machines may have it too, or a process serves it that may not keep mappings alike.
bool can_be_shared(const StoreDirectory& directory) {
  constexpr std::uint64_t kCannot[] = {NFS_SUPER_MAGIC,
                                       SMB_SUPER_MAGIC,
                                       CIFS_SUPER_MAGIC,
                                       SMB2_SUPER_MAGIC,
                                       V9FS_MAGIC,
                                       AFS_SUPER_MAGIC,
                                       CEPH_SUPER_MAGIC,
                                       FUSE_SUPER_MAGIC,
                                       OCFS2_SUPER_MAGIC,
                                       CODA_SUPER_MAGIC,
                                       0x0bd00bd0 /* Lustre */,
                                       0x47504653 /* GPFS */,
                                       0x01161970 /* GFS2 */,
                                       0x19830326 /* BeeGFS */};
  struct statfs info;
  if (::fstatfs(directory.directory().fd(), &info) != 0) return true;  // opening will tell
  const auto type = static_cast<std::uint64_t>(static_cast<std::uint32_t>(info.f_type));
  return std::find(std::begin(kCannot), std::end(kCannot), type) == std::end(kCannot);
}

std::size_t stripe_of(std::string_view key) {
  return XXH3_64bits(key.data(), key.size()) % kNumStripes;
}

Error alone_error(Error error) {
  if (error.code == ErrorCode::in_use)
    error.message +=
        "; its file system may be shared by machines or cannot share memory, so that "
        "one process at a time has a store there";
  return error;
}

class SetupLock {
 public:
  explicit SetupLock(LockFile& file) : file_(file) {}
  ~SetupLock() { file_.unlock_setup(); }
  SetupLock(const SetupLock&) = delete;
  SetupLock& operator=(const SetupLock&) = delete;

 private:
  LockFile& file_;
};

}  // namespace

// ---- Joining.

Result<std::shared_ptr<Membership>> Membership::join(const std::string& root, bool known,
                                                     std::uint64_t capacity_bytes,
                                                     FoundFiles& found) {
  bool is_shared = true;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Result<StoreDirectory> directory = StoreDirectory::make(root, known);
    if (!directory) return directory.error();
    known = true;
    is_shared = is_shared && can_be_shared(*directory);
    Result<LockFile> lock = LockFile::open(
        *directory, is_shared ? LockFile::Mode::shared : LockFile::Mode::exclusive, true);
    if (!lock && lock.error().code == ErrorCode::not_found)
      continue;  // the directory has just gone
    if (!lock) return is_shared ? lock.error() : alone_error(lock.error());
    std::shared_ptr<Membership> member(
        new Membership(std::move(*directory), std::move(*lock), is_shared));
    Status joined = member->set_up(capacity_bytes, found);
    if (joined) return member;
    if (joined.error().code == ErrorCode::unavailable && is_shared) {
      is_shared = false;
    } else if (joined.error().code != ErrorCode::stale_handle) {
      return joined.error();
    }
  }
  return make_error(ErrorCode::io_error, "{} is removed again and again while a store opens it",
                    root);
}

IndexPlace Membership::index_place() const {
  return {directory_.directory(), std::string(kIndexName),
          fmt::format("{}/{}", directory_.root(), kIndexName)};
}

/// unavailable: the file system cannot be shared. stale_handle: the directory has just gone.
Status Membership::set_up(std::uint64_t capacity_bytes, FoundFiles& found) {
  if (Status locked = is_shared_ ? lock_.lock_setup() : Status(); !locked) return locked;
  const SetupLock setup(lock_);
  if (lock_.is_lost()) return make_error(ErrorCode::stale_handle, "{} has gone", directory_.root());
  if (Status made = directory_.make_inside(); !made) return made;
  if (is_shared_ && lock_.any_member()) {
    Status joined = join_others(capacity_bytes);
    if (joined || joined.error().code != ErrorCode::corrupt) return joined;
  }
  auto mapping = is_shared_ ? IndexMapping::create(index_place(), capacity_bytes)
                            : IndexMapping::create_private(capacity_bytes);
  if (!mapping) return mapping.error();
  return start_anew(std::move(*mapping), found);
}

Status Membership::join_others(std::uint64_t capacity_bytes) {
  auto mapping = IndexMapping::attach(index_place());
  if (!mapping) return mapping.error();
  const std::uint64_t theirs = (*mapping)->header().capacity_bytes;
  if (theirs != capacity_bytes)
    return make_error(ErrorCode::invalid_argument,
                      "the file store in {} is open in other processes with a capacity of {} "
                      "bytes, here it is {}; expected the same: give all of them one "
                      "capacity_bytes, or close the others first",
                      directory_.root(), theirs, capacity_bytes);
  if (Status taken = take_number(); !taken) return taken;
  const bool has_leftovers = (*mapping)->header().joined[number_] != 0;
  enter(std::move(*mapping));
  if (has_leftovers) clean_after(number_);
  index_->header().joined[number_] = 1;
  return make_own_directory();
}

Status Membership::start_anew(std::unique_ptr<IndexMapping> mapping, FoundFiles& found) {
  if (Status taken = take_number(); !taken) return taken;
  mapping->header().joined[number_] = 1;
  enter(std::move(mapping));
  directory_.remove_temporaries(
      [&](std::uint32_t member) { return member == number_ || !lock_.is_alive(member); });
  if (Status made = make_own_directory(); !made) return made;
  const FileScan scan = scan_directory(directory_);
  std::int64_t last_ns = 0;
  for (const ScannedFile& file : scan.pages) {
    if (Status kept = index_->insert(file.key, file.page_bytes,
                                     static_cast<std::uint32_t>(file.modified_ns / kNsPerSecond));
        !kept)
      return kept;
    last_ns = std::max(last_ns, file.modified_ns);
  }
  // Files from the future would keep all that come later from being newer than them.
  index_->header().last_stamp_ns = std::min(last_ns, now_ns());
  for (std::size_t i = 0; i < scan.unlooked.size(); ++i)
    if (scan.unlooked[i]) mark_unlooked(i);
  index_->header().ready = 1;
  directory_.trim_set_aside(index_->capacity_bytes() / kSetAsideShare);
  found = {.num_damaged = scan.num_damaged,
           .num_foreign = scan.num_foreign + directory_.foreign_names().size()};
  return {};
}

Status Membership::take_number() {
  if (!is_shared_) return {};
  for (number_ = 0; number_ < kMaxMembers; ++number_)
    if (lock_.take_member(number_)) return {};
  return make_error(ErrorCode::in_use,
                    "the file store in {} is open {} times already; expected one to be closed",
                    directory_.root(), kMaxMembers);
}

void Membership::enter(std::unique_ptr<IndexMapping> mapping) {
  IndexHeader& header = mapping->header();
  index_ = std::make_unique<FileIndex>(std::move(mapping), number_, lock_);
  for (std::size_t i = 0; i < kNumStripes; ++i)
    stripes_[i].attach(header.stripes[i], number_, lock_);
}

Status Membership::make_own_directory() {
  Result<Directory> made = directory_.make_temporaries_of(number_, temporaries_name_);
  if (!made) return made.error();
  temporaries_ = std::move(*made);
  return {};
}

Membership::~Membership() {
  if (index_ == nullptr || lock_.is_lost()) return;
  if (temporaries_.ok()) directory_.remove_temporaries_of(temporaries_name_);
  if (!index_->is_broken() && index_->pending_of(number_).empty())
    index_->header().joined[number_] = 0;
}

bool Membership::is_stale() const {
  return index_->is_broken() || lock_.is_lost() || index_->is_lost();
}

// ---- Names and times.

std::string Membership::temporaries_path() const {
  return fmt::format("{}/tmp/{}", directory_.root(), temporaries_name_);
}

std::string Membership::new_temporary() { return std::to_string(num_temporaries_.fetch_add(1)); }

std::int64_t Membership::next_stamp_ns() {
  std::atomic<std::int64_t>& newest = index_->header().last_stamp_ns;
  std::int64_t last = newest.load(std::memory_order_relaxed);
  std::int64_t next;
  do next = std::max(last + 1, now_ns());
  while (!newest.compare_exchange_weak(last, next, std::memory_order_relaxed));
  return next;
}

// ---- Keys.

Membership::KeyLock::KeyLock(Membership& member, std::string_view key)
    : member_(member), stripe_(stripe_of(key)) {
  // Whoever died with it has left a record in the index; the lock itself guards no data.
  member_.stripes_[stripe_].lock();
}

bool Membership::KeyLock::has_readers() const {
  const auto& readers = member_.index_->header().readers[stripe_];
  return std::any_of(std::begin(readers), std::end(readers),
                     [](const auto& count) { return count.load(std::memory_order_acquire) != 0; });
}

void Membership::KeyLock::add_reader() {
  member_.index_->header().readers[stripe_][member_.number_].fetch_add(1,
                                                                       std::memory_order_relaxed);
}

void Membership::done_reading(std::string_view key) {
  index_->header().readers[stripe_of(key)][number_].fetch_sub(1, std::memory_order_release);
}

// ---- Cleaning up.

void Membership::clean_up() {
  if (!is_shared_) return;
  const std::unique_lock threads(cleaning_, std::try_to_lock);
  if (!threads.owns_lock() || !lock_.try_lock_cleaning()) return;
  for (std::uint32_t member = 0; member < kMaxMembers; ++member) {
    if (member == number_ || index_->header().joined[member] == 0) continue;
    if (lock_.is_alive(member) || !lock_.take_member(member)) continue;
    clean_after(member);
    lock_.release_member(member);
  }
  lock_.unlock_cleaning();
}

/// With the dead member's byte held, so that nobody becomes this member meanwhile. To others it
/// looks alive now: so first the locks that it held, for which they may wait.
void Membership::clean_after(std::uint32_t member) {
  IndexHeader& header = index_->header();
  for (LockWord& stripe : header.stripes) release_of_dead(stripe, member);
  const std::vector<FileIndex::Pending> pending = index_->pending_of(member);
  directory_.remove_temporaries([&](std::uint32_t dead) { return dead == member; });
  for (const auto& [record, key] : pending) {
    const KeyLock lock(*this, key);
    if (const Directory in = directory_.subdirectory_of(key); in.ok() && !index_->contains(key))
      in.unlink(key);
    index_->end_of(member, record);
  }
  for (auto& readers : header.readers) readers[member] = 0;
  header.joined[member] = 0;
}

// ---- Looking again.

void Membership::mark_unlooked(std::size_t directory) {
  index_->header().unlooked[directory / 32].fetch_or(std::uint32_t{1} << directory % 32);
}

void Membership::look_later(std::string_view key) { mark_unlooked(directory_of(key)); }

bool Membership::has_unlooked() const {
  const auto& unlooked = index_->header().unlooked;
  return std::any_of(std::begin(unlooked), std::end(unlooked),
                     [](const auto& bits) { return bits.load(std::memory_order_relaxed) != 0; });
}

bool Membership::look_again(FoundFiles& found) {
  bool all = true;
  for (std::size_t word = 0; word < std::size(index_->header().unlooked); ++word) {
    // Whoever takes them looks.
    const std::uint32_t bits = index_->header().unlooked[word].exchange(0);
    for (std::size_t bit = 0; bit < 32; ++bit) {
      if ((bits >> bit & 1) == 0) continue;
      const std::size_t directory = 32 * word + bit;
      if (look_again_at(static_cast<std::uint8_t>(directory), found)) continue;
      mark_unlooked(directory);
      all = false;
    }
  }
  return all;
}

/// Pages come and go meanwhile; with a key's lock held, a file that is not in the index is
/// nobody's.
bool Membership::look_again_at(std::uint8_t directory, FoundFiles& found) {
  const Directory in = directory_.subdirectory(directory);
  if (!in.ok()) return in.error() == ENOENT;
  SubdirectoryScan scan = scan_subdirectory(
      in, directory, [&](const std::string& name) { return index_->contains(name); });
  for (const ScannedFile& file : scan.pages) {
    const KeyLock lock(*this, file.key);
    if (index_->contains(file.key) || !in.look_at(file.key)) continue;
    const auto seconds = static_cast<std::uint32_t>(file.modified_ns / kNsPerSecond);
    if (!index_->insert(file.key, file.page_bytes, seconds)) scan.is_complete = false;
  }
  for (const std::string& name : scan.damaged) {
    const KeyLock lock(*this, name);
    if (index_->contains(name) || inspect_file(in, name, directory).verdict != FileVerdict::damaged)
      continue;
    ++found.num_damaged;
    static_cast<void>(directory_.set_aside(in, name).ok());
  }
  directory_.trim_set_aside(index_->capacity_bytes() / kSetAsideShare);
  return scan.is_complete;
}

}  // namespace pando
