// SPDX-License-Identifier: Apache-2.0
// The calls of BlockCache on the tiers below the device.
#include <utility>

#include "base/check.h"
#include "blocks/block_cache_impl.h"
#include "store/open_storage.h"

namespace pando {

// Nothing computed behind a load was cached while it was under way, so a failure is the request's
// alone.
void BlockCache::Impl::load_ended(std::uint64_t load, bool arrived) {
  const auto at = loads.find(load);
  Request* r = at->second;
  loads.erase(at);
  if (r == nullptr) return;
  --r->num_loads;
  if (!arrived) r->broken = true;
  settle(*r);
}

PollResult BlockCache::quiet_poll() {
  PollResult result;
  if (impl_->host) impl_->host->poll(result);
  if (impl_->storage) impl_->storage->poll(result);
  result.idle =
      (!impl_->host || impl_->host->idle()) && (!impl_->storage || impl_->storage->idle());
  return result;
}

Result<std::string> BlockCache::attach_storage(const StorageOptions& options) {
  if (!impl_->host)
    return make_error(ErrorCode::unavailable,
                      "attach_storage: this cache has no host tier, which a store stands behind");
  if (!impl_->hasher.is_shareable())
    return make_error(ErrorCode::unavailable,
                      "attach_storage: hashes of the function {} are not safe to share; expected "
                      "sha256_cbor or sglang",
                      to_string(impl_->hasher.function()));
  const Result<StoragePolicies> policies = parse_storage_policies(options);
  if (!policies) return policies.error();
  if (impl_->storage && impl_->storage->backend() != options.backend)
    return make_error(ErrorCode::in_use,
                      "attach_storage: the store \"{}\" is attached; detach it before attaching "
                      "\"{}\"",
                      impl_->storage->backend(), options.backend);
  const bool is_new = !impl_->storage;
  if (is_new) {
    Result<OpenedStorage> opened = open_storage(options);
    if (!opened) return opened.error();
    impl_->storage = std::make_unique<BlockStore>(impl_->options.groups, *impl_->pool, *impl_->host,
                                                  std::move(*opened));
    if (impl_->events)
      impl_->storage->on_fetched = [i = impl_.get()](const BlockKeys& keys, std::uint32_t group,
                                                     std::size_t block) {
        const std::size_t size = i->options.groups[group].block_size;
        const Impl::Origin origin{
            std::make_shared<const std::string>(keys.ns), keys.parent(size, block), {}};
        i->record_stored(Medium::host, keys.content(group, size, block), origin);
      };
  }
  if (policies->prefetch) impl_->storage->set_prefetch_policy(*policies->prefetch);
  if (policies->write) impl_->host->set_write_policy(*policies->write);
  return fmt::format("the store \"{}\" is attached{}", options.backend,
                     is_new ? "" : " already; policies updated");
}

Result<std::string> BlockCache::detach_storage() {
  if (!impl_->storage) return std::string("no store is attached");
  const std::string name = impl_->storage->backend();
  quiet_poll();  // what has finished is acknowledged
  impl_->storage.reset();
  return fmt::format("the store \"{}\" is detached", name);
}

Status BlockCache::clear_storage() {
  if (!impl_->storage)
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  Result<StoreCall> call = impl_->storage->store().clear();
  return call ? call->wait() : Status{call.error()};
}

bool BlockCache::has_storage() const { return impl_->storage != nullptr; }

StoreStats BlockCache::storage_stats() const {
  return impl_->storage ? impl_->storage->store().stats() : StoreStats{};
}

Result<Prefetch> BlockCache::quiet_prefetch(const BlockRequest& request) {
  if (!impl_->storage) return Prefetch{};
  const BlockRequest::Impl& r = own(request);
  return impl_->storage->prefetch(impl_->keys_of(r), Impl::limit_of(r));
}

bool BlockCache::prefetch_ready(PrefetchId id) const {
  return !impl_->storage || impl_->storage->is_ready(id);
}

std::size_t BlockCache::quiet_end_prefetch(PrefetchId id) {
  return impl_->storage ? impl_->storage->end(id) : 0;
}

TierStats BlockCache::tier_stats() const { return impl_->host ? impl_->host->stats : TierStats{}; }

}  // namespace pando
