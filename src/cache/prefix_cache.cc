// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on keys: match, probe, lock, evict, and what it tells of itself. Each
// first looks (RadixIndex::descend), then refuses what is wrong, then changes. insert is in
// insert.cc.
#include "pando/cache.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <random>

#include "base/bulk.h"
#include "base/check.h"
#include "cache/prefix_cache_impl.h"

namespace pando {
namespace {

std::uint32_t next_cache_id() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

Result<std::unique_ptr<EvictionPolicy>> policy_or_lru(std::unique_ptr<EvictionPolicy> policy) {
  if (policy) return policy;
  return make_policy("lru");
}

}  // namespace

std::string_view to_string(MatchEnd end) {
  switch (end) {
    case MatchEnd::whole_key:
      return "whole key";
    case MatchEnd::no_such_child:
      return "no such child";
    case MatchEnd::page_boundary:
      return "page boundary";
    case MatchEnd::namespace_unknown:
      return "namespace unknown";
    case MatchEnd::disabled:
      return "disabled";
  }
  return "unknown";
}

// ---- Making ------------------------------------------------------------------------------------

Status CacheOptions::validate() const {
  if (!std::has_single_bit(page_size) || page_size > (std::size_t{1} << 20))
    return make_error(ErrorCode::invalid_argument,
                      "page size {} is not a power of two in [1, 2^20]", page_size);
  return {};
}

PrefixCache::Impl::Impl(const CacheOptions& o, SlotLedger l, std::unique_ptr<EvictionPolicy> policy)
    : options(o),
      cache_id(next_cache_id()),
      index({.page_size = o.page_size,
             .bigram = o.bigram,
             .hashes = o.events,
             .hash_seed = o.hash_seed.value_or(random_seed())},
            std::move(policy)),
      ledger(std::move(l)) {
  if (!o.events) return;
  events.emplace(o.page_size, o.bigram ? 1 : 0);
  on_removed = [this](const Node& node, std::uint32_t first, std::uint32_t n) {
    events->removed(Medium::device, {index.hashes(node) + first, n});
  };
}

PrefixCache::PrefixCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PrefixCache::~PrefixCache() {
  PANDO_CHECK(impl_->num_locks == 0, "PrefixCache destroyed while {} leases are held",
              impl_->num_locks);
  impl_->on_removed = nullptr;
  impl_->evict_pages(SIZE_MAX);
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options,
                                                         PagedAllocator& allocator,
                                                         std::unique_ptr<EvictionPolicy> policy) {
  if (Status s = options.validate(); !s) return s.error();
  if (options.page_size != allocator.page_size())
    return make_error(ErrorCode::invalid_argument,
                      "cache page size {} differs from the allocator's {}", options.page_size,
                      allocator.page_size());
  auto impl =
      std::make_unique<Impl>(options, SlotLedger(allocator), *policy_or_lru(std::move(policy)));
  return std::unique_ptr<PrefixCache>(new PrefixCache(std::move(impl)));
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options, SlotSink sink,
                                                         std::size_t max_slots,
                                                         std::unique_ptr<EvictionPolicy> policy) {
  if (Status s = options.validate(); !s) return s.error();
  if (!sink) return make_error(ErrorCode::invalid_argument, "the slot sink is empty");
  if (max_slots < 2 * options.page_size || max_slots / options.page_size > UINT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      "max_slots {} gives no page beside the padding page, or more than 2^32",
                      max_slots);
  auto impl =
      std::make_unique<Impl>(options, SlotLedger(std::move(sink), max_slots, options.page_size),
                             *policy_or_lru(std::move(policy)));
  return std::unique_ptr<PrefixCache>(new PrefixCache(std::move(impl)));
}

// ---- Looking -----------------------------------------------------------------------------------

Result<Match> PrefixCache::match(const Key& key, std::span<SlotId> slots) {
  RadixIndex& index = impl_->index;
  if (key.tokens.empty()) return make_error(ErrorCode::invalid_argument, "match: the key is empty");
  const std::size_t page_size = index.page_size();
  const std::size_t num_pages = index.num_pages(key);
  if (!slots.empty() && slots.size() < num_pages * page_size)
    return make_error(ErrorCode::invalid_argument,
                      "match: room for {} slots, but {} tokens may match", slots.size(),
                      num_pages * page_size);
  Match match;
  match.cache = impl_->cache_id;
  match.end = MatchEnd::disabled;
  if (impl_->options.disabled) return match;

  const RadixIndex::Cursor cursor = index.descend(key, slots.empty() ? nullptr : slots.data());
  match.length = cursor.pages * page_size;
  // Tokens beyond the first page that does not agree are not looked at.
  const std::size_t looked_at =
      std::min(key.tokens.size(), match.length + page_size + (impl_->options.bigram ? 1 : 0));
  if (Status s = refuse_negative(key.tokens, match.length, looked_at, "match"); !s)
    return s.error();
  match.end = cursor.node == kNoNode                                  ? MatchEnd::namespace_unknown
              : cursor.pages < num_pages                              ? MatchEnd::no_such_child
              : match.length < index.num_units(key) || num_pages == 0 ? MatchEnd::page_boundary
                                                                      : MatchEnd::whole_key;
  if (cursor.node == kNoNode) return match;
  RadixIndex::Partial partial;
  if (impl_->options.partial_pages) partial = index.partial(key, cursor);
  const NodeIndex end = index.settle(cursor);
  if (cursor.pages > 0) match.node = index.id(end);
  if (partial.length > 0) {
    match.partial_length = partial.length;
    match.partial_slot = SlotId{static_cast<std::int64_t>(partial.page * page_size)};
    match.partial_node = index.id(partial.node);
  }
  index.touch(end);
  return match;
}

std::size_t PrefixCache::probe(const Key& key) const {
  if (impl_->options.disabled) return 0;
  return impl_->index.descend(key, nullptr).pages * impl_->index.page_size();
}

void PrefixCache::probe(std::span<const Key> keys, std::span<std::size_t> lengths) const {
  PANDO_CHECK(lengths.size() == keys.size(), "probe: {} keys, room for {} lengths", keys.size(),
              lengths.size());
  for (std::size_t i = 0; i < keys.size(); ++i) lengths[i] = probe(keys[i]);
}

// ---- Holding -----------------------------------------------------------------------------------

Lease::Lease(Lease&& other) noexcept
    : cache_(other.cache_),
      node_(std::exchange(other.node_, {})),
      partial_(std::exchange(other.partial_, {})) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    cache_ = other.cache_;
    node_ = std::exchange(other.node_, {});
    partial_ = std::exchange(other.partial_, {});
  }
  return *this;
}

void Lease::release() {
  release_partial();
  if (node_) cache_->unlock(std::exchange(node_, {}));
}

void Lease::release_partial() {
  if (partial_) cache_->unlock(std::exchange(partial_, {}));
}

NodeId PrefixCache::Impl::lock_node(NodeIndex node) {
  index.lock(node);
  ++num_locks;
  return index.id(node);
}

void PrefixCache::unlock(NodeId id) {
  const NodeIndex node = impl_->index.resolve(id);
  PANDO_CHECK(node != kNoNode, "lease on node {}, which has gone", id.index);
  impl_->index.unlock(node);
  --impl_->num_locks;
}

Result<Lease> PrefixCache::lock(const Match& match) {
  if (match.cache != impl_->cache_id)
    return make_error(ErrorCode::stale_handle, "lock: the match is from another cache");
  NodeIndex nodes[2] = {};
  const NodeId ids[2] = {match.node, match.partial_node};
  for (int i = 0; i < 2; ++i) {
    if (!ids[i]) continue;
    nodes[i] = impl_->index.resolve(ids[i]);
    if (nodes[i] == kNoNode)
      return make_error(ErrorCode::stale_handle,
                        "lock: node {} of this match has been evicted since; match again",
                        ids[i].index);
  }
  Lease lease;
  lease.cache_ = this;
  if (nodes[0] != kNoNode) lease.node_ = impl_->lock_node(nodes[0]);
  if (nodes[1] != kNoNode) lease.partial_ = impl_->lock_node(nodes[1]);
  return lease;
}

// ---- Evicting ----------------------------------------------------------------------------------

EvictResult PrefixCache::Impl::evict_pages(std::size_t num_pages) {
  evicted.clear();
  const RadixIndex::Evicted result =
      index.evict(num_pages, options.evict_whole_nodes, evicted, on_removed);
  ledger.release(std::span<const PageId>(evicted));
  ledger.flush();
  stats.evicted_tokens += result.pages * index.page_size();
  stats.evicted_nodes += result.nodes;
  return {result.pages * index.page_size(), result.nodes};
}

EvictResult PrefixCache::evict(std::size_t num_tokens) {
  const std::size_t page_size = impl_->index.page_size();
  return impl_->evict_pages(num_tokens / page_size + (num_tokens % page_size != 0 ? 1 : 0));
}

Status PrefixCache::reset() {
  if (impl_->num_locks != 0)
    return make_error(ErrorCode::in_use, "reset: {} leases are still held", impl_->num_locks);
  const RadixIndex::OnRemoved on_removed = std::exchange(impl_->on_removed, nullptr);
  impl_->evict_pages(SIZE_MAX);
  impl_->on_removed = on_removed;
  impl_->stats = {};
  if (impl_->events) impl_->events->cleared();
  return {};
}

// ---- Telling -----------------------------------------------------------------------------------

Sizes PrefixCache::sizes() const { return impl_->index.sizes(); }
const CacheOptions& PrefixCache::options() const { return impl_->options; }
CacheStats PrefixCache::stats() const { return impl_->stats; }
std::size_t PrefixCache::num_nodes() const { return impl_->index.num_nodes(); }
std::string PrefixCache::dump() const { return impl_->index.dump(); }

std::size_t PrefixCache::memory_bytes() const {
  return sizeof(Impl) - sizeof(RadixIndex) + impl_->index.memory_bytes() +
         impl_->ledger.memory_bytes();
}

std::vector<SlotId> PrefixCache::all_slots() const {
  const std::vector<PageId> pages = impl_->index.all_pages();
  std::vector<SlotId> slots(pages.size() * impl_->index.page_size());
  expand_pages(pages, impl_->index.page_size(), slots.data());
  return slots;
}

std::vector<KvEvent> PrefixCache::take_events() {
  return impl_->events ? impl_->events->take() : std::vector<KvEvent>{};
}

Status PrefixCache::check() const {
  if (Status s = impl_->index.check(impl_->num_locks); !s) return s;
  return impl_->ledger.check(impl_->index.all_pages());
}

}  // namespace pando
