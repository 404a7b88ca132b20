// SPDX-License-Identifier: Apache-2.0
// StoreDirectory: names, whose it is, and what the file system can do.
#include "store/file/store_directory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "base/check.h"
#include "base/hex.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNewIndexName = "pando.index.new";
constexpr std::string_view kMember = "member-";
constexpr const char* kTemporaries = "tmp";
constexpr const char* kSetAside = "set_aside";
constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kFileMode = 0644;

bool is_subdirectory_name(std::string_view name) {
  return name.size() == 2 && hex_byte(name[0], name[1]);
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

/// As files that are being written are named: by a number.
bool is_temporary_name(std::string_view name) {
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

void remove_temporaries_in(const Directory& parent, const std::string& name) {
  const Directory directory = parent.enter(name);
  if (!directory.ok()) return;
  directory.for_each_name([&](const std::string& file) {
    if (is_temporary_name(file)) directory.unlink(file);
  });
  parent.remove_directory(name);
}

}  // namespace

// ---- Opening.

Result<std::string> StoreDirectory::absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  if (path.empty() || error)
    return make_error(ErrorCode::invalid_argument, "the file store's directory \"{}\" is no path",
                      path);
  std::string root = absolute.string();
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  return root;
}

Result<StoreDirectory> StoreDirectory::make(const std::string& root, bool known) {
  std::error_code error;
  fs::create_directories(fs::path(root).parent_path(), error);
  int why = 0;
  if (!error && ::mkdir(root.c_str(), kDirectoryMode) != 0 && errno != EEXIST) why = errno;
  Directory directory;
  if (!error && why == 0) {
    directory = Directory::at(root);
    if (!directory.ok()) why = directory.error();
  }
  if (error || why != 0)
    return make_error(ErrorCode::io_error, "cannot make the file store's directory {}: {}", root,
                      error ? error.message() : errno_text(why));
  StoreDirectory made(root, std::move(directory));
  if (Status owned = made.check_owner(); !owned) return owned.error();
  if (Status ours = made.check_is_store(known); !ours) return ours.error();
  return made;
}

Result<StoreDirectory> StoreDirectory::open(const std::string& root) {
  Directory directory = Directory::at(root);
  if (!directory.ok())
    return make_error(directory.error() == ENOENT ? ErrorCode::not_found : ErrorCode::io_error,
                      "no file store in {}: {}", root, errno_text(directory.error()));
  if (!directory.look_at(std::string(kLockName)))
    return make_error(ErrorCode::not_found, "no file store in {}: it has no {}", root, kLockName);
  return StoreDirectory(root, std::move(directory));
}

/// Whoever can write here can replace pages, cut off the index that we have mapped, and read what
/// we put into files of theirs.
Status StoreDirectory::check_owner() const {
  const std::optional<struct stat> info = directory_.look();
  if (!info)
    return make_error(ErrorCode::io_error, "cannot look at {}: {}", root_, errno_text(errno));
  const uid_t user = ::geteuid();
  if (info->st_uid != user && info->st_uid != 0)
    return make_error(ErrorCode::invalid_argument,
                      "the file store's directory {} belongs to user {}; expected user {}, who "
                      "runs this process, or root",
                      root_, info->st_uid, user);
  if ((info->st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return make_error(ErrorCode::invalid_argument,
                      "the file store's directory {} has mode {:04o}, so that others can write to "
                      "it; expected {:04o} or less",
                      root_, info->st_mode & 07777, info->st_mode & 0755);
  return {};
}

Status StoreDirectory::check_is_store(bool known) const {
  const auto has_lock = [this] { return directory_.look_at(std::string(kLockName)).has_value(); };
  const auto looks_like_a_store = [this] {
    bool others = false;
    directory_.for_each_name([&](const std::string& name) {
      others |= is_subdirectory_name(name) || name == kTemporaries || name == kSetAside;
    });
    return others;
  };
  // Another process may have made the lock since the first look at it.
  if (known || has_lock() || !looks_like_a_store() || has_lock()) return {};
  return make_error(ErrorCode::invalid_argument,
                    "{} has directories named like a file store's but no {}: expected a store, "
                    "or a directory without them",
                    root_, kLockName);
}

// ---- Making.

/// Or it is there already, and a directory.
Status StoreDirectory::make_directory(const std::string& name) const {
  const int why = directory_.make(name, kDirectoryMode);
  if (why == 0) return {};
  if (why != EEXIST)
    return make_error(ErrorCode::io_error, "cannot make {}/{}: {}", root_, name, errno_text(why));
  const std::optional<struct stat> info = directory_.look_at(name);
  if (!info || S_ISDIR(info->st_mode)) return {};
  return make_error(ErrorCode::invalid_argument,
                    "{}/{} is {}; expected a directory of the file store: nothing was followed or "
                    "changed",
                    root_, name, S_ISLNK(info->st_mode) ? "a link" : "no directory");
}

Status StoreDirectory::make_inside() const {
  for (const char* name : {kTemporaries, kSetAside})
    if (Status made = make_directory(name); !made) return made;
  Status right;
  directory_.for_each_name([&](const std::string& name) {
    if (right && is_subdirectory_name(name)) right = make_directory(name);
  });
  return right;
}

Status StoreDirectory::make_subdirectory(std::uint8_t number) const {
  return make_directory(subdirectory_name(number));
}

Result<Directory> StoreDirectory::make_temporaries_of(std::uint32_t member,
                                                      std::string& name) const {
  std::random_device random;
  name = fmt::format("{}{}-{:08x}", kMember, member, random());
  const Directory parent = temporaries();
  int why = parent.ok() ? parent.make(name, kDirectoryMode) : parent.error();
  Directory made;
  if (why == 0) {
    made = parent.enter(name);
    if (!made.ok()) why = made.error();
  }
  if (why == 0) return made;
  return make_error(ErrorCode::io_error, "cannot make {}/{}/{}: {}", root_, kTemporaries, name,
                    errno_text(why));
}

void StoreDirectory::remove_temporaries_of(const std::string& name) const {
  const Directory parent = temporaries();
  if (parent.ok()) remove_temporaries_in(parent, name);
}

void StoreDirectory::remove_temporaries(const std::function<bool(std::uint32_t)>& is_dead) const {
  const Directory parent = temporaries();
  if (!parent.ok()) return;
  parent.for_each_name([&](const std::string& name) {
    const std::optional<std::uint32_t> member = member_number(name);
    if (member) {
      if (is_dead(*member)) remove_temporaries_in(parent, name);
    } else if (is_temporary_name(name)) {
      parent.unlink(name);
    }
  });
}

std::vector<std::string> StoreDirectory::foreign_names() const {
  std::vector<std::string> foreign;
  directory_.for_each_name([&](const std::string& name) {
    const bool ours = name == kLockName || name == kIndexName || name == kNewIndexName ||
                      name == kTemporaries || name == kSetAside || is_subdirectory_name(name);
    if (!ours) foreign.push_back(name);
  });
  return foreign;
}

// ---- Names.

std::string StoreDirectory::subdirectory_name(std::uint8_t number) {
  return fmt::format("{:02x}", number);
}

std::string StoreDirectory::path_in(const std::string& root, std::string_view key) {
  return fmt::format("{}/{:02x}/{}", root, pando::directory_of(key), key);
}
std::string StoreDirectory::path_of(std::string_view key) const { return path_in(root_, key); }

Fd StoreDirectory::open_page(std::string_view key, int flags) const {
  return directory_.open_regular(fmt::format("{:02x}/{}", pando::directory_of(key), key), flags);
}

Directory StoreDirectory::subdirectory(std::uint8_t number) const {
  return directory_.enter(subdirectory_name(number));
}
Directory StoreDirectory::subdirectory_of(std::string_view key) const {
  return subdirectory(pando::directory_of(key));
}

Directory StoreDirectory::temporaries() const { return directory_.enter(kTemporaries); }
Directory StoreDirectory::set_aside_folder() const { return directory_.enter(kSetAside); }

Result<std::string> StoreDirectory::set_aside(const Directory& from,
                                              const std::string& name) const {
  constexpr std::size_t kNameBytes = 230;  // leaves room for the number in a name of 255
  const Directory folder = set_aside_folder();
  const std::optional<struct stat> info = from.look_at(name);
  std::string to;
  int why = folder.ok() ? EEXIST : folder.error();
  while (why == EEXIST) {  // another had the same time
    to = fmt::format("{}.{}", std::chrono::system_clock::now().time_since_epoch().count(),
                     name.substr(0, kNameBytes));
    why = from.rename_if_free(name, folder, to);
  }
  if (why != 0)
    return make_error(ErrorCode::io_error, "cannot set {} in {} aside: {}", name, root_,
                      errno_text(why));
  const std::uint64_t bytes =
      info && S_ISREG(info->st_mode) ? static_cast<std::uint64_t>(info->st_size) : 0;
  if (set_aside_bytes_ < UINT64_MAX - bytes) set_aside_bytes_ += bytes;
  return fmt::format("{}/{}/{}", root_, kSetAside, to);
}

void StoreDirectory::trim_set_aside(std::uint64_t max_bytes) const {
  if (set_aside_bytes_ <= max_bytes) return;
  const Directory folder = set_aside_folder();
  if (!folder.ok()) return;
  struct Kept {
    std::uint64_t number = 0;  // a time, or the count of an older version
    std::string name;
    std::uint64_t size_bytes = 0;
  };
  std::vector<Kept> all;
  std::uint64_t sum = 0;
  const int why = folder.for_each_name([&](const std::string& name) {
    const std::optional<struct stat> info = folder.look_at(name);
    if (!info || !S_ISREG(info->st_mode)) return;
    Kept kept{.name = name, .size_bytes = static_cast<std::uint64_t>(info->st_size)};
    std::from_chars(name.data(), name.data() + name.size(), kept.number);
    sum += kept.size_bytes;
    all.push_back(std::move(kept));
  });
  std::sort(all.begin(), all.end(),
            [](const Kept& a, const Kept& b) { return a.number < b.number; });
  for (const Kept& kept : all) {
    if (sum <= max_bytes) break;
    folder.unlink(kept.name);
    sum -= kept.size_bytes;
  }
  if (why == 0) set_aside_bytes_ = sum;
}

// ---- The file system.

std::optional<std::uint64_t> StoreDirectory::free_bytes() const {
  struct statvfs info;
  if (::fstatvfs(directory_.fd(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

std::optional<std::size_t> StoreDirectory::probe_direct(const Directory& directory,
                                                        const std::string& name) {
  constexpr std::size_t kSectorBytes = 512;
  const Fd fd = directory.open(name, O_RDWR | O_CREAT | O_EXCL | O_DIRECT, kFileMode);
  // Some file systems refuse the flag only after the file is there.
  directory.unlink(name);
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
