// SPDX-License-Identifier: Apache-2.0
// LockFile: flock and byte ranges.
#include "store/file/lock_file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <array>

#include "base/check.h"

namespace pando {
namespace {

constexpr std::int64_t kSetupByte = 0;
constexpr std::int64_t kCleaningByte = 1;
constexpr std::int64_t kFirstMemberByte = 16;
constexpr mode_t kFileMode = 0644;

constexpr std::size_t kMaxBytes = 20;  // of a process's number

std::string path_in(const StoreDirectory& directory) {
  return fmt::format("{}/{}", directory.root(), kLockName);
}

/// A byte range of the whole-file kind: belongs to the open file, not to the process.
struct flock range(short type, std::int64_t at, std::int64_t num) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = num;
  return lock;
}

/// Why the file could not be locked. The number in it is that of the last who opened the store to
/// change it: for the message only.
Error lock_error(const Fd& file, const StoreDirectory& directory, LockFile::Mode mode, int why) {
  if (why != EWOULDBLOCK)
    return make_error(ErrorCode::io_error, "cannot lock {}: {}", path_in(directory),
                      errno_text(why));
  std::array<char, 32> text{};
  const ssize_t n = ::pread(file.get(), text.data(), text.size() - 1, 0);
  const std::string_view last(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  if (mode == LockFile::Mode::exclusive)
    return make_error(ErrorCode::in_use,
                      "the file store in {} is open already (the last process to open it was {}); "
                      "expected nobody to have it open",
                      directory.root(), last);
  return make_error(ErrorCode::in_use,
                    "the file store in {} is open already, in process {}, which needs it for "
                    "itself: it changes files from outside, is on a file system that processes "
                    "cannot share, or is an older version of Pando; expected it to end first",
                    directory.root(), last);
}

/// not_found: there is none. invalid_argument: it is none.
Result<Fd> open_file(const StoreDirectory& directory, int flags) {
  Fd file = directory.directory().open(std::string(kLockName), flags, kFileMode);
  if (!file.ok() && file.error() != ELOOP)
    return make_error(file.error() == ENOENT ? ErrorCode::not_found : ErrorCode::io_error,
                      "cannot open {}: {}", path_in(directory), errno_text(file.error()));
  struct stat info {};
  const bool is_lock = file.ok() && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
                       info.st_nlink <= 1 && info.st_size <= off_t{kMaxBytes};
  if (is_lock) return file;
  return make_error(ErrorCode::invalid_argument,
                    "{} is a link, or something else that is not the lock of a file store; "
                    "expected a file with one name and at most {} bytes: it was left as it is",
                    path_in(directory), kMaxBytes);
}

}  // namespace

Result<LockFile> LockFile::open(const StoreDirectory& directory, Mode mode, bool make) {
  Result<Fd> file = open_file(directory, O_RDWR | (make ? O_CREAT : 0));
  if (!file) return file.error();
  const int kind = mode == Mode::shared ? LOCK_SH : LOCK_EX;
  if (::flock(file->get(), kind | LOCK_NB) != 0) return lock_error(*file, directory, mode, errno);
  // The number is for messages only, so that it does not matter if it cannot be written.
  const std::string number = std::to_string(::getpid());
  if (::ftruncate(file->get(), 0) == 0)
    static_cast<void>(!::pwrite(file->get(), number.data(), number.size(), 0));
  return LockFile(path_in(directory), std::move(*file));
}

Result<LockFile> LockFile::open_to_look(const StoreDirectory& directory) {
  Result<Fd> file = open_file(directory, O_RDONLY);
  if (!file) return file.error();
  if (::flock(file->get(), LOCK_SH | LOCK_NB) != 0)
    return lock_error(*file, directory, Mode::shared, errno);
  return LockFile(path_in(directory), std::move(*file));
}

bool LockFile::is_lost() const {
  struct stat held, found;
  if (::fstat(file_.get(), &held) != 0 || ::lstat(path_.c_str(), &found) != 0) return true;
  return held.st_dev != found.st_dev || held.st_ino != found.st_ino;
}

Status LockFile::lock_setup() {
  struct flock lock = range(F_WRLCK, kSetupByte, 1);
  while (::fcntl(file_.get(), F_OFD_SETLKW, &lock) != 0)
    if (errno != EINTR)
      return make_error(ErrorCode::unavailable, "cannot lock a byte of {}: {}", path_,
                        errno_text(errno));
  return {};
}
void LockFile::unlock_setup() { unlock_byte(kSetupByte); }

bool LockFile::try_lock_cleaning() { return lock_byte(kCleaningByte); }
void LockFile::unlock_cleaning() { unlock_byte(kCleaningByte); }

bool LockFile::any_member() const { return is_locked(kFirstMemberByte, kMaxMembers); }
bool LockFile::is_alive(std::uint32_t member) const {
  return member < kMaxMembers && is_locked(kFirstMemberByte + member, 1);
}
bool LockFile::take_member(std::uint32_t member) { return lock_byte(kFirstMemberByte + member); }
void LockFile::release_member(std::uint32_t member) { unlock_byte(kFirstMemberByte + member); }

bool LockFile::lock_byte(std::int64_t at) {
  struct flock lock = range(F_WRLCK, at, 1);
  return ::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0;
}

void LockFile::unlock_byte(std::int64_t at) {
  struct flock lock = range(F_UNLCK, at, 1);
  ::fcntl(file_.get(), F_OFD_SETLK, &lock);
}

/// By another open file. What cannot be asked counts as locked: nobody is taken for dead by
/// mistake.
bool LockFile::is_locked(std::int64_t at, std::int64_t num) const {
  struct flock lock = range(F_WRLCK, at, num);
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace pando
