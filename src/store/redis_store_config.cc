// SPDX-License-Identifier: Apache-2.0
// "redis" by name: its options are the fields of RedisStoreOptions, durations in seconds.
#include "pando/store_backends.h"
#include "store/option_reader.h"
#include "store/registry.h"

namespace pando {

Result<std::unique_ptr<StoreBackend>> make_redis_store_from(const Config& config) {
  RedisStoreOptions options;
  std::uint64_t pipeline_bytes = options.pipeline_bytes;
  OptionReader reader(config, "redis store");
  reader.read("servers", options.servers);
  reader.read("cluster", options.cluster);
  reader.read("username", options.username);
  reader.read("password", options.password);
  reader.read("key_prefix", options.key_prefix);
  reader.read("ttl", options.ttl);
  reader.read("connect_timeout", options.connect_timeout);
  reader.read("io_timeout", options.io_timeout);
  reader.read("min_backoff", options.min_backoff);
  reader.read("max_backoff", options.max_backoff);
  reader.read_bytes("pipeline_bytes", pipeline_bytes);
  if (Status valid = reader.finish(); !valid) return valid.error();
  options.pipeline_bytes = pipeline_bytes;
  return make_redis_store(options);
}

}  // namespace pando
