// SPDX-License-Identifier: Apache-2.0
// import_sglang_pages: the files of a directory in groups, each read and put before the next.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "base/hex.h"
#include "pando/store_import.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kGroupBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxGroup = 128;
constexpr std::string_view kExtension = ".bin";

class Import {
 public:
  Import(const KeySpace& space, std::size_t page_bytes, StoreBackend& to)
      : space_(space),
        suffix_(space.sglang_name({}).substr(kHashDigits)),
        page_bytes_(page_bytes),
        to_(to),
        group_(std::clamp<std::size_t>(kGroupBytes / page_bytes, 1, kMaxGroup)),
        memory_(group_ * page_bytes) {}

  void add(const fs::path& file) {
    const std::string name = file.filename().string();
    const auto hash = leading_hash(name);
    if (!hash || !name.ends_with(kExtension))
      return refuse(name, "it is not named like a page: 64 hexadecimal digits, ... , .bin");
    const std::string_view suffix =
        std::string_view(name).substr(kHashDigits, name.size() - kHashDigits - kExtension.size());
    if (suffix != suffix_) {
      ++report_.skipped_files;
      return;
    }
    std::error_code error;
    const std::uint64_t size_bytes = fs::file_size(file, error);
    if (error || size_bytes != page_bytes_)
      return refuse(name,
                    error ? error.message()
                          : fmt::format("it has {} bytes, expected {}", size_bytes, page_bytes_));
    read(file, space_.key(*hash));
    if (pages_.size() == group_) flush();
  }

  void flush() {
    if (pages_.empty()) return;
    StoreBatch batch(StoreBatch::Kind::put, std::move(pages_),
                     StoreBatch::Clock::time_point::max());
    pages_.clear();
    to_.put(batch);
    batch.finish({});
    for (std::size_t i = 0; i < batch.size(); ++i)
      ++(batch.outcome(i) == PageOutcome::done ? report_.imported_pages : report_.failed_pages);
    if (!batch.status()) note(batch.status().error().message);
  }

  ImportReport take_report() { return std::move(report_); }

 private:
  void read(const fs::path& file, std::string key) {
    const auto memory = std::span(memory_).subspan(pages_.size() * page_bytes_, page_bytes_);
    std::ifstream bytes(file, std::ios::binary);
    bytes.read(reinterpret_cast<char*>(memory.data()), static_cast<std::streamsize>(page_bytes_));
    if (!bytes) {
      ++report_.failed_pages;
      return note(fmt::format("{} cannot be read", file.string()));
    }
    pages_.push_back({std::move(key), {memory}});
  }

  void refuse(const std::string& name, std::string_view why) {
    ++report_.refused_files;
    note(fmt::format("{}: {}", name, why));
  }

  void note(std::string problem) {
    if (report_.first_problem.empty()) report_.first_problem = std::move(problem);
  }

  const KeySpace& space_;
  const std::string suffix_;
  const std::size_t page_bytes_;
  StoreBackend& to_;
  const std::size_t group_;  // pages
  std::vector<std::byte> memory_;
  std::vector<StorePage> pages_;  // read and not put yet
  ImportReport report_;
};

}  // namespace

Result<ImportReport> import_sglang_pages(const std::string& directory, const KeySpace& space,
                                         std::size_t page_bytes, StoreBackend& to) {
  if (page_bytes == 0)
    return make_error(ErrorCode::invalid_argument, "an import of pages of 0 bytes from {}",
                      directory);
  Import import(space, page_bytes, to);
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) import.add(it->path());
  if (error)
    return make_error(ErrorCode::io_error, "cannot read the directory {}: {}", directory,
                      error.message());
  import.flush();
  return import.take_report();
}

}  // namespace pando
