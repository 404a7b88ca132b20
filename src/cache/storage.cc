// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on a store: attach, detach, clear, prefetch.
#include "base/check.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"
#include "store/open_storage.h"

namespace pando {

Result<std::string> PrefixCache::attach_storage(const StorageOptions& options) {
  if (!impl_->tier)
    return make_error(ErrorCode::unavailable,
                      "attach_storage: this cache has no host tier, which a store stands behind");
  return impl_->tier->engine.attach(
      options, default_prefetch_tokens(impl_->tier->pools(ComponentKind::full)),
      [this](WritePolicy policy) { impl_->set_write_policy(policy); });
}

Result<std::string> PrefixCache::detach_storage() {
  if (!has_storage()) return std::string("no store is attached");
  impl_->poll();  // what has finished is acknowledged
  const std::string told = impl_->tier->engine.detach();
  impl_->give_back();
  impl_->ledger.flush();
  return told;
}

Status PrefixCache::clear_storage() {
  if (!impl_->tier)
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  return impl_->tier->engine.clear_store();
}

bool PrefixCache::has_storage() const { return impl_->store() != nullptr; }

StoreStats PrefixCache::storage_stats() const {
  return impl_->tier ? impl_->tier->engine.store_stats() : StoreStats{};
}

Result<Prefetch> PrefixCache::Impl::prefetch(const Key& key) {
  if (store() == nullptr) return Prefetch{};
  return tier->prefetch(key);
}

bool PrefixCache::prefetch_ready(PrefetchId id) const {
  return !impl_->tier || impl_->tier->engine.is_ready(id);
}

}  // namespace pando
