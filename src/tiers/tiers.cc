// SPDX-License-Identifier: Apache-2.0
// The calls of Tiers: each asks the cache for its engine, and the engine does it.
#include "pando/tiers.h"

#include "base/check.h"
#include "cache/observed.h"
#include "tiers/tier_engine.h"
#include "tiers/tier_owner.h"

namespace pando {

Result<std::string> Tiers::attach_storage(const StorageOptions& options) {
  TierEngine* const engine = owner_.tier_engine();
  if (engine == nullptr)
    return make_error(ErrorCode::unavailable,
                      "attach_storage: this cache has no host tier, which a store stands behind");
  if (Status s = owner_.refuse_store(); !s) return s.error();
  return engine->attach(options, owner_.default_fetch_tokens(),
                        [this](WritePolicy policy) { owner_.set_write_policy(policy); });
}

Result<std::string> Tiers::detach_storage() {
  if (!has_storage()) return std::string("no store is attached");
  owner_.poll();  // what has finished is acknowledged
  const std::string told = owner_.tier_engine()->detach();
  owner_.store_left();
  return told;
}

Status Tiers::clear_storage() {
  TierEngine* const engine = owner_.tier_engine();
  if (engine == nullptr)
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  return engine->clear_store();
}

bool Tiers::has_storage() const {
  const TierEngine* const engine = owner_.tier_engine();
  return engine != nullptr && engine->store() != nullptr;
}

StoreStats Tiers::storage_stats() const {
  const TierEngine* const engine = owner_.tier_engine();
  return engine != nullptr ? engine->store_stats() : StoreStats{};
}

std::size_t Tiers::evict_host(std::size_t num_tokens, std::size_t group) {
  return observed(owner_.tier_observer(), CacheCall::evict_host,
                  [&] { return owner_.evict_host(num_tokens, group); });
}

Status Tiers::report_prefill(std::size_t num_tokens, double seconds, std::size_t cached_tokens) {
  if (Status s = check_prefill(num_tokens, seconds); !s) return s;
  if (TierEngine* const engine = owner_.tier_engine()) engine->add_prefill(num_tokens, seconds);
  if (num_tokens > 0) owner_.prefilled(num_tokens, seconds, cached_tokens);
  return {};
}

TierStats Tiers::stats() const {
  const TierEngine* const engine = owner_.tier_engine();
  return engine != nullptr ? engine->tier_stats() : TierStats{};
}

UnderWay Tiers::under_way() const {
  const TierEngine* const engine = owner_.tier_engine();
  return engine != nullptr ? engine->under_way() : UnderWay{};
}

}  // namespace pando
