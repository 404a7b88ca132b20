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
  cache_computed(*r);
}

PollResult BlockCache::Impl::poll() {
  PollResult result;
  if (!tiers || tiers->engine.idle()) return result;
  std::vector<std::int64_t>& values = poll_values;
  values.clear();
  tiers->engine.report(values);
  ranks.least(values);
  tiers->engine.apply(values, result);
  result.ranks_lost = ranks.lost();
  return result;
}

Result<std::string> BlockCache::attach_storage(const StorageOptions& options) {
  if (!impl_->tiers)
    return make_error(ErrorCode::unavailable,
                      "attach_storage: this cache has no host tier, which a store stands behind");
  if (!impl_->hasher.is_shareable())
    return make_error(ErrorCode::unavailable,
                      "attach_storage: hashes of the function {} are not safe to share; expected "
                      "sha256_cbor or sglang",
                      to_string(impl_->hasher.function()));
  return impl_->tiers->engine.attach(
      options, impl_->tiers->default_fetch_tokens(),
      [this](WritePolicy policy) { impl_->tiers->set_write_policy(policy); });
}

Result<std::string> BlockCache::detach_storage() {
  if (!has_storage()) return std::string("no store is attached");
  impl_->poll();  // what has finished is acknowledged
  return impl_->tiers->engine.detach();
}

Status BlockCache::clear_storage() {
  if (!impl_->tiers)
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  return impl_->tiers->engine.clear_store();
}

bool BlockCache::has_storage() const { return impl_->store() != nullptr; }

StoreStats BlockCache::storage_stats() const {
  return impl_->tiers ? impl_->tiers->engine.store_stats() : StoreStats{};
}

Result<Prefetch> BlockCache::Impl::prefetch(const Request& r) {
  if (store() == nullptr) return Prefetch{};
  return tiers->prefetch(keys_of(r), limit_of(r));
}

bool BlockCache::prefetch_ready(PrefetchId id) const {
  return !impl_->tiers || impl_->tiers->engine.is_ready(id);
}

std::size_t BlockCache::Impl::end_prefetch(PrefetchId id, bool keep) {
  return tiers ? tiers->engine.end_fetch(id, keep) : 0;
}

std::size_t BlockCache::evict_host(std::size_t num_tokens, std::size_t group) {
  if (!impl_->tiers || group >= impl_->options.groups.size()) return 0;
  return impl_->tiers->evict(static_cast<std::uint32_t>(group), num_tokens);
}

UnderWay BlockCache::under_way() const {
  return impl_->tiers ? impl_->tiers->engine.under_way() : UnderWay{};
}

Status BlockCache::report_prefill(std::size_t num_tokens, double seconds) {
  if (Status s = check_prefill(num_tokens, seconds); !s) return s;
  if (impl_->tiers) impl_->tiers->engine.add_prefill(num_tokens, seconds);
  return {};
}

TierStats BlockCache::tier_stats() const {
  return impl_->tiers ? impl_->tiers->engine.tier_stats() : TierStats{};
}

}  // namespace pando
