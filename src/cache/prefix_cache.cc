// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on keys: match, probe, evict, and what it tells of itself. Each first
// looks (Tree::descend), then refuses what is wrong, then changes. It is made in create.cc;
// lock is in leases.cc, insert in insert.cc, and what tells the observer of them in observed.cc.
#include "pando/cache.h"

#include <algorithm>

#include "base/bulk.h"
#include "base/check.h"
#include "base/tokens.h"
#include "cache/observed.h"
#include "cache/prefix_cache_impl.h"
#include "pando/observer.h"

namespace pando {

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

// ---- Looking -----------------------------------------------------------------------------------

Result<Match> PrefixCache::Impl::match(const Key& key, std::span<SlotId> slots, SessionId session) {
  if (key.tokens.empty()) return make_error(ErrorCode::invalid_argument, "match: the key is empty");
  const std::size_t page_size = index.page_size();
  const std::size_t num_pages = index.tree().shape().num_pages(key);
  if (!slots.empty() && slots.size() < num_pages * page_size)
    return make_error(ErrorCode::invalid_argument,
                      "match: room for {} slots, but {} tokens may match", slots.size(),
                      num_pages * page_size);
  if (session) {
    if (Status s = refuse_session(session, "match"); !s) return s.error();
  }
  Match found;
  found.cache = cache_id;
  found.end = MatchEnd::disabled;
  if (options.disabled) return found;
  if (record) record->matched();

  const Tree::Cursor walked = index.tree().descend(key, slots.empty() ? nullptr : slots.data());
  found.agreed_length = walked.pages * page_size;
  // Tokens beyond the first page that does not agree are not looked at.
  const std::size_t looked_at =
      std::min(key.tokens.size(), found.agreed_length + page_size + (options.bigram ? 1 : 0));
  if (Status s = refuse_negative(key.tokens, found.agreed_length, looked_at, "match"); !s)
    return s.error();
  const Tree::Cursor cursor = index.matcher().valid_end(walked, Matcher::Reach::device);
  const Tree::Cursor reached =
      tier ? index.matcher().valid_end(walked, Matcher::Reach::host) : cursor;
  found.length = cursor.pages * page_size;
  found.host_length = (reached.pages - cursor.pages) * page_size;
  found.end = match_end(key, walked, reached);
  if (cursor.node == kNoNode) return found;
  Matcher::Partial partial;
  if (options.partial_pages && !options.state && cursor.pages == walked.pages)
    partial = index.matcher().partial(key, cursor);
  const NodeIndex end = index.tree().split_at(reached);  // if it is further, both are ends of nodes
  const NodeIndex device_end = found.host_length > 0 ? cursor.node : end;
  if (cursor.pages > 0) {
    found.node = index.id(device_end);
    if (options.state) found.snapshot = index.residency().snapshot(device_end);
  }
  if (found.host_length > 0) found.host_node = index.id(end);
  if (partial.length > 0) {
    found.partial_length = partial.length;
    found.partial_slot = SlotId{static_cast<std::int64_t>(partial.page * page_size)};
    found.partial_node = index.id(partial.node);
  }
  index.touch(end);
  if (!session) index.retention().note_common_use(end);
  return found;
}

// Why a walk of this key, of which `valid` can be used, gives no more.
MatchEnd PrefixCache::Impl::match_end(const Key& key, const Tree::Cursor& walked,
                                      const Tree::Cursor& valid) const {
  const std::size_t num_pages = index.tree().shape().num_pages(key);
  if (walked.node == kNoNode) return MatchEnd::namespace_unknown;
  if (valid.pages < walked.pages) {
    const bool window_reaches =
        index.matcher().valid_end(walked, Matcher::Reach::host, /*with_state=*/false).pages ==
        walked.pages;
    return window_reaches ? MatchEnd::no_snapshot : MatchEnd::window_gone;
  }
  if (walked.pages < num_pages) return MatchEnd::no_such_child;
  const bool whole =
      num_pages > 0 && num_pages * index.page_size() == index.tree().shape().num_units(key);
  return whole ? MatchEnd::whole_key : MatchEnd::page_boundary;
}

std::size_t PrefixCache::probe(const Key& key) const {
  const RadixIndex& index = impl_->index;
  if (impl_->options.disabled) return 0;
  return index.matcher()
             .valid_end(index.tree().descend(key, nullptr), Matcher::Reach::device)
             .pages *
         index.page_size();
}

void PrefixCache::probe(std::span<const Key> keys, std::span<std::size_t> lengths) const {
  PANDO_CHECK(lengths.size() == keys.size(), "probe: {} keys, room for {} lengths", keys.size(),
              lengths.size());
  for (std::size_t i = 0; i < keys.size(); ++i) lengths[i] = probe(keys[i]);
}

// ---- Evicting ----------------------------------------------------------------------------------

void PrefixCache::Impl::give_back() {
  give_back_device(released);
  if (tier) tier->give_back(released);
}

EvictResult PrefixCache::Impl::evict(const Evictor::Goal& goal) {
  const Evicted result = index.evictor().evict(goal, options.evict_whole_nodes, released);
  if (tier) {
    tier->finish_write_back();
    tier->engine.stats.demoted_tokens += result.demoted_pages * index.page_size();
  }
  give_back();
  ledger.flush();
  const EvictResult told{.tokens = result.pages * index.page_size(),
                         .window_tokens = result.window_pages * index.page_size(),
                         .snapshots = result.snapshots,
                         .nodes = result.nodes,
                         .demoted_tokens = result.demoted_pages * index.page_size()};
  stats.evicted_tokens += told.tokens;
  stats.evicted_nodes += told.nodes;
  stats.evicted_window_tokens += told.window_tokens;
  stats.evicted_snapshots += told.snapshots;
  if (observer != nullptr) observer->on_evict(Tier::device, told);
  return told;
}

EvictResult PrefixCache::Impl::evict_for(const EvictGoal& goal) {
  const std::size_t page_size = index.page_size();
  const CauseScope cause(*this, Pressure::evict_call, goal.tokens);
  return evict({.pages = pages_for(goal.tokens, page_size),
                .window_pages = pages_for(goal.window_tokens, page_size),
                .snapshots = goal.snapshots,
                .by = tenants.owner_of(goal.ns)});
}

EvictResult PrefixCache::evict(const EvictGoal& goal) {
  return observed(impl_->observer, CacheCall::evict, [&] { return impl_->evict_for(goal); });
}

// What is being copied is waited for; what leaves the device is not saved. A copy that ends now is
// put into the store, which holds its node: so the store is told last to let go. No eviction in the
// sense of an observer.
void PrefixCache::Impl::evict_all() {
  CacheObserver* const told = std::exchange(observer, nullptr);
  while (!pins.empty()) drop_pin(PinId{pins.begin()->first});
  if (tier) tier->engine.drain();
  if (tier && tier->engine.store() != nullptr) tier->engine.store()->abandon();
  const auto save_to_host = std::exchange(index.evictor().save_to_host, nullptr);
  for (OwnerId owner = 0; owner < tenants.list().size(); ++owner) {  // floors and all
    evict({.pages = SIZE_MAX, .by = owner});
    if (tier) tier->evict({.pages = SIZE_MAX, .by = owner});
  }
  index.evictor().save_to_host = save_to_host;
  observer = told;
}

Status PrefixCache::Impl::reset() {
  if (const std::size_t leases = num_locks + num_host_locks - pins.size(); leases != 0)
    return make_error(ErrorCode::in_use, "reset: {} leases are still held", leases);
  const Residency::OnRemoved on_removed = std::exchange(index.residency().on_removed, nullptr);
  evict_all();
  index.residency().on_removed = on_removed;
  stats = {};
  if (tier) tier->engine.stats = {};
  if (events) events->cleared();
  if (record) record->clear();
  return {};
}

// ---- Telling -----------------------------------------------------------------------------------

Sizes PrefixCache::sizes(ComponentKind kind) const { return impl_->index.sizes(kind); }
const CacheOptions& PrefixCache::options() const { return impl_->options; }
CacheStats PrefixCache::stats() const { return impl_->stats; }
std::size_t PrefixCache::num_nodes() const { return impl_->index.num_nodes(); }
std::string PrefixCache::dump() const { return impl_->index.dump(); }
std::uint64_t PrefixCache::digest() const { return impl_->index.digest(); }

std::size_t PrefixCache::memory_bytes() const {
  return sizeof(Impl) - sizeof(RadixIndex) + impl_->index.memory_bytes() +
         impl_->ledger.memory_bytes() + impl_->states.memory_bytes();
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

std::vector<KvEvent> PrefixCache::events_of_all() const {
  if (!impl_->events) return {};
  const RadixIndex& index = impl_->index;
  std::vector<NodeIndex> nodes;
  index.tree().for_each_node([&](NodeIndex i, const Node& node) {
    if (!node.cut_off) nodes.push_back(i);
  });
  std::sort(nodes.begin(), nodes.end(), [&](NodeIndex a, NodeIndex b) {
    return std::pair(index.node(a).end_pages, a) < std::pair(index.node(b).end_pages, b);
  });
  EventLog log(index.page_size(), impl_->options.bigram ? 1 : 0);
  for (const Tier tier : {Tier::device, Tier::host}) {
    for (const NodeIndex i : nodes) {
      const Node& node = index.node(i);
      if (tier == Tier::device ? node.on_device() : node.on_host)
        impl_->record_stored(log, tier, i);
    }
  }
  return log.take();
}

Status PrefixCache::check() const {
  RadixIndex::HoldCounts holds{impl_->num_locks, impl_->num_snapshot_locks, impl_->num_host_locks};
  if (impl_->tier) impl_->tier->add_holds(holds);
  for (const auto& [id, pin] : impl_->pins) {
    ++holds.pins;
    holds.device_pins += pin.host ? 0 : 1;
  }
  if (Status s = impl_->index.check(holds); !s) return s;
  std::vector<PageId> pages;
  impl_->index.tree().for_each_node([&](NodeIndex, const Node& node) {
    for (std::uint32_t p = 0; node.on_device() && p < node.num_pages; ++p)
      pages.push_back(PageId{node.pages[p]});
  });
  if (Status s = impl_->ledger.check(pages); !s) return s;
  if (Status s = impl_->check_requests(); !s) return s;
  if (Status s = impl_->check_windows(); !s) return s;
  if (impl_->tier) {
    if (Status s = impl_->tier->check(); !s) return s;
  }
  return impl_->check_snapshots();
}

// The tree and the allocator agree about which of the tree's pages have a window side.
Status PrefixCache::Impl::check_windows() const {
  const WindowAllocator* allocator = ledger.window_allocator();
  if (allocator == nullptr) return {};
  Status status;
  index.tree().for_each_node([&](NodeIndex i, const Node& node) {
    for (std::uint32_t p = 0; node.on_device() && p < node.num_pages; ++p) {
      if (allocator->has_window(PageId{node.pages[p]}) != index.residency().has_window(i))
        status = make_error(ErrorCode::corrupt, "page {} of node {} should {}have a window side",
                            node.pages[p], i, index.residency().has_window(i) ? "" : "not ");
    }
  });
  return status;
}

Status PrefixCache::Impl::check_snapshots() const {
  std::vector<StateSlot> slots;
  index.tree().for_each_node([&](NodeIndex i, const Node&) {
    if (index.residency().has_snapshot(i)) slots.push_back(index.residency().snapshot(i));
  });
  return states.check(slots);
}

}  // namespace pando
