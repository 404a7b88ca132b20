// SPDX-License-Identifier: Apache-2.0
// A file store from outside. Lists some of the 256 directories at a time, each on a thread of its
// own because most of it is waiting for the disk, and hands them over in order: what is kept in
// memory is a share of the keys, and pages of a KeySpace come sorted.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "store/file/inspect_file.h"
#include "store/file/lock_file.h"
#include "store/file/page_file.h"
#include "store/file/store_directory.h"
#include "store/store_reader.h"

namespace pando {
namespace {

constexpr std::size_t kDirectories = 256;
constexpr std::size_t kAtATime = 8;

OddEntry::Kind kind_of(FileVerdict verdict) {
  if (verdict == FileVerdict::foreign) return OddEntry::Kind::foreign;
  return verdict == FileVerdict::damaged ? OddEntry::Kind::damaged : OddEntry::Kind::unreadable;
}

/// What one of the directories has.
struct Listed {
  std::vector<ScannedFile> pages;
  std::vector<OddEntry> odd;
};

Listed list_directory(const StoreDirectory& directory, std::uint8_t number) {
  Listed listed;
  const std::string path =
      fmt::format("{}/{}", directory.root(), StoreDirectory::subdirectory_name(number));
  const Directory in = directory.subdirectory(number);
  int why = in.error();
  if (in.ok())
    why = in.for_each_name([&](const std::string& name) {
      FileFinding found = inspect_file(in, name, number);
      if (found.verdict == FileVerdict::page) {
        listed.pages.push_back(std::move(found.page));
      } else if (found.verdict != FileVerdict::gone) {
        listed.odd.push_back(
            {kind_of(found.verdict), fmt::format("{}/{}", path, name), std::move(found.why)});
      }
    });
  if (why != 0 && why != ENOENT)  // made when first needed
    listed.odd.push_back({OddEntry::Kind::unreadable, path, errno_text(why)});
  std::sort(listed.pages.begin(), listed.pages.end(),
            [](const ScannedFile& a, const ScannedFile& b) { return a.key < b.key; });
  std::sort(listed.odd.begin(), listed.odd.end(),
            [](const OddEntry& a, const OddEntry& b) { return a.place < b.place; });
  return listed;
}

/// Entries of a directory and the bytes of their files.
void count_files(const Directory& directory, std::uint64_t& num, std::uint64_t& size_bytes) {
  if (!directory.ok()) return;
  directory.for_each_name([&](const std::string& name) {
    const std::optional<struct stat> info = directory.look_at(name);
    ++num;
    if (info && S_ISREG(info->st_mode)) size_bytes += static_cast<std::uint64_t>(info->st_size);
  });
}

class FileReader final : public StoreReader {
 public:
  FileReader(StoreDirectory directory, LockFile lock)
      : directory_(std::move(directory)), lock_(std::move(lock)) {}

  Status list(const VisitPage& page, const VisitOdd& odd) override {
    for (const std::string& name : directory_.foreign_names())
      odd({OddEntry::Kind::foreign, fmt::format("{}/{}", directory_.root(), name),
           "it is not the store's", true});
    for (std::size_t first = 0; first < kDirectories; first += kAtATime) {
      const std::array<Listed, kAtATime> some = list_some(first);
      for (std::size_t i = 0; i < some.size(); ++i) {
        for (const OddEntry& entry : some[i].odd) odd(entry);
        if (!hand_over(some[i].pages, first + i, page)) return {};
      }
    }
    progress_ = 1;
    return {};
  }

  double progress() const override { return progress_; }
  std::string place(std::string_view key) const override { return directory_.path_of(key); }

  Status read(std::string_view key, std::vector<std::byte>& bytes) override {
    if (Status valid = check_key(key); !valid) return valid;
    const Directory in = directory_.subdirectory_of(key);
    if (in.ok()) return check_file(in, std::string(key), bytes);
    return make_error(in.error() == ENOENT ? ErrorCode::not_found : ErrorCode::io_error,
                      "cannot open its directory: {}", errno_text(in.error()));
  }

  Result<StoreRoom> room() override {
    StoreRoom room{.free_bytes = directory_.free_bytes()};
    count_files(directory_.set_aside_folder(), room.num_set_aside, room.set_aside_bytes);
    count_unfinished(room);
    return room;
  }

  Status remove(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      if (Status valid = check_key(key); !valid) return valid;
      const Directory in = directory_.subdirectory_of(key);
      if (const int why = in.ok() ? in.unlink(key) : in.error(); why != 0 && why != ENOENT)
        return make_error(ErrorCode::io_error, "cannot remove {}: {}", directory_.path_of(key),
                          errno_text(why));
    }
    return {};
  }

  Result<std::string> put_away(const OddEntry& entry) override {
    const std::size_t slash = entry.place.rfind('/');
    if (slash == entry.place.npos || slash <= directory_.root().size())
      return make_error(ErrorCode::invalid_argument, "{} is not among the pages", entry.place);
    const Directory in =
        directory_.directory().enter(entry.place.substr(directory_.root().size() + 1, 2));
    if (!in.ok())
      return make_error(ErrorCode::io_error, "cannot set {} aside: {}", entry.place,
                        errno_text(in.error()));
    Result<std::string> to = directory_.set_aside(in, entry.place.substr(slash + 1));
    if (!to) return to;
    return fmt::format("moved to {}", *to);
  }

 private:
  std::array<Listed, kAtATime> list_some(std::size_t first) {
    std::array<Listed, kAtATime> some;
    const auto work = [&](std::size_t i) {
      const auto number = static_cast<std::uint8_t>(first + i);
      some[i] = list_directory(directory_, number);
    };
    std::vector<std::thread> threads;
    std::size_t i = 1;
    try {
      for (; i < kAtATime; ++i) threads.emplace_back(work, i);
    } catch (const std::system_error&) {  // no more threads: the rest is done here
    }
    for (; i < kAtATime; ++i) work(i);
    work(0);
    for (std::thread& thread : threads) thread.join();
    return some;
  }

  bool hand_over(const std::vector<ScannedFile>& pages, std::size_t number,
                 const VisitPage& visit) {
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(pages.size());
      progress_ = (static_cast<double>(number) + share) / kDirectories;
      const ScannedFile& page = pages[i];
      if (!visit({page.key, page.page_bytes, file_bytes(page.page_bytes), page.modified_ns}))
        return false;
    }
    return true;
  }

  /// Files of members, alive or dead, and of versions that had none.
  void count_unfinished(StoreRoom& room) const {
    const Directory all = directory_.temporaries();
    if (!all.ok()) return;
    all.for_each_name([&](const std::string& name) {
      const std::optional<struct stat> info = all.look_at(name);
      if (info && S_ISREG(info->st_mode)) {
        ++room.num_unfinished;
        room.unfinished_bytes += static_cast<std::uint64_t>(info->st_size);
      } else if (const Directory of_member = all.enter(name); of_member.ok()) {
        count_files(of_member, room.num_unfinished, room.unfinished_bytes);
      }
    });
  }

  StoreDirectory directory_;
  const LockFile lock_;
  double progress_ = 0;
};

}  // namespace

Result<std::unique_ptr<StoreReader>> open_file_reader(const std::string& directory,
                                                      StoreAccess access) {
  const Result<std::string> root = StoreDirectory::absolute(directory);
  if (!root) return root.error();
  Result<StoreDirectory> opened = StoreDirectory::open(*root);
  if (!opened) return opened.error();
  Result<LockFile> lock = access == StoreAccess::read
                              ? LockFile::open_to_look(*opened)
                              : LockFile::open(*opened, LockFile::Mode::exclusive, false);
  if (!lock) return lock.error();
  if (access == StoreAccess::write)
    if (Status made = opened->make_inside(); !made) return made.error();
  return std::unique_ptr<StoreReader>(
      std::make_unique<FileReader>(std::move(*opened), std::move(*lock)));
}

}  // namespace pando
