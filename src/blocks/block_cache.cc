// SPDX-License-Identifier: Apache-2.0
// BlockCache as a whole: what it is made with, its events, its sizes, and the proof that its parts
// agree.
#include "pando/block_cache.h"

#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "blocks/block_cache_impl.h"
#include "copy/tier_pools.h"

namespace pando {
namespace {

constexpr std::string_view kLru = "lru";
constexpr std::string_view kHazard = "hazard";

Status validate(const BlockGroup& group, std::size_t i, std::size_t num_blocks, bool tiers) {
  const bool with_span =
      group.kind == GroupKind::sliding_window || group.kind == GroupKind::chunked_local;
  if (group.block_size == 0)
    return make_error(ErrorCode::invalid_argument, "group {} has blocks of 0 tokens", i);
  if (with_span != (group.span > 0))
    return make_error(ErrorCode::invalid_argument,
                      "group {} ({}) has a span of {} tokens; expected {}", i,
                      to_string(group.kind), group.span, with_span ? "some" : "none");
  if (group.every_state && group.kind != GroupKind::recurrent)
    return make_error(ErrorCode::invalid_argument, "group {} ({}) has no state to keep", i,
                      to_string(group.kind));
  if (!tiers) return {};
  // A state is one row, whatever tokens it stands for.
  const std::size_t rows = group.kind == GroupKind::recurrent ? 1 : group.block_size;
  return validate_tier_pools(group.pools, fmt::format("group {}", i), rows, num_blocks);
}

std::size_t unit_of(std::span<const BlockGroup> groups) {
  std::size_t unit = 0;
  for (const BlockGroup& group : groups) unit = std::gcd(unit, group.block_size);
  return unit;
}

/// What must be alike on all ranks. Of the groups one number: ranks may differ in how many.
std::array<RankSetting, 11> settings_of(const BlockCacheOptions& o) {
  std::size_t groups = o.groups.size();
  for (const BlockGroup& group : o.groups) {
    for (const std::size_t part : {static_cast<std::size_t>(group.kind), group.block_size,
                                   group.span, std::size_t{group.every_state}})
      groups = (groups * 1000003 + part) % 1000000007;
  }
  const BlockHostOptions host = o.host.value_or(BlockHostOptions{});
  return {{{"num_blocks", o.num_blocks},
           {"policy (is hazard)", o.policy == kHazard},
           {"groups (digest)", groups},
           {"caching", o.caching},
           {"deduplicate", o.deduplicate},
           {"recompute_last_block", o.recompute_last_block},
           {"host", o.host.has_value()},
           {"host.write_policy", static_cast<std::size_t>(host.write_policy)},
           {"host.load_back_threshold", host.load_back_threshold},
           {"host.cost_gate", host.cost_gate.has_value()},
           {"host.cost_gate.probe_every", host.cost_gate ? host.cost_gate->probe_every : 0}}};
}

}  // namespace

std::string_view to_string(GroupKind kind) {
  switch (kind) {
    case GroupKind::full:
      return "full";
    case GroupKind::sliding_window:
      return "sliding window";
    case GroupKind::chunked_local:
      return "chunked local";
    case GroupKind::recurrent:
      return "recurrent";
  }
  return "unknown";
}

Status BlockCacheOptions::validate() const {
  if (policy != kLru && policy != kHazard)
    return make_error(ErrorCode::invalid_argument, "policy \"{}\"; expected \"{}\" or \"{}\"",
                      policy, kLru, kHazard);
  if (ranks != nullptr && host && policy == kHazard)
    return make_error(ErrorCode::invalid_argument,
                      "policy \"hazard\" draws host pages by their numbers, which differ between "
                      "ranks; expected \"lru\"");
  if (groups.empty()) return make_error(ErrorCode::invalid_argument, "a cache without groups");
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (Status s = pando::validate(groups[i], i, num_blocks, host.has_value()); !s) return s;
  }
  if (host && host->cost_gate) {
    if (Status s = host->cost_gate->validate(); !s) return s;
  }
  if (host && host->copier == nullptr)
    return make_error(ErrorCode::invalid_argument, "host tier: expected a copier");
  for (const std::size_t stream : {host ? host->backup_stream : 0, host ? host->load_stream : 0}) {
    if (host && stream >= host->copier->num_streams())
      return make_error(ErrorCode::invalid_argument, "host tier: stream {} of a copier that has {}",
                        stream, host->copier->num_streams());
  }
  if (events && !keep_tokens)
    return make_error(ErrorCode::invalid_argument,
                      "events tell the tokens of blocks; expected keep_tokens");
  return hash.validate();
}

// ---- Making ------------------------------------------------------------------------------------

BlockCache::Impl::Impl(const BlockCacheOptions& opts, const BlockHasher& block_hasher)
    : options(opts), hasher(block_hasher), unit(hasher.block_size()), ranks(opts.ranks) {
  if (options.events) {
    events.emplace(unit, 0);
    origins.resize(options.num_blocks);
  }
}

// What moves bytes goes first.
BlockCache::Impl::~Impl() { tiers.reset(); }

Result<std::unique_ptr<BlockCache>> BlockCache::create(const BlockCacheOptions& options) {
  Agreement ranks(options.ranks);
  if (Status s = agree_on_settings(ranks, options.validate(), settings_of(options)); !s)
    return s.error();
  BlockHashOptions hash = options.hash;
  hash.wide_check = hash.wide_check || !options.keep_tokens;
  Result<BlockHasher> hasher = BlockHasher::create(unit_of(options.groups), hash);
  if (!hasher) return hasher.error();
  auto impl = std::make_unique<Impl>(options, *hasher);
  BlockPoolOptions pool;
  pool.num_blocks = options.num_blocks;
  pool.block_sizes.clear();
  for (const BlockGroup& group : options.groups) pool.block_sizes.push_back(group.block_size);
  pool.caching = options.caching;
  pool.keep_tokens = options.keep_tokens;
  pool.deduplicate = options.deduplicate;
  if (Status s = pool.validate(); !s) return s.error();
  if (options.policy == kHazard && options.caching) impl->make_hazard();
  pool.victims = impl->hazard.get();
  pool.on_evict = [i = impl.get()](std::span<const PageId> blocks) {
    i->stats.evicted_blocks += blocks.size();
    if (i->tiers) i->tiers->leaving(blocks, !i->discarding);
  };
  if (options.events)
    pool.on_gone = [i = impl.get()](const BlockContent& content) {
      i->record_removed(Tier::device, content);
    };
  Result<std::unique_ptr<BlockPool>> made = BlockPool::create(std::move(pool));
  if (!made) return made.error();
  impl->pool = std::move(*made);
  if (options.host) impl->make_tiers();
  impl->search.emplace(impl->options.groups, *impl->pool, impl->host.get());
  return std::unique_ptr<BlockCache>(new BlockCache(std::move(impl)));
}

void BlockCache::Impl::make_tiers() {
  host = std::make_unique<HostBlocks>(options.groups, options.keep_tokens, hazard.get());
  tiers =
      std::make_unique<BlockTiers>(BlockTiers::Shared{options, *pool, *host, hazard.get(), ranks});
  tiers->on_load_ended = [this](std::uint64_t load, bool arrived) { load_ended(load, arrived); };
  if (!events) return;
  const auto stored = [this](Tier tier, PageId block) {
    record_stored(tier, pool->content(block), origins[index_of(block)]);
  };
  host->on_removed = [this](const BlockContent& content) { record_removed(Tier::host, content); };
  tiers->on_backed_up = [stored](PageId block) { stored(Tier::host, block); };
  tiers->on_loaded = [this, stored](PageId block) {
    if (!pool->has_twin(block)) stored(Tier::device, block);
  };
  tiers->on_fetched = [this](const BlockKeys& keys, std::uint32_t group, std::size_t i) {
    const std::size_t size = options.groups[group].block_size;
    const Origin origin{std::make_shared<const std::string>(keys.ns), keys.parent(size, i), {}};
    record_stored(Tier::host, keys.content(group, size, i), origin);
  };
}

BlockCache::BlockCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

BlockCache::~BlockCache() {
  PANDO_CHECK(impl_->num_requests == 0, "{} requests outlive their BlockCache",
              impl_->num_requests);
}

Status BlockCache::Impl::reset() {
  if (!running.empty())
    return make_error(ErrorCode::in_use, "reset: {} requests have blocks", running.size());
  if (tiers) tiers->engine.drain();
  if (store() != nullptr) store()->abandon();
  discarding = true;  // and one event says it all
  std::optional<EventLog> kept = std::exchange(events, std::nullopt);
  Status emptied = pool->reset();
  discarding = false;
  events = std::move(kept);
  if (!emptied) return emptied;
  if (host) host->clear();
  if (events) events->cleared();
  return {};
}

// ---- Events ------------------------------------------------------------------------------------

void BlockCache::Impl::note_origin(const Request& r, std::uint32_t g, std::size_t i, PageId block) {
  if (!events) return;
  const std::size_t size = options.groups[g].block_size;
  Origin& origin = origins[index_of(block)];
  origin.ns = r.ns;
  origin.parent = keys_of(r).parent(size, i);
  origin.extra.clear();
  if (!r.keys.empty()) origin.extra = extra_keys(r.keys, i * size, (i + 1) * size);
}

void BlockCache::Impl::record_stored(Tier tier, const BlockContent& content, const Origin& origin) {
  KvEvent event;
  event.kind = KvEvent::Kind::stored;
  event.tier = tier;
  event.hashes = {content.hash->value};
  event.parent = origin.parent;
  event.block_size = options.groups[content.group].block_size;
  event.tokens.assign(content.tokens, content.tokens + event.block_size);
  event.ns = *origin.ns;
  event.hash_bytes = hasher.hash_bytes();
  event.group = content.group;
  if (!origin.extra.empty()) event.extra_keys = {origin.extra};
  events->stored(std::move(event));
}

void BlockCache::Impl::record_removed(Tier tier, const BlockContent& content) {
  if (events) events->removed(tier, {&content.hash->value, 1}, content.group, hasher.hash_bytes());
}

std::vector<KvEvent> BlockCache::take_events() {
  return impl_->events ? impl_->events->take() : std::vector<KvEvent>{};
}

// ---- Sizes -------------------------------------------------------------------------------------

const BlockCacheOptions& BlockCache::options() const { return impl_->options; }
const BlockHasher& BlockCache::hasher() const { return impl_->hasher; }
const BlockPool& BlockCache::pool() const { return *impl_->pool; }
double BlockCache::usage() const { return impl_->pool->usage(); }
BlockCacheStats BlockCache::stats() const { return impl_->stats; }
std::size_t BlockCache::num_requests() const { return impl_->running.size(); }

Sizes BlockCache::sizes(std::size_t group) const {
  return impl_->pool->sizes(static_cast<std::uint32_t>(group));
}

Sizes BlockCache::host_sizes(std::size_t group) const {
  return impl_->host ? impl_->host->sizes(static_cast<std::uint32_t>(group)) : Sizes{};
}

std::size_t BlockCache::memory_bytes() const {
  std::size_t sum = impl_->pool->memory_bytes();
  if (impl_->tiers) sum += impl_->host->memory_bytes() + impl_->tiers->memory_bytes();
  sum += impl_->origins.capacity() * sizeof(Impl::Origin);
  if (impl_->hazard) sum += impl_->hazard->memory_bytes();
  for (const BlockRequest::Impl* r : impl_->running) {
    sum += r->tokens.capacity() * sizeof(Token) + r->chain.capacity() * sizeof(BlockHash);
    for (const auto& group : r->groups) sum += group.blocks.capacity() * sizeof(PageId);
  }
  return sum;
}

Status BlockCache::check() const {
  if (Status s = impl_->pool->check(); !s) return s;
  if (impl_->hazard) {
    const auto know = [&pool = *impl_->pool](PageId block) -> HazardBlocks::Known {
      if (!pool.has_content(block)) return {};
      const BlockContent content = pool.content(block);
      return {true, pool.num_holders(block) == 0, content.group,
              HazardBlocks::name_of(*content.hash)};
    };
    if (Status s = impl_->hazard->check(know); !s) return s;
  }
  if (impl_->tiers) {
    if (Status s = impl_->tiers->check(); !s) return s;
  }
  std::vector<std::size_t> holders(impl_->pool->num_blocks());
  for (std::size_t i = 0; i < impl_->running.size(); ++i) {
    const BlockRequest::Impl& r = *impl_->running[i];
    if (r.position != i || !r.running)
      return make_error(ErrorCode::corrupt, "request {} of those with blocks is misplaced", i);
    for (std::size_t g = 0; g < r.groups.size(); ++g) {
      const BlockRequest::Impl::Group& own = r.groups[g];
      if (own.released > own.blocks.size() ||
          own.blocks.size() * impl_->options.groups[g].block_size < r.num_computed)
        return make_error(
            ErrorCode::corrupt,
            "a request with {} tokens computed has {} blocks of group {}, {} released",
            r.num_computed, own.blocks.size(), g, own.released);
      for (std::size_t b = 0; b < own.blocks.size(); ++b) {
        ++holders[index_of(own.blocks[b])];
        if (b < own.released && own.blocks[b] != kNullBlock)
          return make_error(ErrorCode::corrupt, "block {} was released and is still held",
                            index_of(own.blocks[b]));
      }
    }
  }
  for (std::uint32_t i = 1; i < holders.size(); ++i) {
    const std::size_t copies = impl_->tiers ? impl_->tiers->copy_holds(PageId{i}) : 0;
    if (holders[i] + copies != impl_->pool->num_holders(PageId{i}))
      return make_error(ErrorCode::corrupt, "block {} has {} holders: {} requests and {} copies", i,
                        impl_->pool->num_holders(PageId{i}), holders[i], copies);
  }
  return {};
}

}  // namespace pando
