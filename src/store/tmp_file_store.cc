// SPDX-License-Identifier: Apache-2.0
// Stands in for the file store until it is there.
#include "base/check.h"
#include "pando/store_backends.h"

namespace pando {

Result<std::unique_ptr<StoreBackend>> make_file_store(const FileStoreOptions& /*options*/) {
  return make_error(ErrorCode::unavailable, "this build has no file store");
}

}  // namespace pando
