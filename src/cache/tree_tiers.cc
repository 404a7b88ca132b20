// SPDX-License-Identifier: Apache-2.0
// Nodes on their way to the host, and room for them there. Loads are in tree_load.cc, the store in
// tree_store.cc.
#include "cache/tree_tiers.h"

#include <algorithm>

#include "base/append.h"
#include "base/check.h"
#include "pando/observer.h"

namespace pando {
namespace {

constexpr ComponentKind kComponents[] = {ComponentKind::full, ComponentKind::window,
                                         ComponentKind::state};
constexpr std::size_t kFull = 0, kWindow = 1, kState = 2;  // as ComponentKind

std::size_t hits_before_backup(WritePolicy policy) {
  return policy == WritePolicy::write_through ? 1 : 2;
}

TierEngine::Options engine_options(const HostTierOptions& options) {
  TierEngine::Options out{.copier = options.copier,
                          .backup_stream = options.backup_stream,
                          .load_stream = options.load_stream,
                          .cost_gate = options.cost_gate};
  out.pools = {options.full, options.window, options.state};
  while (out.pools.back().host == nullptr) out.pools.pop_back();
  out.kinds.assign(std::begin(kComponents), std::end(kComponents));
  return out;
}

}  // namespace

TreeTiers::TreeTiers(CacheCore& core, const HostTierOptions& options, Evict evict)
    : core_(core),
      index_(core.index),
      options_(options),
      evict_(std::move(evict)),
      engine(engine_options(options), core.ranks, *this) {
  victims_ = engine.new_backup();
}

TreeTiers::~TreeTiers() {
  engine.detach();
  engine.drain();
}

// ---- Room --------------------------------------------------------------------------------------

const TierPools& TreeTiers::pools(ComponentKind kind) const {
  return kind == ComponentKind::full     ? options_.full
         : kind == ComponentKind::window ? options_.window
                                         : options_.state;
}

// Caps are in tokens: of full attention.
HostKeeper::Share TreeTiers::share(std::size_t component, OwnerId owner) const {
  const Shelf& shelf = *index_.shelves().shelf(Tier::host, kComponents[component]);
  const Shelf::Tally tally = shelf.of(owner);
  const std::size_t cap = component == kFull ? shelf.limits(owner).cap : SIZE_MAX;
  return {cap, tally.total, tally.evictable};
}

std::size_t TreeTiers::kept_pages(std::size_t component) const {
  return index_.shelves().sizes(Tier::host, kComponents[component]).total;
}

std::size_t TreeTiers::evictable_for(std::size_t component, OwnerId owner) const {
  const Shelf& shelf = *index_.shelves().shelf(Tier::host, kComponents[component]);
  return options_.reclaim_mirrors_first ? shelf.sum().total : shelf.available_to(owner);
}

void TreeTiers::evict_host(const Shortage& shortage) {
  const CauseScope cause(core_, shortage.over_cap ? Pressure::tenant_cap : Pressure::host_room,
                         shortage.num_pages * index_.page_size());
  Evictor::Goal goal{.by = shortage.owner, .only_own = shortage.over_cap};
  (shortage.component == kFull     ? goal.pages
   : shortage.component == kWindow ? goal.window_pages
                                   : goal.snapshots) = shortage.num_pages;
  evict(goal);
}

// What it lets go of is given back at once: it is the room that is wanted.
Evicted TreeTiers::evict(const Evictor::Goal& goal) {
  note_demotions(core_.released);  // before their pages may be freed
  Released released;
  const Evicted evicted = index_.evictor().evict_host(goal, released);
  engine.stats.host_evicted_tokens += evicted.host_pages * index_.page_size();
  core_.give_back_device(released);
  give_back(released);
  if (core_.observer != nullptr)
    core_.observer->on_evict(Tier::host,
                             {.tokens = evicted.host_pages * index_.page_size(),
                              .window_tokens = evicted.host_window_pages * index_.page_size(),
                              .snapshots = evicted.host_snapshots,
                              .nodes = evicted.nodes});
  return evicted;
}

// The node's pages on both tiers at the end of `copy`. Its window and its snapshot are copied where
// there is room for them; without, the host has a tombstone.
bool TreeTiers::reserve_node(NodeIndex i, PageCopy& copy) {
  const Node& node = index_.node(i);
  const std::uint32_t num_pages = node.num_pages;
  const OwnerId owner = node.owner;
  Extent extent{.entry = entry_of(index_.id(i)),
                .begin = node.begin_pages(),
                .num_pages = num_pages,
                .num_tokens = static_cast<std::uint32_t>(num_pages * index_.page_size())};
  const auto reserve = [&](std::size_t component, std::size_t n) {
    return engine.room.reserve(component, n, owner, copy.of[component].host, copy.claim);
  };
  if (!reserve(kFull, num_pages)) {
    ++engine.stats.refused_backups;
    return false;
  }
  append(copy.of[kFull].device, index_.residency().device_pages(index_.node(i)));
  if (core_.options.window && index_.residency().has_window(i) && reserve(kWindow, num_pages)) {
    extent.components |= 1u << kWindow;
    core_.ledger.window_pages(std::span(copy.of[kFull].device).last(num_pages),
                              copy.of[kWindow].device);
  }
  if (index_.residency().has_snapshot(i) && reserve(kState, 1)) {
    extent.components |= 1u << kState;
    copy.of[kState].device.push_back(page_of(index_.residency().snapshot(i)));
  }
  copy.num_tokens += extent.num_tokens;
  copy.extents.push_back(extent);
  return true;
}

// Undoes the last reserve_node(), whose pages were refused on this rank or another.
void TreeTiers::take_back_last(PageCopy& copy) {
  const Extent extent = copy.extents.back();
  copy.extents.pop_back();
  copy.num_tokens -= extent.num_tokens;
  for (std::size_t c = 0; c < copy.of.size(); ++c) {
    if (!extent.has(c)) continue;
    PageCopy::Pages& pages = copy.of[c];
    const std::size_t n = c == kState ? 1 : extent.num_pages;
    const std::size_t first = pages.device.size() - n;
    engine.room.unclaim(copy.claim.owner, c, n);
    pages.device.resize(first);
    if (pages.host.size() == first) continue;  // refused here
    engine.room.pool(c).free(std::span(pages.host).subspan(first));
    pages.host.resize(first);
  }
  copy.claim.refused = false;
}

// ---- Holding -----------------------------------------------------------------------------------

void TreeTiers::hold(const Extent& extent) {
  const NodeIndex node = resolve(extent.entry);
  index_.holds().lock(node);
  ++num_locks_;
  if (extent.has(kWindow)) index_.holds().lock_window(node, extent.begin);
  if (extent.has(kState)) {
    index_.holds().lock_state(node);
    ++num_state_locks_;
  }
}

void TreeTiers::release(const Extent& extent) {
  const NodeIndex node = resolve(extent.entry);
  PANDO_CHECK(node != kNoNode, "node {} has gone while it was copied",
              static_cast<std::uint32_t>(extent.entry));
  if (extent.has(kWindow)) index_.holds().unlock_window(node, extent.begin);
  if (extent.has(kState)) {
    index_.holds().unlock_state(node);
    --num_state_locks_;
  }
  index_.unlock(node, core_.released);
  --num_locks_;
}

// ---- Write through -----------------------------------------------------------------------------

void TreeTiers::inserted(NodeIndex end) {
  if (options_.write_policy != WritePolicy::write_back)
    copy_path(end, hits_before_backup(options_.write_policy));
  if (engine.store() == nullptr) return;
  for (NodeIndex i = end; !index_.node(i).is_root(); i = index_.node(i).parent) {
    if (index_.node(i).on_host && index_.node(i).unstored)
      return engine.put(entry_of(index_.id(i)));  // and what is above it
  }
}

void TreeTiers::back_up(NodeIndex end) { copy_path(end, 0); }

// From the top, so that a node's copy never comes before its parent's; it ends with the first node
// for which there is no room.
void TreeTiers::copy_path(NodeIndex end, std::size_t enough) {
  path_.clear();
  for (NodeIndex i = end; !index_.node(i).is_root(); i = index_.node(i).parent) {
    const Node& node = index_.node(i);
    if (!node.on_host && !node.backing_up && node.hits >= enough) path_.push_back(i);
  }
  if (path_.empty()) return;
  std::unique_ptr<PageCopy> copy = engine.new_backup();
  for (; !path_.empty(); path_.pop_back()) {
    if (!reserve_node(path_.back(), *copy)) break;
    index_.holds().set_backing_up(path_.back(), true);
    hold(copy->extents.back());
  }
  if (copy->extents.empty()) return engine.recycle(std::move(copy));
  engine.start_backup(std::move(copy));
}

void TreeTiers::backup_ended(PageCopy& copy, bool copied) {
  copy.for_each([&](std::size_t c, const PageCopy::Pages& pages) {
    if (copied) {
      engine.room.pool(c).complete_write(pages.host);
    } else {
      engine.free_written(c, pages.host);
    }
  });
  Offsets at = {};
  for (const Extent& extent : copy.extents) {
    for (NodeIndex i = resolve(extent.entry); index_.node(i).end_pages > extent.begin;
         i = index_.node(i).parent) {
      index_.holds().set_backing_up(i, false);
      if (!copied) continue;
      attach(i, extent, copy, at);
      tell(i);
    }
    release(extent);
    at[kFull] += extent.num_pages;
    at[kWindow] += extent.has(kWindow) ? extent.num_pages : 0;
    at[kState] += extent.has(kState) ? 1 : 0;
  }
  count_backup(copy, copied);
}

// Node i is what has become of the extent, or the upper end of it after a split.
void TreeTiers::attach(NodeIndex i, const Extent& extent, const PageCopy& copy, const Offsets& at) {
  const Node& node = index_.node(i);
  const std::size_t offset = node.begin_pages() - extent.begin;
  Residency::HostExtent on_host{
      .pages = std::span(copy.of[kFull].host).subspan(at[kFull] + offset, node.num_pages)};
  if (extent.has(kWindow))
    on_host.window_pages =
        std::span(copy.of[kWindow].host).subspan(at[kWindow] + offset, node.num_pages);
  if (extent.has(kState) && offset + node.num_pages == extent.num_pages)
    on_host.snapshot = copy.of[kState].host[at[kState]];
  index_.residency().attach_host(i, on_host);
}

// The node has its host copy, and its bytes are there.
void TreeTiers::tell(NodeIndex i) {
  core_.record_stored(Tier::host, i);
  if (engine.store() == nullptr) return;
  index_.residency().set_unstored(i, true);
  engine.put(entry_of(index_.id(i)));
}

void TreeTiers::count_backup(const PageCopy& copy, bool copied) {
  engine.stats.failed_backups += copied ? 0 : 1;
  engine.stats.backed_up_tokens += copied ? copy.num_tokens : 0;
}

// ---- Write back --------------------------------------------------------------------------------

bool TreeTiers::write_back(NodeIndex i) {
  if (options_.write_policy != WritePolicy::write_back) return false;
  index_.holds().set_backing_up(i,
                                true);  // or making room, for it or for the next one, might take it
  bool reserved = reserve_node(i, *victims_);
  if (reserved && !core_.ranks.all(!victims_->claim.refused)) {
    take_back_last(*victims_);
    ++engine.stats.refused_backups;
    reserved = false;
  }
  if (!reserved) {
    index_.holds().set_backing_up(i, false);
    return false;
  }
  const Extent& extent = victims_->extents.back();
  for (std::size_t c = 0; c < victims_->of.size(); ++c) {
    if (extent.has(c))
      engine.room.unclaim(victims_->claim.owner, c, c == kState ? 1 : extent.num_pages);
  }
  const auto last = [&](std::size_t c, std::size_t n) {
    return extent.has(c) ? victims_->of[c].host.size() - n : 0;
  };
  attach(i, extent, *victims_,
         {last(kFull, extent.num_pages), last(kWindow, extent.num_pages), last(kState, 1)});
  return true;
}

// The nodes are on the host already as far as the tree is concerned; nobody has seen that yet. Some
// may have gone again, with a parent for which there was no room: then their pages are filled for
// nothing.
void TreeTiers::finish_write_back() {
  if (victims_->extents.empty()) return;
  std::unique_ptr<PageCopy> copy = std::exchange(victims_, engine.new_backup());
  const bool copied = engine.back_up_now(*copy);
  copy->for_each([&](std::size_t c, const PageCopy::Pages& pages) {
    // Even of a failed copy: its nodes go at once.
    engine.room.pool(c).complete_write(pages.host, /*on_device=*/false);
  });
  Evicted dropped;
  for (const Extent& extent : copy->extents) {
    const NodeIndex i = resolve(extent.entry);
    if (i == kNoNode) continue;
    index_.holds().set_backing_up(i, false);
    if (copied) {
      tell(i);
      index_.evictor().drop_if_bare(i, core_.released, dropped);
    } else {
      index_.evictor().drop_subtree(i, core_.released, dropped);
    }
  }
  count_backup(*copy, copied);
  engine.recycle(std::move(copy));
}

// ---- Pages of the host -------------------------------------------------------------------------

void TreeTiers::note_demotions(Released& released) {
  const auto pass_on = [](HostPool* pool, std::vector<HostPageId>& pages) {
    if (!pages.empty()) pool->device_gone(pages);
    pages.clear();
  };
  pass_on(options_.full.host, released.demoted_pages);
  pass_on(options_.window.host, released.demoted_window_pages);
  pass_on(options_.state.host, released.demoted_snapshots);
}

void TreeTiers::give_back(Released& released) {
  note_demotions(released);
  const auto pass_on = [](HostPool* pool, std::vector<HostPageId>& pages) {
    if (!pages.empty()) pool->free(pages);
    pages.clear();
  };
  pass_on(options_.full.host, released.host_pages);
  pass_on(options_.window.host, released.host_window_pages);
  pass_on(options_.state.host, released.host_snapshots);
}

void TreeTiers::device_came(NodeIndex i, bool pages, bool window, bool snapshot) {
  const Node& node = index_.node(i);
  if (pages) options_.full.host->device_came(index_.residency().host_pages(node));
  if (window && index_.residency().has_host_window(i))
    options_.window.host->device_came(index_.residency().host_window_pages(node));
  if (!snapshot || !index_.residency().has_host_snapshot(i)) return;
  const HostPageId page = index_.residency().host_snapshot(i);
  options_.state.host->device_came({&page, 1});
}

// ---- Proving -----------------------------------------------------------------------------------

void TreeTiers::add_holds(RadixIndex::HoldCounts& holds) const {
  holds.locks += num_locks_;
  holds.state_locks += num_state_locks_;
  holds.host_locks += num_host_locks_;
}

Status TreeTiers::check() const {
  if (Status s = engine.check(); !s) return s;
  std::vector<std::vector<std::optional<PageState>>> expected(engine.num_components());
  for (std::size_t c = 0; c < expected.size(); ++c) {
    if (const HostPool* pool = engine.pools(c).host) expected[c].resize(pool->num_pages());
  }
  Status status;
  const auto own = [&](std::size_t c, HostPageId page, PageState state) {
    std::optional<PageState>& known = expected[c][index_of(page)];
    if (known && known != PageState::loading)
      status = make_error(ErrorCode::corrupt, "host page {} of component {} has two owners",
                          index_of(page), c);
    if (!known) known = state;
  };
  const auto own_all = [&](std::size_t c, std::span<const HostPageId> pages, bool on_device) {
    for (const HostPageId page : pages)
      own(c, page, on_device ? PageState::synced : PageState::backed_up);
  };
  engine.for_each_page(own);
  index_.tree().for_each_node([&](NodeIndex i, const Node& node) {
    if (node.on_host) own_all(kFull, index_.residency().host_pages(node), node.on_device());
    if (index_.residency().has_host_window(i))
      own_all(kWindow, index_.residency().host_window_pages(node),
              index_.residency().has_window(i));
    if (!index_.residency().has_host_snapshot(i)) return;
    const HostPageId page = index_.residency().host_snapshot(i);
    own_all(kState, {&page, 1}, index_.residency().has_snapshot(i));
  });
  if (!status.ok()) return status;
  for (std::size_t c = 0; c < expected.size(); ++c) {
    for (std::uint32_t p = 0; p < expected[c].size(); ++p) {
      const PageState wanted = expected[c][p].value_or(PageState::idle);
      const PageState state = engine.pools(c).host->state(HostPageId{p});
      if (state != wanted)
        return make_error(ErrorCode::corrupt, "host page {} of component {} is {}, expected {}", p,
                          c, to_string(state), to_string(wanted));
    }
  }
  return {};
}

}  // namespace pando
