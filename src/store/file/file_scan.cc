// SPDX-License-Identifier: Apache-2.0
// The scan: threads take the 256 directories one after the other.
#include "store/file/file_scan.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <tuple>

#include "base/check.h"

namespace pando {
namespace {

// More than cores, because they wait: enough to keep a fast disk busy, and no more than a slow one
// can bear.
constexpr std::size_t kThreads = 8;
constexpr std::size_t kDirectories = 256;

void scan_one(const StoreDirectory& directory, std::uint8_t number, FileScan& scan) {
  const Directory in = directory.subdirectory(number);
  if (!in.ok()) {
    scan.unlooked[number] = in.error() != ENOENT;  // made when first needed
    return;
  }
  SubdirectoryScan part = scan_subdirectory(in, number, [](const std::string&) { return false; });
  std::move(part.pages.begin(), part.pages.end(), std::back_inserter(scan.pages));
  scan.num_damaged += part.damaged.size();
  scan.num_foreign += part.num_foreign;
  scan.unlooked[number] = !part.is_complete;
  // What cannot be moved stays where it is, and is no page.
  for (const std::string& name : part.damaged)
    static_cast<void>(directory.set_aside(in, name).ok());
}

}  // namespace

SubdirectoryScan scan_subdirectory(const Directory& in, std::uint8_t number,
                                   const std::function<bool(const std::string&)>& is_known) {
  SubdirectoryScan scan;
  const int why = in.for_each_name([&](const std::string& name) {
    if (is_known(name)) return;
    FileFinding found = inspect_file(in, name, number);
    switch (found.verdict) {
      case FileVerdict::page:
        return scan.pages.push_back(std::move(found.page));
      case FileVerdict::damaged:
        return scan.damaged.push_back(name);
      case FileVerdict::foreign:
        ++scan.num_foreign;
        return;
      case FileVerdict::unreadable:
        scan.is_complete = false;
        return;
      case FileVerdict::gone:
        return;
    }
  });
  scan.is_complete = scan.is_complete && why == 0;
  return scan;
}

FileScan scan_directory(const StoreDirectory& directory) {
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
    all.unlooked |= part.unlooked;
  }
  const auto used_before = [](const ScannedFile& a, const ScannedFile& b) {
    return std::tie(a.modified_ns, a.key) < std::tie(b.modified_ns, b.key);
  };
  std::sort(all.pages.begin(), all.pages.end(), used_before);
  return all;
}

}  // namespace pando
