// SPDX-License-Identifier: Apache-2.0
// The scan: threads take the 256 directories one after the other.
#include "store/file/file_scan.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <tuple>

#include "base/check.h"
#include "store/file/file_io.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

// More than cores, because they wait: enough to keep a fast disk busy, and no more than a slow one
// can bear.
constexpr std::size_t kThreads = 8;
constexpr std::size_t kDirectories = 256;

enum class Verdict { page, damaged, foreign };

Verdict inspect(const std::string& path, const std::string& name, std::uint8_t directory,
                ScannedFile& found) {
  if (!check_key(name).ok() || directory_of(name) != directory) return Verdict::foreign;
  struct stat info;
  // Not through a link, and not waiting for somebody to write to a pipe.
  const Fd file = Fd::open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file.ok()) return file.error() == ELOOP ? Verdict::foreign : Verdict::damaged;
  if (::fstat(file.get(), &info) != 0) return Verdict::damaged;
  if (!S_ISREG(info.st_mode)) return Verdict::foreign;
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);  // the header, and not what follows it
  std::array<std::byte, kBlockBytes> block;
  const iovec piece{block.data(), block.size()};
  const FileDone done = transfer_rest({.fd = file.get(), .pieces = {&piece, 1}}, 0);
  if (done.error != 0 || done.size_bytes != block.size()) return Verdict::damaged;
  const Result<PageHeader> header = decode(block);
  if (!header || header->key != name) return Verdict::damaged;
  if (static_cast<std::uint64_t>(info.st_size) != file_bytes(header->tag.size_bytes))
    return Verdict::damaged;
  found = {name, header->tag.size_bytes,
           std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
  return Verdict::page;
}

void scan_one(StoreDirectory& directory, std::uint8_t number, FileScan& scan) {
  const std::string path = directory.subdirectory(number);
  struct Close {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> entries(::opendir(path.c_str()));
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const std::string file = fmt::format("{}/{}", path, name);
    ScannedFile found;
    const Verdict verdict = inspect(file, name, number, found);
    if (verdict == Verdict::page) {
      scan.pages.push_back(std::move(found));
      continue;
    }
    ++(verdict == Verdict::damaged ? scan.num_damaged : scan.num_foreign);
    // What cannot be moved stays where it is, and is no page.
    static_cast<void>(directory.set_aside(file).ok());
  }
}

}  // namespace

FileScan scan_directory(StoreDirectory& directory) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&](FileScan& part) {
    for (std::size_t i = next++; i < kDirectories; i = next++)
      scan_one(directory, static_cast<std::uint8_t>(i), part);
  };
  std::vector<FileScan> parts(kThreads);
  std::vector<std::thread> threads;
  try {
    for (std::size_t i = 1; i < kThreads; ++i)
      threads.emplace_back([&work, &part = parts[i]] { work(part); });
  } catch (const std::system_error&) {  // no more threads: with those there are
  }
  work(parts[0]);
  for (std::thread& thread : threads) thread.join();
  FileScan all;
  for (FileScan& part : parts) {
    std::move(part.pages.begin(), part.pages.end(), std::back_inserter(all.pages));
    all.num_damaged += part.num_damaged;
    all.num_foreign += part.num_foreign;
  }
  const auto used_before = [](const ScannedFile& a, const ScannedFile& b) {
    return std::tie(a.modified_ns, a.key) < std::tie(b.modified_ns, b.key);
  };
  std::sort(all.pages.begin(), all.pages.end(), used_before);
  return all;
}

}  // namespace pando
