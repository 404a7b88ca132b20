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
    case MatchEnd::window_gone:
      return "window gone";
    case MatchEnd::no_snapshot:
      return "no snapshot";
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
  if (window && *window < page_size)
    return make_error(ErrorCode::invalid_argument,
                      "a window of {} tokens does not cover a page of {}", *window, page_size);
  if (state && state->max_per_path == 0)
    return make_error(ErrorCode::invalid_argument,
                      "state.max_per_path is 0: nothing could be matched; expected 1 at least");
  return {};
}

namespace {

std::size_t pages_for(std::size_t tokens, std::size_t page_size) {
  return tokens / page_size + (tokens % page_size != 0 ? 1 : 0);
}

RadixIndex::Options index_options(const CacheOptions& o) {
  RadixIndex::Options options{.page_size = o.page_size,
                              .bigram = o.bigram,
                              .hashes = o.events,
                              .hash_seed = o.hash_seed.value_or(random_seed()),
                              .state = o.state.has_value()};
  if (o.window) options.window_pages = pages_for(*o.window, o.page_size);
  if (o.state) {
    options.snapshot_interval_pages = pages_for(o.state->snapshot_interval, o.page_size);
    options.max_snapshots_per_path = o.state->max_per_path;
  }
  return options;
}

}  // namespace

PrefixCache::Impl::Impl(const CacheOptions& o, SlotLedger l, std::unique_ptr<EvictionPolicy> policy,
                        StateAllocator* state_pool)
    : options(o),
      cache_id(next_cache_id()),
      index(index_options(o), std::move(policy)),
      ledger(std::move(l)),
      states(state_pool) {
  if (!o.events) return;
  events.emplace(o.page_size, o.bigram ? 1 : 0);
  index.on_removed = [this](const Node& node, std::uint32_t first, std::uint32_t n) {
    events->removed(Medium::device, {index.hashes(node) + first, n});
  };
}

PrefixCache::PrefixCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PrefixCache::~PrefixCache() {
  PANDO_CHECK(impl_->num_locks == 0, "PrefixCache destroyed while {} leases are held",
              impl_->num_locks);
  impl_->index.on_removed = nullptr;
  impl_->evict({.pages = SIZE_MAX});
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::Impl::make(const CacheOptions& options,
                                                             SlotLedger ledger,
                                                             std::unique_ptr<EvictionPolicy> policy,
                                                             StateAllocator* states) {
  if (options.page_size != ledger.page_size())
    return make_error(ErrorCode::invalid_argument,
                      "cache page size {} differs from the allocator's {}", options.page_size,
                      ledger.page_size());
  if (options.state.has_value() != (states != nullptr))
    return make_error(ErrorCode::invalid_argument,
                      "a state component and a pool for its snapshots come together; only the {} "
                      "is given",
                      options.state ? "option" : "pool");
  auto impl =
      std::make_unique<Impl>(options, std::move(ledger), *policy_or_lru(std::move(policy)), states);
  return std::unique_ptr<PrefixCache>(new PrefixCache(std::move(impl)));
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options,
                                                         PagedAllocator& allocator,
                                                         std::unique_ptr<EvictionPolicy> policy,
                                                         StateAllocator* states) {
  if (Status s = options.validate(); !s) return s.error();
  if (options.window)
    return make_error(ErrorCode::invalid_argument,
                      "a window of {} tokens needs a WindowAllocator: this allocator's slots have "
                      "no window side",
                      *options.window);
  return Impl::make(options, SlotLedger(allocator), std::move(policy), states);
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options,
                                                         WindowAllocator& allocator,
                                                         std::unique_ptr<EvictionPolicy> policy,
                                                         StateAllocator* states) {
  if (Status s = options.validate(); !s) return s.error();
  if (!options.window)
    return make_error(ErrorCode::invalid_argument,
                      "over a WindowAllocator, the options must say how long the window is");
  return Impl::make(options, SlotLedger(allocator), std::move(policy), states);
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(const CacheOptions& options,
                                                         EngineSlots slots,
                                                         std::unique_ptr<EvictionPolicy> policy,
                                                         StateAllocator* states) {
  if (Status s = options.validate(); !s) return s.error();
  if (!slots.free) return make_error(ErrorCode::invalid_argument, "EngineSlots::free is empty");
  if (options.window && (!slots.free_window || !slots.move_window))
    return make_error(ErrorCode::invalid_argument,
                      "with a window, EngineSlots needs free_window and move_window");
  if (slots.max_slots < 2 * options.page_size || slots.max_slots / options.page_size > UINT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      "max_slots {} gives no page beside the padding page, or more than 2^32",
                      slots.max_slots);
  return Impl::make(options, SlotLedger(std::move(slots), options.page_size), std::move(policy),
                    states);
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

  const RadixIndex::Cursor walked = index.descend(key, slots.empty() ? nullptr : slots.data());
  match.agreed_length = walked.pages * page_size;
  // Tokens beyond the first page that does not agree are not looked at.
  const std::size_t looked_at = std::min(
      key.tokens.size(), match.agreed_length + page_size + (impl_->options.bigram ? 1 : 0));
  if (Status s = refuse_negative(key.tokens, match.agreed_length, looked_at, "match"); !s)
    return s.error();
  const RadixIndex::Cursor cursor = index.valid_end(walked);
  match.length = cursor.pages * page_size;
  match.end = impl_->match_end(key, walked, cursor);
  if (cursor.node == kNoNode) return match;
  RadixIndex::Partial partial;
  if (impl_->options.partial_pages && !impl_->options.state && cursor.pages == walked.pages)
    partial = index.partial(key, cursor);
  const NodeIndex end = index.settle(cursor);
  if (cursor.pages > 0) {
    match.node = index.id(end);
    if (impl_->options.state) match.snapshot = index.snapshot(end);
  }
  if (partial.length > 0) {
    match.partial_length = partial.length;
    match.partial_slot = SlotId{static_cast<std::int64_t>(partial.page * page_size)};
    match.partial_node = index.id(partial.node);
  }
  index.touch(end);
  return match;
}

// Why a walk of this key, of which `valid` can be used, gives no more.
MatchEnd PrefixCache::Impl::match_end(const Key& key, const RadixIndex::Cursor& walked,
                                      const RadixIndex::Cursor& valid) const {
  const std::size_t num_pages = index.num_pages(key);
  if (walked.node == kNoNode) return MatchEnd::namespace_unknown;
  if (valid.pages < walked.pages) {
    const bool window_reaches = index.valid_end(walked, /*with_state=*/false).pages == walked.pages;
    return window_reaches ? MatchEnd::no_snapshot : MatchEnd::window_gone;
  }
  if (walked.pages < num_pages) return MatchEnd::no_such_child;
  const bool whole = num_pages > 0 && num_pages * index.page_size() == index.num_units(key);
  return whole ? MatchEnd::whole_key : MatchEnd::page_boundary;
}

std::size_t PrefixCache::probe(const Key& key) const {
  const RadixIndex& index = impl_->index;
  if (impl_->options.disabled) return 0;
  return index.valid_end(index.descend(key, nullptr)).pages * index.page_size();
}

void PrefixCache::probe(std::span<const Key> keys, std::span<std::size_t> lengths) const {
  PANDO_CHECK(lengths.size() == keys.size(), "probe: {} keys, room for {} lengths", keys.size(),
              lengths.size());
  for (std::size_t i = 0; i < keys.size(); ++i) lengths[i] = probe(keys[i]);
}

// ---- Holding -----------------------------------------------------------------------------------

Lease::Lease(Lease&& other) noexcept
    : cache_(other.cache_),
      path_(std::exchange(other.path_, {})),
      partial_(std::exchange(other.partial_, {})) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    cache_ = other.cache_;
    path_ = std::exchange(other.path_, {});
    partial_ = std::exchange(other.partial_, {});
  }
  return *this;
}

void Lease::release() {
  Hold* const holds[] = {&partial_, &path_};
  if (*this) cache_->unlock(holds);
}

void Lease::release_partial() {
  Hold* const holds[] = {&partial_};
  if (partial_.node) cache_->unlock(holds);
}

Status Lease::release_window() {
  if (!path_.window_from)
    return make_error(ErrorCode::invalid_argument,
                      "release_window: this lease holds no window, or has released it already");
  cache_->impl_->release_hold_window(path_);
  return {};
}

Status Lease::release_snapshot() {
  if (!path_.snapshot)
    return make_error(ErrorCode::invalid_argument,
                      "release_snapshot: this lease holds no snapshot, or has released it already");
  cache_->impl_->release_hold_snapshot(path_);
  return {};
}

// As much of the window as there is: lock() has made sure that it is all, or the caller knows.
Lease::Hold PrefixCache::Impl::hold_path(NodeIndex node) {
  Lease::Hold hold{.node = index.id(node)};
  index.lock(node);
  ++num_locks;
  if (options.window) hold.window_from = index.lock_window(node);
  if (index.has_snapshot(node)) {
    index.lock_state(node);
    ++num_snapshot_locks;
    hold.snapshot = true;
  }
  return hold;
}

// Its rows are in the page `page` of the path to the node. No snapshot: a state cannot be entered
// inside a page.
Lease::Hold PrefixCache::Impl::hold_partial(NodeIndex node, std::uint32_t page) {
  Lease::Hold hold{.node = index.id(node)};
  index.lock(node);
  ++num_locks;
  if (options.window) {
    index.lock_window(node, page);
    hold.window_from = page;
  }
  return hold;
}

void PrefixCache::Impl::release_hold_window(Lease::Hold& hold) {
  if (!hold.window_from) return;
  index.unlock_window(index.resolve(hold.node), *hold.window_from);
  hold.window_from.reset();
}

void PrefixCache::Impl::release_hold_snapshot(Lease::Hold& hold) {
  if (!hold.snapshot) return;
  index.unlock_state(index.resolve(hold.node));
  --num_snapshot_locks;
  hold.snapshot = false;
}

void PrefixCache::Impl::release_hold(Lease::Hold& hold) {
  const NodeIndex node = index.resolve(hold.node);
  PANDO_CHECK(node != kNoNode, "lease on node {}, which has gone", hold.node.index);
  release_hold_window(hold);
  release_hold_snapshot(hold);
  index.unlock(node, released);
  hold = {};
  --num_locks;
}

void PrefixCache::unlock(std::span<Lease::Hold* const> holds) {
  for (Lease::Hold* hold : holds) {
    if (hold->node) impl_->release_hold(*hold);
  }
  impl_->give_back();
  impl_->ledger.flush();
}

Result<Lease> PrefixCache::lock(const Match& match) {
  const RadixIndex& index = impl_->index;
  if (match.cache != impl_->cache_id)
    return make_error(ErrorCode::stale_handle, "lock: the match is from another cache");
  const NodeIndex node = index.resolve(match.node);
  const NodeIndex partial = index.resolve(match.partial_node);
  for (const auto& [id, resolved] : {std::pair{match.node, node}, {match.partial_node, partial}}) {
    if (id && resolved == kNoNode)
      return make_error(ErrorCode::stale_handle,
                        "lock: node {} of this match has been evicted since; match again",
                        id.index);
  }
  const auto page = static_cast<std::uint32_t>(match.length / index.page_size());
  if ((node != kNoNode && !index.is_valid_end(node)) ||
      (partial != kNoNode && !index.has_window(partial, page)))
    return make_error(ErrorCode::stale_handle,
                      "lock: the window or snapshot of this match has been evicted since; match "
                      "again");
  Lease lease;
  lease.cache_ = this;
  if (node != kNoNode) lease.path_ = impl_->hold_path(node);
  if (partial != kNoNode) lease.partial_ = impl_->hold_partial(partial, page);
  return lease;
}

// ---- Evicting ----------------------------------------------------------------------------------

void PrefixCache::Impl::give_back() {
  ledger.release(std::span<const PageId>(released.pages));
  ledger.release_window(std::span<const PageId>(released.window_pages));
  states.release(released.snapshots);
  released.clear();
}

EvictResult PrefixCache::Impl::evict(const RadixIndex::Goal& goal) {
  const RadixIndex::Evicted result = index.evict(goal, options.evict_whole_nodes, released);
  give_back();
  ledger.flush();
  const EvictResult told{.tokens = result.pages * index.page_size(),
                         .window_tokens = result.window_pages * index.page_size(),
                         .snapshots = result.snapshots,
                         .nodes = result.nodes};
  stats.evicted_tokens += told.tokens;
  stats.evicted_nodes += told.nodes;
  stats.evicted_window_tokens += told.window_tokens;
  stats.evicted_snapshots += told.snapshots;
  return told;
}

EvictResult PrefixCache::evict(const EvictGoal& goal) {
  const std::size_t page_size = impl_->index.page_size();
  return impl_->evict({.pages = pages_for(goal.tokens, page_size),
                       .window_pages = pages_for(goal.window_tokens, page_size),
                       .snapshots = goal.snapshots});
}

Status PrefixCache::reset() {
  if (impl_->num_locks != 0)
    return make_error(ErrorCode::in_use, "reset: {} leases are still held", impl_->num_locks);
  const RadixIndex::OnRemoved on_removed = std::exchange(impl_->index.on_removed, nullptr);
  impl_->evict({.pages = SIZE_MAX});
  impl_->index.on_removed = on_removed;
  impl_->stats = {};
  if (impl_->events) impl_->events->cleared();
  return {};
}

// ---- Telling -----------------------------------------------------------------------------------

Sizes PrefixCache::sizes(ComponentKind kind) const { return impl_->index.sizes(kind); }
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
  if (Status s = impl_->index.check(impl_->num_locks, impl_->num_snapshot_locks); !s) return s;
  if (Status s = impl_->ledger.check(impl_->index.all_pages()); !s) return s;
  if (Status s = impl_->check_windows(); !s) return s;
  return impl_->check_snapshots();
}

// The tree and the allocator agree about which of the tree's pages have a window side.
Status PrefixCache::Impl::check_windows() const {
  const WindowAllocator* allocator = ledger.window_allocator();
  if (allocator == nullptr) return {};
  Status status;
  index.for_each_node([&](NodeIndex i, const Node& node) {
    for (std::uint32_t p = 0; p < node.num_pages; ++p) {
      if (allocator->has_window(PageId{node.pages[p]}) != index.has_window(i))
        status = make_error(ErrorCode::corrupt, "page {} of node {} should {}have a window side",
                            node.pages[p], i, index.has_window(i) ? "" : "not ");
    }
  });
  return status;
}

Status PrefixCache::Impl::check_snapshots() const {
  std::vector<StateSlot> slots;
  index.for_each_node([&](NodeIndex i, const Node&) {
    if (index.has_snapshot(i)) slots.push_back(index.snapshot(i));
  });
  return states.check(slots);
}

}  // namespace pando
