// SPDX-License-Identifier: Apache-2.0
// StoreDirectory: names, the lock, and what the file system can do.
#include "store/file/store_directory.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "base/hex.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLockName = "pando.lock";
constexpr std::string_view kTemporaries = "tmp";
constexpr std::string_view kSetAside = "set_aside";
constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kFileMode = 0644;

bool is_subdirectory_name(std::string_view name) {
  return name.size() == 2 && hex_byte(name[0], name[1]);
}

Status make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), kDirectoryMode) == 0 || errno == EEXIST) return {};
  return make_error(ErrorCode::io_error, "cannot make {}: {}", path, errno_text(errno));
}

/// Calls visit(name) for each entry; what cannot be read has none.
template <typename Visit>
void for_each_name(const std::string& directory, Visit&& visit) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    visit(it->path().filename().string());
}

/// Why it could not be locked. The number in it is that of the last who could write: where that
/// process is gone, the lock is held by one that reads.
Error lock_error(const Fd& lock, const std::string& root, int why) {
  if (why != EWOULDBLOCK)
    return make_error(ErrorCode::io_error, "cannot lock {}/{}: {}", root, kLockName,
                      errno_text(why));
  std::array<char, 32> text{};
  const ssize_t n = ::pread(lock.get(), text.data(), text.size() - 1, 0);
  const std::string_view holder(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  const pid_t process = std::atoi(text.data());
  if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH)
    return make_error(ErrorCode::in_use,
                      "the file store in {} is being looked at by another process; expected to "
                      "have it alone",
                      root);
  return make_error(ErrorCode::in_use,
                    "the file store in {} is open already, in process {}; expected one at a time",
                    root, holder);
}

}  // namespace

Result<StoreDirectory> StoreDirectory::name(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  if (path.empty() || error)
    return make_error(ErrorCode::invalid_argument, "the file store's directory \"{}\" is no path",
                      path);
  std::string root = absolute.string();
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  return StoreDirectory(std::move(root));
}

// ---- Making and locking.

Status StoreDirectory::lock_and_make() {
  if (!lock_.ok() || lost()) {
    std::error_code error;
    fs::create_directories(root_, error);
    if (error)
      return make_error(ErrorCode::io_error, "cannot make the file store's directory {}: {}", root_,
                        error.message());
    if (Status locked = take_lock(); !locked) return locked;
  }
  for (const std::string_view name : {kTemporaries, kSetAside})
    if (Status made = make_directory(fmt::format("{}/{}", root_, name)); !made) return made;
  return {};
}

Status StoreDirectory::check_there() const {
  struct stat info;
  if (::stat(root_.c_str(), &info) != 0)
    return make_error(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io_error,
                      "no file store in {}: {}", root_, errno_text(errno));
  if (::stat(fmt::format("{}/{}", root_, kLockName).c_str(), &info) != 0)
    return make_error(ErrorCode::not_found, "no file store in {}: it has no {}", root_, kLockName);
  return {};
}

Status StoreDirectory::lock_existing() {
  if (Status there = check_there(); !there) return there;
  return lock_and_make();
}

Status StoreDirectory::lock_for_reading() {
  if (Status there = check_there(); !there) return there;
  const std::string path = fmt::format("{}/{}", root_, kLockName);
  Fd lock = Fd::open(path, O_RDONLY);
  if (!lock.ok())
    return make_error(ErrorCode::io_error, "cannot open {}: {}", path, errno_text(lock.error()));
  if (::flock(lock.get(), LOCK_SH | LOCK_NB) != 0) return lock_error(lock, root_, errno);
  lock_ = std::move(lock);
  return {};
}

Status StoreDirectory::take_lock() {
  const std::string path = fmt::format("{}/{}", root_, kLockName);
  struct stat info;
  if (!lock_.ok() && ::stat(path.c_str(), &info) != 0) {
    bool others = false;
    for_each_name(root_, [&](const std::string& name) { others |= is_subdirectory_name(name); });
    if (others)
      return make_error(ErrorCode::invalid_argument,
                        "{} has directories named like a file store's but no {}: expected a store, "
                        "or a directory without them",
                        root_, kLockName);
  }
  Fd lock = Fd::open(path, O_RDWR | O_CREAT, kFileMode);
  if (!lock.ok())
    return make_error(ErrorCode::io_error, "cannot open {}: {}", path, errno_text(lock.error()));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return lock_error(lock, root_, errno);
  // The number is for messages only, so that it does not matter if it cannot be written.
  const std::string number = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) == 0)
    static_cast<void>(!::pwrite(lock.get(), number.data(), number.size(), 0));
  lock_ = std::move(lock);
  return {};
}

Status StoreDirectory::make_subdirectory(std::uint8_t number) {
  return make_directory(subdirectory(number));
}

bool StoreDirectory::lost() const {
  struct stat held, found;
  const std::string path = fmt::format("{}/{}", root_, kLockName);
  if (::fstat(lock_.get(), &held) != 0 || ::stat(path.c_str(), &found) != 0) return true;
  return held.st_dev != found.st_dev || held.st_ino != found.st_ino;
}

void StoreDirectory::remove_temporaries() {
  const std::string directory = fmt::format("{}/{}", root_, kTemporaries);
  for_each_name(directory, [&](const std::string& name) {
    ::unlink(fmt::format("{}/{}", directory, name).c_str());
  });
}

std::vector<std::string> StoreDirectory::foreign_names() const {
  std::vector<std::string> foreign;
  for_each_name(root_, [&](const std::string& name) {
    const bool ours = name == kLockName || name == kTemporaries || name == kSetAside ||
                      is_subdirectory_name(name);
    if (!ours) foreign.push_back(name);
  });
  return foreign;
}

// ---- Names.

std::string StoreDirectory::subdirectory(std::uint8_t number) const {
  return fmt::format("{}/{:02x}", root_, number);
}

std::string StoreDirectory::path_of(std::string_view key) const {
  return fmt::format("{}/{:02x}/{}", root_, directory_of(key), key);
}

std::string StoreDirectory::new_temporary() {
  return fmt::format("{}/{}/{}", root_, kTemporaries, num_names_.fetch_add(1));
}

std::string StoreDirectory::temporaries() const {
  return fmt::format("{}/{}", root_, kTemporaries);
}

std::string StoreDirectory::set_aside_root() const {
  return fmt::format("{}/{}", root_, kSetAside);
}

Result<std::string> StoreDirectory::set_aside(const std::string& path) {
  constexpr std::size_t kNameBytes = 230;  // leaves room for the number in a name of 255
  const std::string name = fs::path(path).filename().string().substr(0, kNameBytes);
  while (true) {
    const std::string to = fmt::format("{}/{}/{}.{}", root_, kSetAside, num_names_++, name);
    int done = ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (done != 0 && errno == EEXIST) continue;  // from a process before
    // Where the file system cannot refuse to replace, look first: nobody else moves files here.
    if (done != 0 && errno == EINVAL) {
      if (::access(to.c_str(), F_OK) == 0) continue;
      done = ::rename(path.c_str(), to.c_str());
    }
    if (done == 0) return to;
    return make_error(ErrorCode::io_error, "cannot set {} aside: {}", path, errno_text(errno));
  }
}

// ---- The file system.

std::optional<std::uint64_t> StoreDirectory::free_bytes() const {
  struct statvfs info;
  if (::statvfs(root_.c_str(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

std::optional<std::size_t> StoreDirectory::probe_direct() {
  constexpr std::size_t kSectorBytes = 512;
  const std::string path = new_temporary();
  const Fd fd = Fd::open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT, kFileMode);
  // Some file systems refuse the flag only after the file is there.
  ::unlink(path.c_str());
  if (!fd.ok()) return std::nullopt;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  const std::unique_ptr<void, Free> memory(std::aligned_alloc(kBlockBytes, 2 * kBlockBytes));
  if (memory == nullptr) return std::nullopt;
  auto* bytes = static_cast<std::byte*>(memory.get());
  std::fill_n(bytes, 2 * kBlockBytes, std::byte{0});
  // 0: works; else errno.
  const auto attempt = [&](std::size_t alignment) {
    const auto expected = static_cast<ssize_t>(alignment);
    if (::pwrite(fd.get(), bytes + alignment, alignment, 0) != expected) return errno;
    return ::pread(fd.get(), bytes + alignment, alignment, 0) == expected ? 0 : EINVAL;
  };
  if (attempt(kSectorBytes) == 0) return kSectorBytes;
  // What else may be wrong, a full disk for one, says nothing against whole blocks.
  if (attempt(kBlockBytes) != EINVAL) return kBlockBytes;
  return std::nullopt;
}

}  // namespace pando
