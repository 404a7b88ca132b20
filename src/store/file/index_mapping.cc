// SPDX-License-Identifier: Apache-2.0
// IndexMapping: the file, its two mappings, and the undo log.
#include "store/file/index_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/check.h"

namespace pando {
namespace {

constexpr mode_t kFileMode = 0644;
constexpr std::uint32_t kFirstUnits = 1024;    // 64 KiB
constexpr std::uint32_t kMaxUnits = 1u << 27;  // 8 GiB: words of the file have 32 bits
static_assert((std::uint64_t{kMaxUnits} * sizeof(Unit) + kIndexHeaderBytes) / 4 <= UINT32_MAX);

void* map(const Fd& file, std::uint64_t from_bytes, std::uint64_t size_bytes) {
  void* at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                    static_cast<off_t>(from_bytes));
  return at == MAP_FAILED ? nullptr : at;
}

std::uint64_t file_bytes_for(std::uint32_t num_units) {
  return kIndexHeaderBytes + std::uint64_t{num_units} * sizeof(Unit);
}

}  // namespace

IndexMapping::~IndexMapping() {
  if (units_ != nullptr) ::munmap(units_, std::size_t{mapped_units_} * sizeof(Unit));
  if (header_ != nullptr) ::munmap(header_, kIndexHeaderBytes);
}

// ---- Making and attaching.

Result<std::unique_ptr<IndexMapping>> IndexMapping::create(const IndexPlace& place,
                                                           std::uint64_t capacity_bytes) {
  const std::string unfinished = place.name + ".new";
  place.directory.unlink(unfinished);
  Fd file = place.directory.open(unfinished, O_RDWR | O_CREAT | O_EXCL, kFileMode);
  if (!file.ok())
    return make_error(is_full(file.error()) ? ErrorCode::out_of_capacity : ErrorCode::io_error,
                      "cannot create {}.new: {}", place.path, errno_text(file.error()));
  std::unique_ptr<IndexMapping> index(new IndexMapping(place.path, std::move(file)));
  Status made = index->make(capacity_bytes);
  if (made) {
    const int why = place.directory.rename(unfinished, place.directory, place.name);
    if (why == 0) return index;
    made = make_error(ErrorCode::io_error, "cannot rename {0}.new to {0}: {1}", place.path,
                      errno_text(why));
  }
  place.directory.unlink(unfinished);
  return made.error();
}

Result<std::unique_ptr<IndexMapping>> IndexMapping::create_private(std::uint64_t capacity_bytes) {
  Fd file = Fd::own(::memfd_create("pando.index", MFD_CLOEXEC));
  if (!file.ok())
    return make_error(ErrorCode::io_error, "no memory file for an index: {}",
                      errno_text(file.error()));
  std::unique_ptr<IndexMapping> index(new IndexMapping("", std::move(file)));
  if (Status made = index->make(capacity_bytes); !made) return made.error();
  return index;
}

Status IndexMapping::make(std::uint64_t capacity_bytes) {
  if (Status room = allocate(0, file_bytes_for(kFirstUnits)); !room) return room;
  if (Status mapped = map_header(); !mapped) return mapped;
  // The file is new: all else is zero, which is what an empty index has.
  std::memcpy(header_->magic, kIndexMagic, sizeof kIndexMagic);
  header_->version = kIndexVersion;
  header_->header_bytes = static_cast<std::uint32_t>(kIndexHeaderBytes);
  header_->capacity_bytes = capacity_bytes;
  header_->num_units = kFirstUnits;
  header_->state.num_used_units = 1;  // unit 0 is none
  if (!map_units(kFirstUnits))
    return make_error(ErrorCode::unavailable, "cannot map {} units", kFirstUnits);
  return {};
}

Result<std::unique_ptr<IndexMapping>> IndexMapping::attach(const IndexPlace& place) {
  const auto bad = [&](std::string_view why) {
    return make_error(ErrorCode::corrupt, "{} is no index of this version: {}", place.path, why);
  };
  Fd file = place.directory.open(place.name, O_RDWR);
  if (!file.ok()) return bad(errno_text(file.error()));
  struct stat info;
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return bad("it is not a file");
  const auto size_bytes = static_cast<std::uint64_t>(info.st_size);
  if (size_bytes < file_bytes_for(kFirstUnits)) return bad("it is too short");
  std::unique_ptr<IndexMapping> index(new IndexMapping(place.path, std::move(file)));
  if (Status mapped = index->map_header(); !mapped) return mapped.error();
  const IndexHeader& header = *index->header_;
  if (std::memcmp(header.magic, kIndexMagic, sizeof kIndexMagic) != 0 ||
      header.version != kIndexVersion || header.header_bytes != kIndexHeaderBytes)
    return bad("it begins differently");
  if (header.ready == 0 || header.broken != 0) return bad("it is unfinished or broken");
  if (header.num_units < kFirstUnits || size_bytes < file_bytes_for(header.num_units))
    return bad("it is cut off");
  if (!index->map_units(header.num_units)) return bad("it cannot be mapped");
  return index;
}

Status IndexMapping::map_header() {
  header_ = static_cast<IndexHeader*>(map(file_, 0, kIndexHeaderBytes));
  if (header_ != nullptr) return {};
  return make_error(ErrorCode::unavailable, "cannot map {}: {}", path_, errno_text(errno));
}

bool IndexMapping::map_units(std::uint32_t num_units) {
  struct stat info;  // a file that was cut would kill whoever touches what is missing
  if (num_units > kMaxUnits || ::fstat(file_.get(), &info) != 0 ||
      static_cast<std::uint64_t>(info.st_size) < file_bytes_for(num_units))
    return false;
  void* at = map(file_, kIndexHeaderBytes, std::uint64_t{num_units} * sizeof(Unit));
  if (at == nullptr) return false;
  if (units_ != nullptr) ::munmap(units_, std::size_t{mapped_units_} * sizeof(Unit));
  units_ = static_cast<Unit*>(at);
  mapped_units_ = num_units;
  return true;
}

bool IndexMapping::is_lost() const {
  if (path_.empty()) return false;
  struct stat held, found;
  if (::fstat(file_.get(), &held) != 0 || ::lstat(path_.c_str(), &found) != 0) return true;
  return held.st_dev != found.st_dev || held.st_ino != found.st_ino;
}

/// Where the file system cannot set blocks aside, zeros are written.
Status IndexMapping::allocate(std::uint64_t from_bytes, std::uint64_t size_bytes) {
  int why = 0;
  if (::fallocate(file_.get(), 0, static_cast<off_t>(from_bytes), static_cast<off_t>(size_bytes)) !=
      0)
    why = errno;
  if (why == EOPNOTSUPP || why == ENOSYS) {
    const std::vector<char> zeros(4096);
    for (why = 0; size_bytes > 0 && why == 0;) {
      const std::size_t n = std::min<std::uint64_t>(zeros.size(), size_bytes);
      const ssize_t written =
          ::pwrite(file_.get(), zeros.data(), n, static_cast<off_t>(from_bytes));
      if (written <= 0) why = written < 0 ? errno : EIO;
      from_bytes += n;
      size_bytes -= n;
    }
  }
  if (why == 0) return {};
  return make_error(is_full(why) ? ErrorCode::out_of_capacity : ErrorCode::unavailable,
                    "no room for the index of pages in {}: {}", path_, errno_text(why));
}

// ---- Units and words, with the lock held.

void IndexMapping::begin(bool holder_died) {
  const std::uint32_t num_units = header_->num_units.load(std::memory_order_relaxed);
  if (num_units != mapped_units_ && (num_units < mapped_units_ || !map_units(num_units)))
    set_broken();
  if (holder_died || header_->undo.count.load(std::memory_order_relaxed) != 0) undo();
}

void IndexMapping::end() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  header_->undo.count.store(0, std::memory_order_relaxed);
}

Status IndexMapping::grow(std::uint32_t num_units) {
  const std::uint32_t used = header_->state.num_used_units;
  if (used <= mapped_units_ && mapped_units_ - used >= num_units) return {};
  const std::uint64_t wanted =
      std::uint64_t{mapped_units_} + std::max({num_units, mapped_units_ / 8, kFirstUnits});
  if (wanted > kMaxUnits)
    return make_error(ErrorCode::out_of_capacity, "an index of {} units is full", mapped_units_);
  const auto new_units = static_cast<std::uint32_t>(wanted);
  if (Status room = allocate(file_bytes_for(mapped_units_),
                             file_bytes_for(new_units) - file_bytes_for(mapped_units_));
      !room)
    return room;
  if (!map_units(new_units))
    return make_error(ErrorCode::out_of_capacity, "no memory to map an index of {} units", wanted);
  header_->num_units.store(new_units, std::memory_order_relaxed);
  return {};
}

void IndexMapping::keep(const void* field, std::size_t size_bytes) {
  const auto* at = static_cast<const std::uint32_t*>(field);
  const auto* units = reinterpret_cast<const std::uint32_t*>(units_);
  const auto* header = reinterpret_cast<const std::uint32_t*>(header_);
  std::size_t word;
  if (at >= units && at < units + std::size_t{mapped_units_} * (sizeof(Unit) / 4)) {
    word = kIndexHeaderBytes / 4 + static_cast<std::size_t>(at - units);
  } else if (at >= header && at < header + kIndexHeaderBytes / 4) {
    word = static_cast<std::size_t>(at - header);
  } else {
    return;  // the unit that leads nowhere
  }
  UndoLog& undo = header_->undo;
  for (std::size_t i = 0; i < size_bytes / 4; ++i) {
    const std::uint32_t n = undo.count.load(std::memory_order_relaxed);
    if (n >= UndoLog::kMaxWords) return set_broken();  // chains longer than any we make
    undo.words[n] = {static_cast<std::uint32_t>(word + i), at[i]};
    // A process that is killed has done all that stands before where it was: enough to keep the
    // compiler to this order.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    undo.count.store(n + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

void IndexMapping::undo() {
  UndoLog& undo = header_->undo;
  for (std::uint32_t n = undo.count.load(std::memory_order_relaxed); n > 0; --n) {
    std::uint32_t* word = n <= UndoLog::kMaxWords ? word_at(undo.words[n - 1].at) : nullptr;
    if (word == nullptr) {
      set_broken();
      break;
    }
    *word = undo.words[n - 1].was;
    undo.count.store(n - 1, std::memory_order_relaxed);
  }
  undo.count.store(0, std::memory_order_relaxed);
}

/// Of the state or of a unit; null: neither.
std::uint32_t* IndexMapping::word_at(std::uint32_t at) {
  constexpr std::size_t kState = offsetof(IndexHeader, state) / 4;
  if (at >= kState && at < kState + sizeof(IndexState) / 4)
    return reinterpret_cast<std::uint32_t*>(header_) + at;
  if (at < kIndexHeaderBytes / 4) return nullptr;
  const std::size_t word = at - kIndexHeaderBytes / 4;
  if (word >= std::size_t{mapped_units_} * (sizeof(Unit) / 4)) return nullptr;
  return reinterpret_cast<std::uint32_t*>(units_) + word;
}

Unit& IndexMapping::no_unit() {
  set_broken();
  nowhere_ = {};
  return nowhere_;
}

}  // namespace pando
