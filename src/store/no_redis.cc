// SPDX-License-Identifier: Apache-2.0
// What a build without hiredis says when asked for the Redis backend. Takes the place of redis/.
#include "base/check.h"
#include "pando/store_backends.h"
#include "store/store_reader.h"

namespace pando {

Result<std::unique_ptr<StoreBackend>> make_redis_store(const RedisStoreOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  return make_error(ErrorCode::unavailable,
                    "make_redis_store: this build has no hiredis; expected one made with "
                    "PANDO_REDIS=ON");
}

Result<std::unique_ptr<StoreReader>> open_redis_reader(const RedisStoreOptions& options) {
  return make_redis_store(options).error();
}

}  // namespace pando
