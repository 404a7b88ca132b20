// SPDX-License-Identifier: Apache-2.0
// Pages to and from a file store, beside fio with the same block size, depth and total on the same
// disk, and beside plain files as vLLM writes them (plain_files.h), in turns; and opening a store
// with many pages. Hashing and checking every page is in the figures. Past the page cache, so that
// both read from the disk. PANDO_BENCH_DIR says where; the system's directory for temporary files
// otherwise.
//
// Memory is of huge pages on both sides. From scattered small ones the kernel makes more and
// shorter requests, and a disk may be half as fast; how scattered they are is luck.
//
// For every file that it makes, ext4 passes over the inodes nearby that were freed in the last
// minutes, which can take longer than the write. A store leaves few of them, benchmarks and tests
// many: so nothing is removed before the end, and each benchmark is on a part of the disk of its
// own, where files are quick to make.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "fio.h"
#include "limit.h"
#include "pando/pools.h"
#include "pando/store_backends.h"
#include "plain_files.h"

namespace pando::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTotalBytes = std::size_t{256} << 20;
constexpr std::size_t kSmallTotalBytes = std::size_t{64} << 20;    // of pages below 1 MiB
constexpr std::uintmax_t kNeededBytes = std::uintmax_t{10} << 30;  // free, before each benchmark
constexpr std::size_t kRounds = 9;
constexpr std::size_t kDepth = 16;
constexpr int kMaxFolders = 32;      // of which the quickest is used
constexpr double kQuickNs = 15'000;  // to make a file

fs::path bench_root() {
  const char* chosen = std::getenv("PANDO_BENCH_DIR");
  return chosen ? fs::path(chosen) : fs::temp_directory_path();
}

class Folder {
 public:
  Folder() {
    path_ = bench_root() / "pando-bench-XXXXXX";
    std::string name = path_.string();
    require(::mkdtemp(name.data()) != nullptr, "a directory for the benchmark");
    path_ = name;
    spread();
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  /// As chattr +T: directories below are put far from each other, where the file system can.
  void spread() const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY);
    int flags = 0;
    if (::ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
      flags |= FS_TOPDIR_FL;
      ::ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
    ::close(fd);
  }

  fs::path path_;
};

std::string new_folder() {
  static const Folder all;
  static int number = 0;
  std::string quickest;
  double least = 0;
  for (int i = 0; i < kMaxFolders && (i == 0 || least > kQuickNs); ++i) {
    const std::string path = all / std::to_string(number++);
    fs::create_directories(path);
    const double ns = time_each(64, [&](std::size_t file) {
      ::close(::open((path + "/probe" + std::to_string(file)).c_str(), O_CREAT | O_WRONLY, 0600));
    });
    if (i != 0 && ns >= least) continue;
    quickest = path;
    least = ns;
  }
  return quickest;
}

std::string key_of(std::uint64_t number) {
  Random random(number);
  std::string key;
  for (int i = 0; i < 8; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(random.below(1u << 31) * 2));
    key += digits;
  }
  return key + "_bench_0_1_f0123456789abcdef";
}

/// Memory for all pages of a round.
class Memory {
 public:
  Memory() : arena_(make_huge_page_arena()) {
    bytes_ = static_cast<std::byte*>(*arena_->allocate(kTotalBytes, 4096));
    std::memset(bytes_, 0, kTotalBytes);
  }
  ~Memory() { arena_->free(bytes_, kTotalBytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::vector<StorePage> pages(std::size_t page_bytes, std::size_t total_bytes,
                               std::uint64_t first_key) const {
    std::vector<StorePage> pages;
    for (std::size_t i = 0; i < total_bytes / page_bytes; ++i)
      pages.push_back({key_of(first_key + i), {{bytes_ + i * page_bytes, page_bytes}}});
    return pages;
  }
  std::byte* bytes() const { return bytes_; }

 private:
  std::unique_ptr<Arena> arena_;
  std::byte* bytes_;
};

using Call = void (StoreBackend::*)(StoreBatch&);

/// Nanoseconds of a put or get.
double time_call(StoreBackend& store, Call call, StoreBatch::Kind kind,
                 std::vector<StorePage> pages) {
  StoreBatch batch(kind, std::move(pages), StoreBatch::Clock::time_point::max());
  const double ns = time_each(1, [&](std::size_t) { (store.*call)(batch); });
  batch.finish({});
  require(batch.num_leading() == batch.size(), "every page");
  return ns;
}

std::unique_ptr<StoreBackend> open(const std::string& folder, std::uint64_t capacity_bytes) {
  return std::move(*make_file_store({.directory = folder + "/store",
                                     .capacity_bytes = capacity_bytes,
                                     .min_free_bytes = 0,
                                     .depth = kDepth}));
}

constexpr std::uint64_t kEndless = std::uint64_t{1} << 40;

enum class Way {
  read,
  write,    // new files; fio writes a new one
  replace,  // the store is full: each page takes the place of another; fio writes over a file
};

class Rounds {
 public:
  Rounds(std::size_t page_bytes, Way way)
      : page_bytes_(page_bytes),
        total_bytes_(page_bytes < (1 << 20) ? kSmallTotalBytes : kTotalBytes),
        way_(way),
        folder_(new_folder()),
        store_(open(folder_, way == Way::replace ? (page_bytes + 4096) * (total_bytes_ / page_bytes)
                                                 : kEndless)) {
    auto* words = reinterpret_cast<std::uint64_t*>(source_.bytes());
    Random random(page_bytes);
    for (std::size_t i = 0; i < kTotalBytes / 8; ++i) words[i] = random.next();
    put(0);
    get(0);
    require(std::memcmp(source_.bytes(), target_.bytes(), total_bytes_) == 0, "the bytes read");
  }

  /// Bytes a second: Pando's, fio's, the median of their ratios, and the ratio of their best
  /// rounds, which depends less on who else uses the machine. False: there is no fio.
  bool run() {
    std::vector<double> ours, fio, ratios, plain_ratios;
    const bool write = way_ != Way::read;
    PlainFiles plain(folder_, page_bytes_, total_bytes_ / page_bytes_);
    if (way_ == Way::read) plain.write(source_.bytes(), 0);
    if (way_ != Way::write && !(fio_rate(true, 0) && fio_rate(write, 0))) return false;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const double ns = write ? put(round) : get(0);
      const std::optional<double> limit = fio_rate(write, way_ == Way::write ? round : 0);
      if (!limit) return false;
      ours.push_back(static_cast<double>(total_bytes_) / ns);
      fio.push_back(*limit / 1e9);
      ratios.push_back(ours.back() / fio.back());
      if (way_ == Way::replace || page_bytes_ >= (1 << 20)) continue;
      const double plain_ns =
          write ? plain.write(source_.bytes(), round) : plain.read(target_.bytes(), 0);
      plain_ratios.push_back(plain_ns / ns);
    }
    if (!plain_ratios.empty()) of_plain_files = median(plain_ratios);
    gb_per_s = median(ours);
    fio_gb_per_s = median(fio);
    of_fio = median(ratios);
    best_of_fio =
        *std::max_element(ours.begin(), ours.end()) / *std::max_element(fio.begin(), fio.end());
    return true;
  }

  double gb_per_s = 0, fio_gb_per_s = 0, of_fio = 0, best_of_fio = 0, of_plain_files = 0;

 private:
  double put(std::uint64_t round) {
    return time_call(*store_, &StoreBackend::put, StoreBatch::Kind::put,
                     source_.pages(page_bytes_, total_bytes_, round << 32));
  }
  double get(std::uint64_t round) {
    return time_call(*store_, &StoreBackend::get, StoreBatch::Kind::get,
                     target_.pages(page_bytes_, total_bytes_, round << 32));
  }
  std::optional<double> fio_rate(bool write, std::uint64_t round) const {
    return run_fio({.file = folder_ + "/fio" + std::to_string(round),
                    .write = write,
                    .total_bytes = total_bytes_,
                    .block_bytes = page_bytes_,
                    .depth = kDepth});
  }

  const std::size_t page_bytes_;
  const std::size_t total_bytes_;
  const Way way_;
  const std::string folder_;
  std::unique_ptr<StoreBackend> store_;
  Memory source_, target_;
};

// Google Benchmark calls these several times while it looks for the number of iterations (a fixed
// one would become part of the name); what takes long is done the first time, and the loop is
// empty.
void run(benchmark::State& state, std::size_t page_bytes, Way way) {
  using Counters = std::map<std::string, double>;
  static std::map<std::pair<std::size_t, Way>, Counters> measured;
  const std::pair what(page_bytes, way);
  if (!measured.contains(what)) {
    if (fs::space(bench_root()).available < kNeededBytes)
      return state.SkipWithError("less than 10 GiB are free");
    Rounds rounds(page_bytes, way);
    if (!rounds.run()) return state.SkipWithError("fio cannot be run");
    measured[what] = {{"of_fio", rounds.of_fio},
                      {"best_of_fio", rounds.best_of_fio},
                      {"of_plain_files", rounds.of_plain_files},
                      {"GB_per_s", rounds.gb_per_s},
                      {"fio_GB_per_s", rounds.fio_gb_per_s}};
  }
  for (auto _ : state) benchmark::ClobberMemory();
  for (const auto& [name, value] : measured[what]) state.counters[name] = value;
}

double time_open(std::size_t num_pages) {
  constexpr std::size_t kPageBytes = 4096;
  const std::string folder = new_folder();
  const Memory memory;
  auto store = open(folder, kEndless);
  std::vector<StorePage> pages;
  for (std::size_t i = 0; i < num_pages; ++i)
    pages.push_back({key_of(i), {{memory.bytes() + i * kPageBytes % kTotalBytes, kPageBytes}}});
  time_call(*store, &StoreBackend::put, StoreBatch::Kind::put, std::move(pages));
  store.reset();
  const double open_ns = time_each(1, [&](std::size_t) { store = open(folder, kEndless); });
  require(store->stats().num_pages == num_pages, "every page is found");
  return open_ns / 1e9;
}

const int registered = [] {
  constexpr std::pair<Way, const char*> kWays[] = {
      {Way::read, "FileRead"}, {Way::write, "FileWrite"}, {Way::replace, "FileReplace"}};
  for (const auto& [way, way_name] : kWays)
    for (const std::size_t kib : {64, 128, 256, 1024, 4096}) {
      const std::string size =
          kib < 1024 ? std::to_string(kib) + "KiB" : std::to_string(kib / 1024) + "MiB";
      const std::string name = std::string(way_name) + "/size:" + size;
      benchmark::RegisterBenchmark(
          name.c_str(), [kib, way = way](benchmark::State& state) { run(state, kib << 10, way); });
    }
  benchmark::RegisterBenchmark("FileOpen/pages:100000", [](benchmark::State& state) {
    static const double open_s = time_open(100'000);
    for (auto _ : state) benchmark::ClobberMemory();
    state.counters["open_s"] = open_s;
  });
  return 0;
}();

}  // namespace
}  // namespace pando::bench
