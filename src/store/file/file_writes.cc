// SPDX-License-Identifier: Apache-2.0
// FileStore::put. A page is hashed while those before it are on their way, written in one request
// to a file without a name or a temporary one, and named when it is whole: a process that is killed
// leaves nothing but temporaries. A page that is there already is kept, unless it has another size.
//
// With `sync` the bytes are on the disk before the file is named, and the directories before the
// page is reported; directories are synced once for several pages, because each time costs the file
// system a commit.
#include <set>
#include <vector>

#include "base/check.h"
#include "store/file/file_store.h"

namespace pando {
namespace {

class Writer {
 public:
  Writer(PageFiles& files, const IoMode& mode, bool sync, StoreBatch& batch, Lane& lane)
      : files_(files), mode_(mode), sync_(sync), batch_(batch), lane_(lane) {}

  void start(std::size_t i) {
    const StorePage& page = batch_.page(i);
    if (Status valid = check_key(page.key); !valid) return failed(i, valid);
    if (const auto found = files_.touch(page.key);
        found && found->size_bytes == page.size_bytes()) {
      if (found->restamp) files_.stamp(files_.member()->directory().open_page(page.key, O_RDONLY));
      return batch_.done(i);
    }
    PageTransfer& transfer = lane_.take();
    transfer.page = i;
    Status begun = transfer.aim(page, mode_);
    if (begun) begun = open(transfer);
    if (!begun) return give_up(transfer, begun);
    transfer.gather(page);
    encode(page.key, batch_.tag(i), transfer.header());
    lane_.submit_write(transfer);
  }

  void finish(const Lane::Done& done) {
    PageTransfer& transfer = done.transfer;
    const std::size_t i = transfer.page;
    if (is_full(done.error) && !transfer.retried) {
      files_.abandon(transfer.write);
      if (const Status opened = reopen(transfer); !opened) return give_up(transfer, opened);
      return lane_.submit_write(transfer);
    }
    if (done.error != 0)
      return give_up(transfer,
                     make_error(ErrorCode::io_error, "cannot write {}: {}",
                                files_.path_of(batch_.page(i).key), errno_text(done.error)));
    files_.stamp(transfer.write.file);
    if (const Status committed = files_.commit(transfer.write, batch_.page(i).key); !committed)
      return give_up(transfer, committed);
    lane_.give_back(transfer);
    if (!sync_) return batch_.done(i);
    unsynced_.push_back(i);
    if (unsynced_.size() >= mode_.depth) sync_directories();
  }

  void sync_directories() {
    if (unsynced_.empty()) return;
    std::set<std::uint8_t> numbers;
    for (const std::size_t i : unsynced_) numbers.insert(directory_of(batch_.page(i).key));
    const std::shared_ptr<Membership> member = files_.member();
    Status synced;
    const auto sync = [&](const Directory& directory) {
      if (!directory.ok() || ::fsync(directory.fd()) != 0)
        synced = make_error(ErrorCode::io_error, "cannot sync directories of {}: {}", files_.root(),
                            errno_text(directory.ok() ? errno : directory.error()));
    };
    for (const std::uint8_t number : numbers) sync(member->directory().subdirectory(number));
    sync(member->directory().directory());
    for (const std::size_t i : unsynced_) {
      if (synced) {
        batch_.done(i);
      } else {
        failed(i, synced);
      }
    }
    unsynced_.clear();
  }

 private:
  void failed(std::size_t i, const Status& why) { batch_.failed(i, why.error().message); }

  /// A temporary file with room for the page. Where the disk is full all the same, or a quota or
  /// the inodes are used up, once more after some old pages have gone.
  Status open(PageTransfer& transfer) {
    const StorePage& page = batch_.page(transfer.page);
    const int flags = mode_.open_flags() | (sync_ ? O_DSYNC : 0);
    Result<PageWrite> write = files_.begin_write(page.key, page.size_bytes(), flags);
    if (write) {
      transfer.write = std::move(*write);
      Status room = transfer.write.is_reused ? Status() : allocate(transfer.write, page);
      if (room) return room;
      files_.abandon(transfer.write);
      write = room.error();
    }
    if (write.error().code != ErrorCode::out_of_capacity || transfer.retried) return write.error();
    return reopen(transfer);
  }

  /// In one go, so that the write need not extend the file: kernels do that one at a time, and wait
  /// for it. Where it is not to be had the write does it; and of small pages, where it costs 10 µs
  /// and as much again when the blocks are marked as written, and kernel threads do the extending
  /// on another core: 64 KiB pages were at 0.25 of fio with it and at 0.6 to 0.7 without.
  Status allocate(const PageWrite& write, const StorePage& page) {
    const std::uint64_t size_bytes = file_bytes(page.size_bytes());
    if (mode_.uring && page.size_bytes() < kSmallPageBytes) return {};
    if (::fallocate(write.file.get(), 0, 0, static_cast<off_t>(size_bytes)) == 0 || !is_full(errno))
      return {};
    return make_error(ErrorCode::out_of_capacity, "no room for {} bytes in {}: {}", size_bytes,
                      files_.root(), errno_text(errno));
  }

  Status reopen(PageTransfer& transfer) {
    transfer.retried = true;
    const std::uint64_t page_bytes = batch_.page(transfer.page).size_bytes();
    if (Status room = files_.make_more_room(page_bytes); !room) return room;
    return open(transfer);
  }

  void give_up(PageTransfer& transfer, const Status& why) {
    files_.abandon(transfer.write);
    failed(transfer.page, why);
    lane_.give_back(transfer);
  }

  PageFiles& files_;
  const IoMode& mode_;
  const bool sync_;
  StoreBatch& batch_;
  Lane& lane_;
  std::vector<std::size_t> unsynced_;  // renamed, but not reported yet
};

}  // namespace

void FileStore::put(StoreBatch& batch) {
  files_->keep_up();
  run_batch(lanes_, batch, [&](Lane& lane, const auto& run) {
    Writer writer(*files_, lanes_.mode(), sync_, batch, lane);
    run([&](std::size_t i) { writer.start(i); },
        [&](const Lane::Done& done) { writer.finish(done); });
    writer.sync_directories();
  });
}

}  // namespace pando
