// SPDX-License-Identifier: Apache-2.0
// The calls of BlockCache on the tiers below the device.
#include <cmath>
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
  const Result<StoragePolicies> policies = parse_storage_policies(options);
  const bool is_new = !has_storage();
  if (!is_new && impl_->store()->opened.backend != options.backend)
    return make_error(ErrorCode::in_use,
                      "attach_storage: the store \"{}\" is attached; detach it before attaching "
                      "\"{}\"",
                      impl_->store()->opened.backend, options.backend);
  if (is_new) {  // whatever is wrong here, the other ranks must learn of it
    Status attached = impl_->tiers->attach_store(
        policies.ok() ? open_storage(options) : Result<OpenedStorage>(policies.error()));
    if (!attached) return attached.error();
  }
  if (!policies) return policies.error();
  if (policies->prefetch) impl_->store()->opened.prefetch.policy = *policies->prefetch;
  if (policies->write) impl_->tiers->set_write_policy(*policies->write);
  return fmt::format("the store \"{}\" is attached{}", options.backend,
                     is_new ? "" : " already; policies updated");
}

Result<std::string> BlockCache::detach_storage() {
  if (!has_storage()) return std::string("no store is attached");
  const std::string name = impl_->store()->opened.backend;
  impl_->poll();  // what has finished is acknowledged
  impl_->tiers->engine.detach();
  return fmt::format("the store \"{}\" is detached", name);
}

Status BlockCache::clear_storage() {
  if (!has_storage())
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  Result<StoreCall> call = impl_->store()->opened.store->clear();
  return call ? call->wait() : Status{call.error()};
}

bool BlockCache::has_storage() const { return impl_->store() != nullptr; }

StoreStats BlockCache::storage_stats() const {
  return has_storage() ? impl_->store()->opened.store->stats() : StoreStats{};
}

Result<Prefetch> BlockCache::Impl::prefetch(const Request& r) {
  if (store() == nullptr) return Prefetch{};
  return tiers->prefetch(keys_of(r), limit_of(r));
}

bool BlockCache::prefetch_ready(PrefetchId id) const {
  return !has_storage() || impl_->store()->fetches.is_ready(id);
}

std::size_t BlockCache::Impl::end_prefetch(PrefetchId id, bool keep) {
  return store() != nullptr ? store()->fetches.end(id, keep).pages : 0;
}

std::size_t BlockCache::evict_host(std::size_t num_tokens, std::size_t group) {
  if (!impl_->tiers || group >= impl_->options.groups.size()) return 0;
  return impl_->tiers->evict(static_cast<std::uint32_t>(group), num_tokens);
}

UnderWay BlockCache::under_way() const {
  return impl_->tiers ? impl_->tiers->engine.under_way() : UnderWay{};
}

Status BlockCache::report_prefill(std::size_t num_tokens, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0)
    return make_error(ErrorCode::invalid_argument,
                      "report_prefill: {} tokens in {} s; expected a time above 0", num_tokens,
                      seconds);
  if (impl_->tiers)
    impl_->tiers->engine.gate.prefilled_tokens.add(static_cast<double>(num_tokens), seconds);
  return {};
}

TierStats BlockCache::tier_stats() const {
  return impl_->tiers ? impl_->tiers->engine.tier_stats() : TierStats{};
}

}  // namespace pando
