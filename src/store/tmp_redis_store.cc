// SPDX-License-Identifier: Apache-2.0
// Stands in for the redis store until it is there.
#include "base/check.h"
#include "pando/store_backends.h"

namespace pando {

Result<std::unique_ptr<StoreBackend>> make_redis_store(const RedisStoreOptions& /*options*/) {
  return make_error(ErrorCode::unavailable, "this build has no redis store");
}

}  // namespace pando
