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

Status BlockCache::Impl::refuse_store() const {
  if (hasher.is_shareable()) return {};
  return make_error(ErrorCode::unavailable,
                    "attach_storage: hashes of the function {} are not safe to share; expected "
                    "sha256_cbor or sglang",
                    to_string(hasher.function()));
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

std::size_t BlockCache::Impl::evict_host(std::size_t num_tokens, std::size_t group) {
  if (!tiers || group >= options.groups.size()) return 0;
  return tiers->evict(static_cast<std::uint32_t>(group), num_tokens);
}

Tiers& BlockCache::tiers() { return impl_->door; }
const Tiers& BlockCache::tiers() const { return impl_->door; }

}  // namespace pando
