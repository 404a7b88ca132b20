// SPDX-License-Identifier: Apache-2.0
// StoreDirectory: names, and what the file system can do.
#include "store/file/store_directory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "base/check.h"
#include "base/hex.h"
#include "store/file/fd.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLockName = "pando.lock";
constexpr std::string_view kIndexName = "pando.index";
constexpr std::string_view kNewIndexName = "pando.index.new";
constexpr std::string_view kMember = "member-";
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

/// Of "member-7-0a1b2c3d".
std::optional<std::uint32_t> member_number(std::string_view name) {
  if (!name.starts_with(kMember)) return std::nullopt;
  name.remove_prefix(kMember.size());
  std::uint32_t number = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
  if (parsed.ec != std::errc() ||
      !name.substr(static_cast<std::size_t>(parsed.ptr - name.data())).starts_with('-'))
    return std::nullopt;
  return number;
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

// ---- Making.

Status StoreDirectory::make_root() {
  std::error_code error;
  fs::create_directories(root_, error);
  if (error)
    return make_error(ErrorCode::io_error, "cannot make the file store's directory {}: {}", root_,
                      error.message());
  const auto has_lock = [path = fmt::format("{}/{}", root_, kLockName)] {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
  };
  const auto looks_like_a_store = [this] {
    bool others = false;
    for_each_name(root_, [&](const std::string& name) { others |= is_subdirectory_name(name); });
    return others;
  };
  // Another process may have made the lock since the first look at it.
  is_ours_ = is_ours_ || has_lock() || !looks_like_a_store() || has_lock();
  if (is_ours_) return {};
  return make_error(ErrorCode::invalid_argument,
                    "{} has directories named like a file store's but no {}: expected a store, "
                    "or a directory without them",
                    root_, kLockName);
}

Status StoreDirectory::make_inside() const {
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

Status StoreDirectory::make_subdirectory(std::uint8_t number) {
  return make_directory(subdirectory(number));
}

Result<std::string> StoreDirectory::make_temporaries_of(std::uint32_t member) const {
  std::random_device random;
  std::string path = fmt::format("{}/{}{}-{:08x}", temporaries(), kMember, member, random());
  if (Status made = make_directory(path); !made) return made.error();
  return path;
}

void StoreDirectory::remove_temporaries(const std::function<bool(std::uint32_t)>& is_dead) const {
  std::vector<std::string> names;
  for_each_name(temporaries(), [&](const std::string& name) { names.push_back(name); });
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", temporaries(), name);
    const std::optional<std::uint32_t> member = member_number(name);
    if (!member) {
      ::unlink(path.c_str());
    } else if (is_dead(*member)) {
      remove_with_files(path);
    }
  }
}

std::vector<std::string> StoreDirectory::foreign_names() const {
  std::vector<std::string> foreign;
  for_each_name(root_, [&](const std::string& name) {
    const bool ours = name == kLockName || name == kIndexName || name == kNewIndexName ||
                      name == kTemporaries || name == kSetAside || is_subdirectory_name(name);
    if (!ours) foreign.push_back(name);
  });
  return foreign;
}

// ---- Names.

void StoreDirectory::remove_with_files(const std::string& directory) {
  for_each_name(directory, [&](const std::string& name) {
    ::unlink(fmt::format("{}/{}", directory, name).c_str());
  });
  ::rmdir(directory.c_str());
}

std::string StoreDirectory::subdirectory(std::uint8_t number) const {
  return fmt::format("{}/{:02x}", root_, number);
}

std::string StoreDirectory::path_of(std::string_view key) const {
  return fmt::format("{}/{:02x}/{}", root_, directory_of(key), key);
}

std::string StoreDirectory::index_path() const { return fmt::format("{}/{}", root_, kIndexName); }

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
    if (done != 0 && errno == EEXIST) continue;  // another process had the number
    // Where the file system cannot refuse to replace, look first.
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

std::optional<std::size_t> StoreDirectory::probe_direct(const std::string& path) {
  constexpr std::size_t kSectorBytes = 512;
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
