// SPDX-License-Identifier: Apache-2.0
// Opening a file store, and the calls that move no pages.
#include "store/file/file_store.h"

#include "base/check.h"

namespace pando {
namespace {

constexpr std::size_t kMaxDepth = 1024;

IoMode find_mode(const FileStoreOptions& options, PageFiles& files) {
  IoMode mode{.depth = options.depth};
  mode.uring = options.io_uring && make_uring_io(1) != nullptr;
  if (options.direct)
    mode.direct_alignment = StoreDirectory::probe_direct(files.member()->temporaries(),
                                                         files.member()->new_temporary());
  return mode;
}

}  // namespace

Status FileStoreOptions::validate() const {
  if (directory.empty())
    return make_error(ErrorCode::invalid_argument, "the file store has no directory");
  if (capacity_bytes < 2 * kBlockBytes)
    return make_error(ErrorCode::invalid_argument,
                      "the file store in {} has a capacity of {} bytes; expected at least {}",
                      directory, capacity_bytes, 2 * kBlockBytes);
  if (depth == 0 || depth > kMaxDepth)
    return make_error(ErrorCode::invalid_argument,
                      "the file store in {} has a depth of {}; expected 1 to {}", directory, depth,
                      kMaxDepth);
  return {};
}

Result<std::unique_ptr<StoreBackend>> make_file_store(const FileStoreOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  Result<std::unique_ptr<PageFiles>> files = PageFiles::open(options);
  if (!files) return files.error();
  const IoMode mode = find_mode(options, **files);
  return std::unique_ptr<StoreBackend>(
      std::make_unique<FileStore>(std::move(*files), mode, options.sync));
}

void FileStore::exists(StoreBatch& batch) {
  files_->keep_up();
  for (std::size_t i = 0; i < batch.size() && !batch.stopped(); ++i) {
    const std::string& key = batch.page(i).key;
    if (const Status valid = check_key(key); !valid) {
      batch.failed(i, valid.error().message);
    } else if (files_->contains(key)) {
      batch.done(i);
    } else {
      batch.missing(i);
    }
  }
}

void FileStore::remove(StoreBatch& batch) {
  for (std::size_t i = 0; i < batch.size() && !batch.stopped(); ++i) {
    const std::string& key = batch.page(i).key;
    Status removed = check_key(key);
    if (removed) removed = files_->remove(key);
    if (removed) {
      batch.done(i);
    } else {
      batch.failed(i, removed.error().message);
    }
  }
}

Status FileStore::clear() {
  // Pages that are put meanwhile may stay.
  std::size_t cursor = 0;
  for (auto pages = files_->list_some(cursor); !pages.empty(); pages = files_->list_some(cursor))
    for (const StoredPage& page : pages)
      if (Status removed = files_->remove(page.key); !removed) return removed;
  return {};
}

Status FileStore::list(const std::function<bool(const StoredPage&)>& visit) {
  std::size_t cursor = 0;
  for (auto pages = files_->list_some(cursor); !pages.empty(); pages = files_->list_some(cursor))
    for (const StoredPage& page : pages)
      if (!visit(page)) return {};
  return {};
}

BackendStats FileStore::stats() const {
  BackendStats stats;
  files_->add_stats(stats);
  return stats;
}

}  // namespace pando
