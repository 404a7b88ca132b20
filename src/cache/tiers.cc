// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on tiers: load_back, poll, evict_host; and what may be asked for at all.
#include "pando/tiers.h"

#include <cmath>

#include "base/check.h"
#include "base/named.h"
#include "cache/observed.h"
#include "cache/prefix_cache_impl.h"
#include "copy/tier_pools.h"
#include "pando/cache.h"
#include "pando/observer.h"

namespace pando {
namespace {

constexpr Named<WritePolicy> kWritePolicies[] = {
    {WritePolicy::write_through, "write_through"},
    {WritePolicy::write_through_selective, "write_through_selective"},
    {WritePolicy::write_back, "write_back"},
};

Status validate_pools(const TierPools& pools, bool wanted, const char* name, std::size_t page_size,
                      std::size_t num_pages) {
  if (!wanted && (pools.device != nullptr || pools.host != nullptr))
    return make_error(ErrorCode::invalid_argument,
                      "host tier: there are {} pools, but this cache has no such component", name);
  if (!wanted) return {};
  return validate_tier_pools(pools, name, page_size, num_pages);
}

}  // namespace

std::string_view to_string(WritePolicy policy) { return name_of(kWritePolicies, policy); }

Result<WritePolicy> parse_write_policy(std::string_view name) {
  if (const auto known = value_of(kWritePolicies, name)) return *known;
  return make_error(ErrorCode::invalid_argument,
                    "write policy \"{}\": expected write_through, write_through_selective or "
                    "write_back",
                    name);
}

std::string_view to_string(LoadOutcome outcome) {
  switch (outcome) {
    case LoadOutcome::loaded:
      return "loaded";
    case LoadOutcome::nothing_to_load:
      return "nothing to load";
    case LoadOutcome::below_threshold:
      return "below threshold";
    case LoadOutcome::over_quota:
      return "over quota";
    case LoadOutcome::recompute:
      return "recompute";
    case LoadOutcome::no_room:
      return "no room";
  }
  return "unknown";
}

Status CostGateOptions::validate() const {
  if (std::isfinite(max_ratio) && max_ratio > 0) return {};
  return make_error(ErrorCode::invalid_argument, "cost_gate.max_ratio is {}; expected above 0",
                    max_ratio);
}

Status validate_host_tier(const CacheOptions& options, const SlotLedger& ledger,
                          const StateAllocator* states) {
  const HostTierOptions& host = *options.host;
  if (host.cost_gate) {
    if (Status s = host.cost_gate->validate(); !s) return s;
  }
  if (host.copier == nullptr)
    return make_error(ErrorCode::invalid_argument, "host tier: there is no copier");
  if (std::max(host.backup_stream, host.load_stream) >= host.copier->num_streams())
    return make_error(ErrorCode::invalid_argument,
                      "host tier: streams {} and {} of a copier that has {}", host.backup_stream,
                      host.load_stream, host.copier->num_streams());
  if (!ledger.can_load(options.window.has_value()))
    return make_error(ErrorCode::invalid_argument,
                      "host tier: EngineSlots needs alloc, and with a window alloc_window and "
                      "translate");
  if (Status s = validate_pools(host.full, true, "full", options.page_size, ledger.num_pages()); !s)
    return s;
  const std::size_t window_pages = ledger.window_allocator() == nullptr
                                       ? 0
                                       : ledger.window_allocator()->window().num_pages() + 1;
  if (Status s = validate_pools(host.window, options.window.has_value(), "window",
                                options.page_size, window_pages);
      !s)
    return s;
  return validate_pools(host.state, options.state.has_value(), "state", 1,
                        states == nullptr ? 0 : states->capacity() + 1);
}

void PrefixCache::Impl::set_write_policy(WritePolicy policy) {
  tier->set_write_policy(policy);
  index.evictor().save_to_host = nullptr;
  if (policy == WritePolicy::write_back)
    index.evictor().save_to_host = [this](NodeIndex node) { return tier->write_back(node); };
}

Result<LoadBack> PrefixCache::Impl::load_back(Lease& lease, std::span<SlotId> slots,
                                              const LoadBackOptions& given) {
  if (!lease.host_node_) return LoadBack{};
  if (lease.cache_ != self)
    return make_error(ErrorCode::stale_handle, "load_back: the lease is of another cache");
  const NodeIndex end = index.resolve(lease.host_node_);
  const NodeIndex device_end = index.resolve(lease.path_.node);
  const std::size_t from = device_end == kNoNode ? 0 : index.node(device_end).end_pages;
  const std::size_t to = index.node(end).end_pages;
  if (slots.size() < to * index.page_size())
    return make_error(ErrorCode::invalid_argument,
                      "load_back: room for {} slots; expected one for each of {} tokens",
                      slots.size(), to * index.page_size());
  if (index.node(end).cut_off) return LoadBack{};
  const Result<LoadOutcome> outcome = tier->load(end, from, given);
  if (outcome.ok() && *outcome == LoadOutcome::loaded) {
    copy_tree_slots(end, from, to, slots);
    const Lease::Hold held = hold_path(end);
    if (lease.path_.node) release_hold(lease.path_);
    lease.path_ = held;
    release_host(lease.host_node_);
  }
  give_back();
  ledger.flush();
  if (!outcome.ok()) return outcome.error();
  const bool loaded = *outcome == LoadOutcome::loaded;
  return LoadBack{*outcome, loaded ? (to - from) * index.page_size() : 0};
}

PollResult PrefixCache::Impl::poll() {
  const bool moving = tier && !tier->engine.idle();
  const bool timed = waits_for_time();
  if (!moving && !timed && closing.empty()) [[likely]]
    return {};
  std::vector<std::int64_t>& values = poll_values;
  values.clear();
  if (moving) tier->engine.report(values);
  const std::size_t of_tiers = values.size();
  if (timed) values.push_back(clock());
  ranks.least(values);
  PollResult result;
  if (timed) pass_time(values[of_tiers]);
  if (moving) {
    tier->engine.apply({values.data(), of_tiers}, result);
    if (result.failures > 0) drop_broken_pins();
    loosen_soft_pins();
  }
  release_closed();
  result.ranks_lost = ranks.lost();
  give_back();
  ledger.flush();
  if (observer != nullptr && moving) observer->on_poll(result);
  return result;
}

PollResult PrefixCache::poll() {
  return observed(impl_->observer, CacheCall::poll, [&] { return impl_->poll(); });
}

EvictResult PrefixCache::Impl::evict_host(std::size_t num_tokens) {
  if (!tier) return {};
  const std::size_t page_size = index.page_size();
  const CauseScope cause(*this, Pressure::evict_call, num_tokens);
  const Evicted evicted = tier->evict({.pages = pages_for(num_tokens, page_size)});
  ledger.flush();
  return {.tokens = evicted.host_pages * page_size,
          .window_tokens = evicted.host_window_pages * page_size,
          .snapshots = evicted.host_snapshots,
          .nodes = evicted.nodes};
}

UnderWay PrefixCache::under_way() const {
  return impl_->tier ? impl_->tier->engine.under_way() : UnderWay{};
}

Sizes PrefixCache::host_sizes(ComponentKind kind) const {
  const Sizes pages = impl_->index.shelves().sizes(Tier::host, kind);
  const std::size_t by = kind == ComponentKind::state ? 1 : impl_->index.page_size();
  return {pages.evictable * by, pages.protected_tokens * by, pages.total * by};
}

std::size_t PrefixCache::capacity_tokens(Tier tier) const {
  if (tier == Tier::host && impl_->tier)
    return impl_->tier->pools(ComponentKind::full).host->num_pages() * impl_->index.page_size();
  const PagedAllocator* const full = impl_->ledger.full_side();
  return tier == Tier::device && full != nullptr ? full->capacity() : 0;
}

TierStats PrefixCache::tier_stats() const {
  return impl_->tier ? impl_->tier->engine.tier_stats() : TierStats{};
}

Status PrefixCache::report_prefill(std::size_t num_tokens, double seconds,
                                   std::size_t cached_tokens) {
  if (Status s = check_prefill(num_tokens, seconds); !s) return s;
  if (impl_->tier) impl_->tier->engine.add_prefill(num_tokens, seconds);
  if (!impl_->prefill_cost || num_tokens == 0) return {};
  impl_->prefill_cost->add(num_tokens, cached_tokens, seconds);
  if (const std::optional<double> tokens = impl_->prefill_cost->attention_tokens())
    impl_->index.uses().set_attention_tokens(*tokens);
  return {};
}

}  // namespace pando
