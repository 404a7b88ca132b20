// SPDX-License-Identifier: Apache-2.0
// "file" by name: its options are the fields of FileStoreOptions.
#include "pando/store_backends.h"
#include "store/option_reader.h"
#include "store/registry.h"

namespace pando {

Result<std::unique_ptr<StoreBackend>> make_file_store_from(const Config& config) {
  FileStoreOptions options;
  OptionReader reader(config, "file store");
  reader.read("directory", options.directory);
  reader.read_bytes("capacity_bytes", options.capacity_bytes);
  reader.read_bytes("min_free_bytes", options.min_free_bytes);
  reader.read("direct", options.direct);
  reader.read("io_uring", options.io_uring);
  reader.read("sync", options.sync);
  reader.read_count("depth", options.depth);
  if (Status valid = reader.finish(); !valid) return valid.error();
  return make_file_store(options);
}

}  // namespace pando
