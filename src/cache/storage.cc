// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on a store: attach, detach, clear, prefetch. Attaching validates
// everything first and changes something last.
#include "base/check.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"
#include "store/open_storage.h"

namespace pando {

Result<std::string> PrefixCache::attach_storage(const StorageOptions& options) {
  if (!impl_->tier)
    return make_error(ErrorCode::unavailable,
                      "attach_storage: this cache has no host tier, which a store stands behind");
  const Result<StoragePolicies> policies = parse_storage_policies(options);
  const auto set_policies = [&] {
    if (policies->prefetch) impl_->store()->opened.prefetch.policy = *policies->prefetch;
    if (policies->write) impl_->set_write_policy(*policies->write);
  };
  if (impl_->store() != nullptr) {
    if (!policies) return policies.error();
    const std::string& current = impl_->store()->opened.backend;
    if (current != options.backend)
      return make_error(ErrorCode::in_use,
                        "attach_storage: the store \"{}\" is attached; detach it before attaching "
                        "\"{}\"",
                        current, options.backend);
    set_policies();
    return fmt::format("the store \"{}\" is attached already; policies updated", current);
  }
  // Whatever is wrong here, the other ranks must learn of it.
  Result<OpenedStorage> opened =
      policies.ok() ? open_storage(options) : Result<OpenedStorage>(policies.error());
  if (Status s = impl_->tier->attach_store(std::move(opened)); !s) return s.error();
  set_policies();
  return fmt::format("the store \"{}\" is attached", options.backend);
}

Result<std::string> PrefixCache::detach_storage() {
  if (!has_storage()) return std::string("no store is attached");
  const std::string name = impl_->store()->opened.backend;
  impl_->poll();  // what has finished is acknowledged
  impl_->tier->detach_store();
  impl_->give_back();
  impl_->ledger.flush();
  return fmt::format("the store \"{}\" is detached", name);
}

Status PrefixCache::clear_storage() {
  if (!has_storage())
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  Result<StoreCall> call = impl_->store()->opened.store->clear();
  return call ? call->wait() : Status{call.error()};
}

bool PrefixCache::has_storage() const { return impl_->store() != nullptr; }

StoreStats PrefixCache::storage_stats() const {
  return has_storage() ? impl_->store()->opened.store->stats() : StoreStats{};
}

Result<Prefetch> PrefixCache::Impl::prefetch(const Key& key) {
  if (store() == nullptr) return Prefetch{};
  return tier->prefetch(key);
}

bool PrefixCache::prefetch_ready(PrefetchId id) const {
  return !has_storage() || impl_->store()->fetches.is_ready(id);
}

}  // namespace pando
