// SPDX-License-Identifier: Apache-2.0
// What one call of a file store works with: a FileIo, and for each page under way the memory of its
// header, padding and, where the page's own memory is not aligned for direct I/O, of all its bytes.
// Lanes are kept for the next call; a call has one to itself, so that calls do not wait for each
// other. Reader and Writer (file_reads.cc, file_writes.cc) are above it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "pando/store.h"
#include "store/file/fd.h"
#include "store/file/file_io.h"
#include "store/file/page_file.h"
#include "store/file/page_files.h"

namespace pando {

/// How a store does its I/O, as found when it was opened.
struct IoMode {
  bool uring = false;
  /// What memory must be aligned to, past the page cache; nothing: through it.
  std::optional<std::size_t> direct_alignment = {};
  std::size_t depth = 1;

  int open_flags() const { return direct_alignment ? O_DIRECT : 0; }
};

/// Memory in whole blocks, aligned to them; it grows and does not shrink.
class BlockBuffer {
 public:
  /// Empty: there is no memory.
  std::span<std::byte> resize(std::size_t size_bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t size_bytes_ = 0;
};

/// One page under way.
class PageTransfer {
 public:
  explicit PageTransfer(std::size_t number) : number_(number) {}

  /// The file's bytes are the header, those of the page, and padding. out_of_capacity: no memory.
  Status aim(const StorePage& page, const IoMode& mode);
  Block header() { return Block(header_.data(), kBlockBytes); }
  std::span<const iovec> pieces() const { return pieces_; }
  /// Before a write: the page's bytes to where they are written from.
  void gather(const StorePage& page);
  /// After a read.
  void scatter(const StorePage& page);

  std::size_t number() const { return number_; }

  // The caller's.
  std::size_t page = 0;  ///< of the batch
  PageWrite write;
  PageRead read;
  bool restamp = false;  ///< of a read
  bool retried = false;

 private:
  const std::size_t number_;
  BlockBuffer own_;  // header, padding, and the page where it is not aligned
  std::span<std::byte> header_;
  std::span<std::byte> bounce_;  // empty: straight from and to the page
  std::vector<iovec> pieces_;
};

class Lane {
 public:
  explicit Lane(const IoMode& mode);

  std::size_t depth() const { return io_->depth(); }
  std::size_t under_way() const { return under_way_; }
  PageTransfer& take();
  void give_back(PageTransfer& transfer);
  void submit_read(PageTransfer& transfer) { submit(transfer, transfer.read.file, false); }
  void submit_write(PageTransfer& transfer) { submit(transfer, transfer.write.file, true); }
  struct Done {
    PageTransfer& transfer;
    int error;               ///< errno; 0: none
    std::size_t size_bytes;  ///< of the file
  };
  /// All that are done, at least one; until the next call.
  std::span<const Done> wait();

 private:
  void submit(PageTransfer& transfer, const Fd& file, bool write);

  std::unique_ptr<FileIo> io_;
  std::vector<std::unique_ptr<PageTransfer>> transfers_;
  std::vector<PageTransfer*> free_;
  std::vector<Done> done_;  // at the last wait()
  std::size_t under_way_ = 0;
};

class LanePool {
 public:
  explicit LanePool(const IoMode& mode) : mode_(mode) {}

  struct GiveBack {
    LanePool* pool;
    void operator()(Lane* lane) const;
  };
  using Lease = std::unique_ptr<Lane, GiveBack>;
  Lease take();
  const IoMode& mode() const { return mode_; }

 private:
  const IoMode mode_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> idle_;
};

/// Pages below this are small: they cost the processor more than the disk.
inline constexpr std::size_t kSmallPageBytes = std::size_t{512} << 10;

/// How many threads a call is worth: two where it has many small pages and there is a second core.
/// Writing 128 KiB takes 40 µs for the file's name and blocks, 35 to hand the bytes to the kernel
/// and 8 to hash them; fio has only the 35.
std::size_t num_threads_for(const StoreBatch& batch, const IoMode& mode);
/// work() on this thread and, for two, on another; returns when both have.
void run_on(std::size_t num_threads, const std::function<void()>& work);

/// Works through a batch, on a lane per thread. For each lane calls work(lane, run), which calls
/// run(start, finish): start(i) for each page that it takes, as long as no more than its share of
/// the depth are under way and the batch is not stopped; finish(done) for each that comes back,
/// after others have been started, so that the device has work meanwhile.
template <typename Work>
void run_batch(LanePool& lanes, const StoreBatch& batch, Work&& work) {
  const std::size_t num_threads = num_threads_for(batch, lanes.mode());
  std::atomic<std::size_t> next = 0;
  run_on(num_threads, [&] {
    const LanePool::Lease lane = lanes.take();
    const std::size_t depth = (lane->depth() + num_threads - 1) / num_threads;
    work(*lane, [&](auto&& start, auto&& finish) {
      const auto fill = [&] {
        while (lane->under_way() < depth && !batch.stopped()) {
          const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
          if (i >= batch.size()) return;
          start(i);
        }
      };
      fill();
      while (lane->under_way() > 0) {
        const std::span<const Lane::Done> ready = lane->wait();
        fill();
        for (const Lane::Done& done : ready) finish(done);
      }
    });
  });
}

}  // namespace pando
