// SPDX-License-Identifier: Apache-2.0
// FileStore::get. A page is opened, read in one request with its header, and checked while others
// are on their way. What is not as it was written is set aside. What cannot be read is no page
// until somebody puts it again, or it can.
#include "base/check.h"
#include "store/file/file_store.h"

namespace pando {
namespace {

class Reader {
 public:
  Reader(PageFiles& files, const IoMode& mode, StoreBatch& batch, Lane& lane)
      : files_(files), mode_(mode), batch_(batch), lane_(lane) {}

  void start(std::size_t i) {
    const StorePage& page = batch_.page(i);
    if (Status valid = check_key(page.key); !valid) return batch_.failed(i, valid.error().message);
    const auto found = files_.touch(page.key);
    // One of another size is not the page that is asked for, and may be another caller's.
    if (!found || found->size_bytes != page.size_bytes()) return batch_.missing(i);
    PageTransfer& transfer = lane_.take();
    transfer.page = i;
    transfer.restamp = found->restamp;
    if (open(transfer)) {
      lane_.submit_read(transfer);
    } else {
      close(transfer);
    }
  }

  void finish(const Lane::Done& done) {
    PageTransfer& transfer = done.transfer;
    check(transfer, done);
    if (transfer.restamp) files_.stamp(transfer.read.file);
    close(transfer);
  }

 private:
  bool open(PageTransfer& transfer) {
    const StorePage& page = batch_.page(transfer.page);
    transfer.read = files_.open_page(page.key, mode_.open_flags());
    if (!transfer.read.file.ok()) {
      const int why = transfer.read.file.error();
      // Evicted just now, or changed behind our back. A put then goes over whatever is there.
      if (!is_shortage(why)) files_.forget_unopened(page.key);
      if (why == ENOENT || why == ENOTDIR || is_no_file(why)) {
        batch_.missing(transfer.page);
      } else {
        batch_.failed(transfer.page,
                      fmt::format("cannot open {}: {}", files_.path_of(page.key), errno_text(why)));
      }
      return false;
    }
    const Status aimed = transfer.aim(page, mode_);
    if (!aimed) batch_.failed(transfer.page, aimed.error().message);
    return aimed.ok();
  }

  void close(PageTransfer& transfer) {
    if (transfer.read.file.ok()) files_.done_reading(transfer.read, batch_.page(transfer.page).key);
    lane_.give_back(transfer);
  }

  void check(PageTransfer& transfer, const Lane::Done& done) {
    const std::size_t i = transfer.page;
    const StorePage& page = batch_.page(i);
    if (done.error != 0 && !is_shortage(done.error))
      files_.forget_unread(page.key, transfer.read.file);
    if (done.error != 0)
      return batch_.failed(
          i, fmt::format("cannot read {}: {}", files_.path_of(page.key), errno_text(done.error)));
    const Result<PageHeader> header = decode(transfer.header());
    const bool is_whole =
        done.size_bytes == file_bytes(page.size_bytes()) && header.ok() && header->key == page.key;
    if (is_whole) transfer.scatter(page);
    if (is_whole && batch_.arrived(i, header->tag)) return;
    files_.set_aside_damaged(page.key, transfer.read.file);
    if (!is_whole) batch_.damaged(i);
  }

  PageFiles& files_;
  const IoMode& mode_;
  StoreBatch& batch_;
  Lane& lane_;
};

}  // namespace

void FileStore::get(StoreBatch& batch) {
  files_->keep_up();
  run_batch(lanes_, batch, [&](Lane& lane, const auto& run) {
    Reader reader(*files_, lanes_.mode(), batch, lane);
    run([&](std::size_t i) { reader.start(i); },
        [&](const Lane::Done& done) { reader.finish(done); });
  });
}

}  // namespace pando
