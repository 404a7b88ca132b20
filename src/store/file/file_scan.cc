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
  if (!in.ok()) return;
  in.for_each_name([&](const std::string& name) {
    FileFinding found = inspect_file(in, name, number);
    if (found.verdict == FileVerdict::page) {
      scan.pages.push_back(std::move(found.page));
      return;
    }
    if (found.verdict == FileVerdict::gone) return;
    ++(found.verdict == FileVerdict::foreign ? scan.num_foreign : scan.num_damaged);
    // What cannot be moved stays where it is, and is no page.
    static_cast<void>(directory.set_aside(in, name).ok());
  });
}

}  // namespace

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
  }
  const auto used_before = [](const ScannedFile& a, const ScannedFile& b) {
    return std::tie(a.modified_ns, a.key) < std::tie(b.modified_ns, b.key);
  };
  std::sort(all.pages.begin(), all.pages.end(), used_before);
  return all;
}

}  // namespace pando
