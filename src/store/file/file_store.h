// SPDX-License-Identifier: Apache-2.0
// The file backend: one directory, one file per page. This is where the calls arrive; PageFiles
// knows which pages there are, Lane moves their bytes. Reading and writing have a file of their
// own each. Calls may come from any thread; each works on the thread it came from, and writes of
// many small pages on a second one.
#pragma once

#include <memory>
#include <string_view>

#include "pando/store.h"
#include "pando/store_backends.h"
#include "store/file/lane.h"
#include "store/file/page_files.h"

namespace pando {

class FileStore final : public StoreBackend {
 public:
  FileStore(std::unique_ptr<PageFiles> files, const IoMode& mode, bool sync)
      : files_(std::move(files)), lanes_(mode), sync_(sync) {}

  std::string_view name() const override { return "file"; }
  void exists(StoreBatch& batch) override;
  void get(StoreBatch& batch) override;
  void put(StoreBatch& batch) override;
  void remove(StoreBatch& batch) override;
  Status clear() override;
  Status list(const std::function<bool(const StoredPage&)>& visit) override;
  BackendStats stats() const override;

  const IoMode& mode() const { return lanes_.mode(); }
  PageFiles& files() const { return *files_; }

 private:
  std::unique_ptr<PageFiles> files_;
  LanePool lanes_;
  const bool sync_;
};

}  // namespace pando
