// SPDX-License-Identifier: Apache-2.0
// Making a PrefixCache: options and allocators that do not fit together are refused here.
#include <array>
#include <atomic>
#include <bit>
#include <functional>

#include "base/check.h"
#include "base/random.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"

namespace pando {
namespace {

std::uint32_t next_cache_id() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

bool measures_cost(const EvictionPolicy& policy) {
  const std::optional<HazardOptions> hazard = policy.hazard();
  return hazard && hazard->cost_aware && !hazard->attention_tokens;
}

RadixIndex::Options index_options(const CacheOptions& o, const SlotLedger& ledger) {
  const std::size_t page_size = ledger.page_size();
  RadixIndex::Options options{.page_size = page_size,
                              .bigram = o.bigram,
                              .hashes = o.events || o.remember_evicted > 0,
                              .hash_seed = o.hash_seed.value_or(random_seed()),
                              .state = o.state.has_value(),
                              .host = o.host.has_value(),
                              .mirrors_first = o.host && o.host->reclaim_mirrors_first,
                              .capacity_pages = ledger.num_pages() - 1};
  if (o.window) options.window_pages = pages_for(*o.window, page_size);
  if (o.state) {
    options.snapshot_interval_pages = pages_for(o.state->snapshot_interval, page_size);
    options.max_snapshots_per_path = o.state->max_per_path;
  }
  return options;
}

/// What must be alike on all ranks, or their trees would not stay so.
constexpr std::size_t kNumSettings = 17;

std::array<RankSetting, kNumSettings> settings_of(const CacheOptions& o, const SlotLedger& ledger,
                                                  const StateAllocator* states) {
  const PagedAllocator* full = ledger.full_side();
  const WindowAllocator* both = ledger.window_allocator();
  return {{
      {"page_size", ledger.page_size()},
      {"bigram", o.bigram},
      {"disabled", o.disabled},
      {"evict_whole_nodes", o.evict_whole_nodes},
      {"partial_pages", o.partial_pages},
      {"window", o.window.value_or(0)},
      {"state.snapshot_interval", o.state ? o.state->snapshot_interval : 0},
      {"state.max_per_path", o.state ? o.state->max_per_path : 0},
      {"host", o.host.has_value()},
      {"host.write_policy", o.host ? static_cast<std::size_t>(o.host->write_policy) : 0},
      {"host.load_back_threshold", o.host ? o.host->load_back_threshold : 0},
      {"host.reclaim_mirrors_first", o.host && o.host->reclaim_mirrors_first},
      {"host.cost_gate", o.host && o.host->cost_gate},
      {"host.cost_gate.probe_every",
       o.host && o.host->cost_gate ? o.host->cost_gate->probe_every : 0},
      {"free pages", full != nullptr ? full->available_pages() : 0},
      {"free window pages", both != nullptr ? both->window().available_pages() : 0},
      {"free snapshots", states != nullptr ? states->available() : 0},
  }};
}

Status validate_paged(const CacheOptions& options) {
  if (Status s = options.validate(); !s) return s;
  if (options.window)
    return make_error(ErrorCode::invalid_argument,
                      "a window of {} tokens needs a WindowAllocator: this allocator's slots have "
                      "no window side",
                      *options.window);
  return {};
}

Status validate_window(const CacheOptions& options) {
  if (Status s = options.validate(); !s) return s;
  if (!options.window)
    return make_error(ErrorCode::invalid_argument,
                      "over a WindowAllocator, the options must say how long the window is");
  return {};
}

Status validate_engine(const CacheOptions& options, const EngineSlots& slots) {
  if (Status s = options.validate(); !s) return s;
  if (!slots.free) return make_error(ErrorCode::invalid_argument, "EngineSlots::free is empty");
  if (options.window && (!slots.free_window || !slots.move_window))
    return make_error(ErrorCode::invalid_argument,
                      "with a window, EngineSlots needs free_window and move_window");
  if (!std::has_single_bit(slots.page_size) || slots.page_size > (std::size_t{1} << 20))
    return make_error(ErrorCode::invalid_argument,
                      "EngineSlots::page_size {} is not a power of two in [1, 2^20]",
                      slots.page_size);
  if (slots.max_slots < 2 * slots.page_size || slots.max_slots / slots.page_size > UINT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      "max_slots {} gives no page beside the padding page, or more than 2^32",
                      slots.max_slots);
  return {};
}

Status validate_parts(const CacheOptions& options, const SlotLedger& ledger,
                      const StateAllocator* states) {
  if (options.state.has_value() != (states != nullptr))
    return make_error(ErrorCode::invalid_argument,
                      "a state component and a pool for its snapshots come together; only the {} "
                      "is given",
                      options.state ? "option" : "pool");
  if (options.host) {
    if (Status s = validate_host_tier(options, ledger, states); !s) return s;
  }
  const std::size_t host_pages = options.host ? options.host->full.host->num_pages() : 0;
  return Tenants::validate(
      options.retention.tenants,
      {(ledger.num_pages() - 1) * ledger.page_size(), host_pages * ledger.page_size()});
}

}  // namespace

Status CacheOptions::validate() const {
  if (window && *window == 0)
    return make_error(ErrorCode::invalid_argument,
                      "a window of 0 tokens: nothing would be looked back at; expected 1 at least");
  if (state && state->max_per_path == 0)
    return make_error(ErrorCode::invalid_argument,
                      "state.max_per_path is 0: nothing could be matched; expected 1 at least");
  return retention.validate();
}

PrefixCacheImpl::PrefixCacheImpl(const CacheOptions& o, SlotLedger l,
                                 std::unique_ptr<EvictionPolicy> policy, StateAllocator* state_pool)
    : CacheCore{o, RadixIndex(index_options(o, l), std::move(policy)), std::move(l),
                StateLedger(state_pool), Agreement(o.ranks)},
      cache_id(next_cache_id()),
      made_at(o.retention.now ? o.retention.now() : std::chrono::steady_clock::now()) {
  if (o.host) {
    tier.emplace(*this, *o.host, [this](const Evictor::Goal& goal) {
      const CauseScope cause(*this, Pressure::load_back, goal.pages * index.page_size());
      evict(goal);
    });
    set_write_policy(o.host->write_policy);
  }
  index.retention().set_session_level(static_cast<Level>(o.retention.session_priority));
  index.retention().owner_of = [this](std::string_view ns) { return tenants.owner_of(ns); };
  for (const TenantOptions& tenant : o.retention.tenants)
    apply_limits(*tenants.set(tenant, shared_capacity()));
  if (o.events) events.emplace(index.page_size(), o.bigram ? 1 : 0);
  if (o.remember_evicted > 0) record.emplace(o.remember_evicted);
  if (!events && !record) return;
  index.residency().on_removed = [this](Tier from, const Node& node, std::uint32_t first,
                                        std::uint32_t n) {
    const std::span hashes(index.tree().edges().hashes(node) + first, n);
    if (events) events->removed(from, hashes);
    if (record) record->add(from, hashes);
  };
}

PrefixCache::PrefixCache(std::unique_ptr<PrefixCacheImpl> impl) : impl_(std::move(impl)) {}

PrefixCache::~PrefixCache() {
  while (!impl_->pins.empty()) impl_->drop_pin(PinId{impl_->pins.begin()->first});
  PANDO_CHECK(impl_->num_locks == 0, "PrefixCache destroyed while {} leases are held",
              impl_->num_locks);
  PANDO_CHECK(impl_->running.empty(), "PrefixCache destroyed while {} requests run",
              impl_->running.size());
  impl_->observer = nullptr;
  impl_->index.residency().on_removed = nullptr;
  if (impl_->tier) impl_->tier->engine.detach();
  impl_->evict_all();
}

Result<std::unique_ptr<PrefixCache>> PrefixCacheImpl::make(
    const CacheOptions& options, const Status& valid,
    const std::function<SlotLedger()>& make_ledger, std::unique_ptr<EvictionPolicy> policy,
    StateAllocator* states) {
  std::optional<SlotLedger> ledger;
  Status ready = valid;
  if (ready.ok() && policy == nullptr) {
    Result<std::unique_ptr<EvictionPolicy>> named = make_policy(options.policy);
    if (named.ok())
      policy = std::move(*named);
    else
      ready = named.error();
  }
  std::array<RankSetting, kNumSettings> settings = {};
  if (ready.ok()) {
    ledger.emplace(make_ledger());
    ready = validate_parts(options, *ledger, states);
    settings = settings_of(options, *ledger, states);
  }
  Agreement ranks(options.ranks);
  if (ready.ok() && !ranks.alone() && measures_cost(*policy))
    ready = make_error(ErrorCode::invalid_argument,
                       "hazard: ranks measure different costs; expected attention_tokens");
  if (Status s = agree_on_settings(ranks, ready, settings); !s) return s.error();
  const bool measures = measures_cost(*policy);
  auto impl =
      std::make_unique<PrefixCacheImpl>(options, std::move(*ledger), std::move(policy), states);
  if (measures) impl->prefill_cost.emplace();
  return std::unique_ptr<PrefixCache>(new PrefixCache(std::move(impl)));
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options,
                                                         PagedAllocator& allocator,
                                                         std::unique_ptr<EvictionPolicy> policy,
                                                         StateAllocator* states) {
  return PrefixCacheImpl::make(
      options, validate_paged(options), [&] { return SlotLedger(allocator); }, std::move(policy),
      states);
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options,
                                                         WindowAllocator& allocator,
                                                         std::unique_ptr<EvictionPolicy> policy,
                                                         StateAllocator* states) {
  return PrefixCacheImpl::make(
      options, validate_window(options), [&] { return SlotLedger(allocator); }, std::move(policy),
      states);
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options,
                                                         EngineSlots slots,
                                                         std::unique_ptr<EvictionPolicy> policy,
                                                         StateAllocator* states) {
  return PrefixCacheImpl::make(
      options, validate_engine(options, slots), [&] { return SlotLedger(std::move(slots)); },
      std::move(policy), states);
}

}  // namespace pando
