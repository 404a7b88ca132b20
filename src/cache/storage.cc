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
    if (policies->prefetch) impl_->storage->set_prefetch_policy(*policies->prefetch);
    if (policies->write) impl_->set_write_policy(*policies->write);
  };
  if (impl_->storage) {
    if (!policies) return policies.error();
    const std::string& current = impl_->storage->backend();
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
  std::size_t max_tokens = default_prefetch_tokens(impl_->tier->pools(ComponentKind::full));
  if (opened.ok()) max_tokens = opened->prefetch.max_tokens.value_or(max_tokens);
  std::int64_t values[] = {opened.ok(), static_cast<std::int64_t>(max_tokens)};
  impl_->ranks.least(values);
  if (!opened) return opened.error();
  if (values[0] == 0)
    return make_error(ErrorCode::unavailable, "attach_storage: another rank could not open \"{}\"",
                      options.backend);
  impl_->storage = std::make_unique<StorageTier>(*impl_, *impl_->tier, std::move(*opened),
                                                 static_cast<std::size_t>(values[1]));
  set_policies();
  return fmt::format("the store \"{}\" is attached", options.backend);
}

Result<std::string> PrefixCache::detach_storage() {
  if (!impl_->storage) return std::string("no store is attached");
  const std::string name = impl_->storage->backend();
  quiet_poll();  // what has finished is acknowledged
  impl_->storage.reset();
  impl_->give_back();
  impl_->ledger.flush();
  return fmt::format("the store \"{}\" is detached", name);
}

Status PrefixCache::clear_storage() {
  if (!impl_->storage)
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  Result<StoreCall> call = impl_->storage->store().clear();
  return call ? call->wait() : Status{call.error()};
}

bool PrefixCache::has_storage() const { return impl_->storage != nullptr; }

StoreStats PrefixCache::storage_stats() const {
  return impl_->storage ? impl_->storage->store().stats() : StoreStats{};
}

Result<Prefetch> PrefixCache::quiet_prefetch(const Key& key) {
  if (!impl_->storage) return Prefetch{};
  return impl_->storage->prefetch(key);
}

bool PrefixCache::prefetch_ready(PrefetchId id) const {
  return !impl_->storage || impl_->storage->is_ready(id);
}

}  // namespace pando
