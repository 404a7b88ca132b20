// SPDX-License-Identifier: Apache-2.0
// The Redis backend: one server or a cluster, shared by as many machines as like. Each call runs on
// the thread that makes it, over connections of its own (call.h); this file only joins the parts.
// Nothing is connected before the first call, so that a store can be opened while its servers are
// away. Any thread.
#include <atomic>
#include <memory>

#include "pando/store_backends.h"
#include "store/redis/call.h"
#include "store/redis/page_commands.h"
#include "store/redis/scan.h"
#include "store/redis/servers.h"

namespace pando {
namespace {

class RedisStore final : public StoreBackend {
 public:
  explicit RedisStore(const RedisStoreOptions& options)
      : options_(options), servers_(options_), commands_(options.key_prefix, options.ttl) {}

  std::string_view name() const override { return "redis"; }

  void exists(StoreBatch& batch) override { run(batch); }
  void get(StoreBatch& batch) override { run(batch); }
  void put(StoreBatch& batch) override { run(batch); }
  void remove(StoreBatch& batch) override { run(batch); }

  Status clear() override {
    return redis::clear_pages(servers_, options_.key_prefix, {nullptr, options_.io_timeout});
  }
  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    return redis::list_pages(servers_, options_.key_prefix, {nullptr, options_.io_timeout}, visit);
  }

  /// Pages and bytes stay 0: servers do not count by prefix, and other keys may be beside ours.
  BackendStats stats() const override {
    BackendStats stats;
    stats.damaged_pages = damaged_.load(std::memory_order_relaxed);
    stats.reconnects = servers_.reconnects();
    return stats;
  }

 private:
  void run(StoreBatch& batch) {
    redis::Call call(options_, servers_, commands_, batch);
    call.run();
    damaged_.fetch_add(call.num_damaged(), std::memory_order_relaxed);
  }

  const RedisStoreOptions options_;
  redis::Servers servers_;
  redis::PageCommands commands_;
  std::atomic<std::uint64_t> damaged_ = 0;
};

}  // namespace

Result<std::unique_ptr<StoreBackend>> make_redis_store(const RedisStoreOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  for (const std::string& server : options.servers) {
    if (Result<redis::Address> address = redis::parse_address(server); !address)
      return address.error();
  }
  return std::unique_ptr<StoreBackend>(std::make_unique<RedisStore>(options));
}

}  // namespace pando
