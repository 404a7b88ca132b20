// SPDX-License-Identifier: Apache-2.0
// Copies to the host and their acknowledgement. Loads are in host_load.cc.
#include "cache/host_tier.h"

#include <algorithm>

#include "base/append.h"
#include "base/check.h"
#include "pando/observer.h"

namespace pando {
namespace {

std::size_t hits_before_backup(WritePolicy policy) {
  return policy == WritePolicy::write_through ? 1 : 2;
}

constexpr ComponentKind kComponents[] = {ComponentKind::full, ComponentKind::window,
                                         ComponentKind::state};
constexpr std::size_t at(ComponentKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

HostTier::HostTier(CacheCore& core, const HostTierOptions& options, Evict evict)
    : gate(options.cost_gate),
      core_(core),
      index_(core.index),
      options_(options),
      evict_(std::move(evict)) {
  std::array<std::int64_t, 3> capacity = {};
  for (const ComponentKind kind : kComponents) {
    if (const HostPool* pool = pools(kind).host)
      capacity[at(kind)] = static_cast<std::int64_t>(pool->available_pages());
  }
  core_.ranks.least(capacity);
  std::copy(capacity.begin(), capacity.end(), capacity_.begin());
}

HostTier::~HostTier() { drain(); }

// ---- Reserving ---------------------------------------------------------------------------------

const TierPools& HostTier::pools(ComponentKind kind) const {
  return kind == ComponentKind::full     ? options_.full
         : kind == ComponentKind::window ? options_.window
                                         : options_.state;
}

// Pages to be had without evicting. Alone, the pool knows, whoever else may use it.
std::size_t HostTier::room(ComponentKind kind) const {
  if (core_.ranks.alone()) return pools(kind).host->available_pages();
  const std::size_t used = index_.shelves().sizes(Medium::host, kind).total + under_way_[at(kind)];
  return capacity_[at(kind)] - std::min(capacity_[at(kind)], used);
}

// A tenant at its cap has room for no more than it gives up itself.
bool HostTier::keeps_to_cap(OwnerId owner, std::size_t n) {
  const Shelf& shelf = *index_.shelves().shelf(Medium::host, ComponentKind::full);
  const std::size_t cap = shelf.limits(owner).cap;
  if (cap == SIZE_MAX) return true;
  const auto excess = [&] {
    const std::size_t wanted = shelf.of(owner).total + under_way_[at(ComponentKind::full)] + n;
    return wanted - std::min(wanted, cap);
  };
  if (const std::size_t pages = excess(); pages > 0) {
    if (pages > shelf.of(owner).evictable) return false;
    const CauseScope cause(core_, Pressure::tenant_cap, pages * index_.page_size());
    evict({.pages = pages, .by = owner, .only_own = true});
  }
  return excess() == 0;
}

bool HostTier::reserve(ComponentKind kind, std::size_t n, OwnerId by, std::vector<HostPageId>& out,
                       Claim& claim) {
  if (kind == ComponentKind::full && !keeps_to_cap(by, n)) return false;
  if (const std::size_t free = room(kind); free < n) {
    const std::size_t missing = n - free;
    const Shelf& shelf = *index_.shelves().shelf(Medium::host, kind);
    const std::size_t at_most =
        options_.reclaim_mirrors_first ? shelf.sum().total : shelf.available_to(by);
    if (at_most < missing) return false;
    const CauseScope cause(core_, Pressure::host_room, missing * index_.page_size());
    Evictor::Goal goal{.by = by};
    (kind == ComponentKind::full     ? goal.pages
     : kind == ComponentKind::window ? goal.window_pages
                                     : goal.snapshots) = missing;
    evict(goal);
    if (room(kind) < n) return false;
  }
  claim.pages[at(kind)] += n;
  under_way_[at(kind)] += n;
  const std::size_t first = out.size();
  out.resize(first + n);
  if (pools(kind).host->alloc(std::span(out).subspan(first))) return true;
  out.resize(first);
  claim.refused = true;
  return true;
}

void HostTier::settle(Claim& claim, ComponentKind kind, std::size_t n) {
  claim.pages[at(kind)] -= n;
  under_way_[at(kind)] -= n;
}

void HostTier::settle(Claim& claim) {
  for (const ComponentKind kind : kComponents) settle(claim, kind, claim.pages[at(kind)]);
}

// What it lets go of is given back at once: it is the room that is wanted.
Evicted HostTier::evict(const Evictor::Goal& goal) {
  note_demotions(core_.released);  // before their pages may be freed
  Released released;
  const Evicted evicted = index_.evictor().evict_host(goal, released);
  stats.host_evicted_tokens += evicted.host_pages * index_.page_size();
  core_.give_back_device(released);
  give_back(released);
  if (core_.observer != nullptr)
    core_.observer->on_evict(Medium::host,
                             {.tokens = evicted.host_pages * index_.page_size(),
                              .window_tokens = evicted.host_window_pages * index_.page_size(),
                              .snapshots = evicted.host_snapshots,
                              .nodes = evicted.nodes});
  return evicted;
}

// The node's pages on both tiers at the end of `copy`. Its window and its snapshot are copied where
// there is room for them; without, the host has a tombstone.
bool HostTier::reserve_node(NodeIndex i, Copy& copy) {
  const std::uint32_t num_pages = index_.node(i).num_pages;
  Part part{.node = index_.id(i), .begin = index_.node(i).begin_pages()};
  part.full = copy.full.device.size();
  part.window = copy.window.device.size();
  const OwnerId owner = index_.node(i).owner;
  if (!reserve(ComponentKind::full, num_pages, owner, copy.full.host, copy.claim)) {
    ++stats.refused_backups;
    return false;
  }
  append(copy.full.device, index_.residency().device_pages(index_.node(i)));
  if (core_.options.window && index_.residency().has_window(i) &&
      reserve(ComponentKind::window, num_pages, owner, copy.window.host, copy.claim)) {
    part.has_window = true;
    core_.ledger.window_pages(std::span(copy.full.device).last(num_pages), copy.window.device);
  }
  if (index_.residency().has_snapshot(i) &&
      reserve(ComponentKind::state, 1, owner, copy.state.host, copy.claim)) {
    part.state = copy.state.device.size();
    copy.state.device.push_back(page_of(index_.residency().snapshot(i)));
  }
  copy.num_pages += num_pages;
  copy.parts.push_back(part);
  return true;
}

// Undoes the last reserve_node(), whose pages were refused on this rank or another.
void HostTier::take_back_last(Copy& copy) {
  const Part part = copy.parts.back();
  copy.parts.pop_back();
  const auto take_back = [&](ComponentKind kind, Pages& pages, std::size_t first) {
    const std::size_t n = pages.device.size() - first;
    if (n == 0) return;
    settle(copy.claim, kind, n);
    pages.device.resize(first);
    if (pages.host.size() == first) return;  // refused here
    pools(kind).host->free(std::span(pages.host).subspan(first));
    pages.host.resize(first);
  };
  copy.num_pages -= copy.full.device.size() - part.full;
  take_back(ComponentKind::full, copy.full, part.full);
  take_back(ComponentKind::window, copy.window, part.window);
  take_back(ComponentKind::state, copy.state, part.state.value_or(copy.state.device.size()));
  copy.claim.refused = false;
}

// ---- Copying -----------------------------------------------------------------------------------

std::unique_ptr<HostTier::Copy> HostTier::new_copy() {
  if (spare_.empty()) return std::make_unique<Copy>();
  std::unique_ptr<Copy> copy = std::move(spare_.back());
  spare_.pop_back();
  return copy;
}

void HostTier::recycle(std::unique_ptr<Copy> copy) {
  copy->clear();
  spare_.push_back(std::move(copy));
}

void HostTier::Copy::clear() {
  parts.clear();
  for (Pages* pages : {&full, &window, &state}) {
    pages->device.clear();
    pages->host.clear();
  }
  claim = {};
  transfers.clear();
  num_pages = 0;
  broken = false;
}

bool HostTier::Copy::finished() const {
  return std::all_of(transfers.begin(), transfers.end(),
                     [](const Transfer& t) { return t.finished(); });
}

bool HostTier::Copy::wait() const {
  bool all = !broken;
  for (const Transfer& transfer : transfers) all = transfer.wait().ok() && all;
  return all;
}

std::int64_t HostTier::Copy::progress() const {
  if (!finished()) return kUnderWay;
  return wait() ? kDone : kFailed;
}

// A pool or a copier that refuses leaves the copy broken: what has begun is waited for like any
// other.
void HostTier::start_backup(Copy& copy) {
  copy.broken = copy.claim.refused;
  copy.for_each_pool(options_, [&](const TierPools& pools, Pages& pages) {
    pools.host->protect_write(pages.host);
    if (copy.broken) return;
    Result<Transfer> transfer = options_.copier->backup(
        {*pools.device, *pools.host, pages.device, pages.host}, options_.backup_stream);
    if (transfer.ok()) {
      copy.transfers.push_back(*transfer);
    } else {
      copy.broken = true;
    }
  });
}

void HostTier::hold(const Part& part) {
  const NodeIndex node = index_.resolve(part.node);
  index_.holds().lock(node);
  ++num_locks_;
  if (part.has_window) index_.holds().lock_window(node, part.begin);
  if (part.state) {
    index_.holds().lock_state(node);
    ++num_state_locks_;
  }
}

void HostTier::release(const Part& part) {
  const NodeIndex node = index_.resolve(part.node);
  PANDO_CHECK(node != kNoNode, "node {} has gone while it was copied", part.node.index);
  if (part.has_window) index_.holds().unlock_window(node, part.begin);
  if (part.state) {
    index_.holds().unlock_state(node);
    --num_state_locks_;
  }
  index_.unlock(node, core_.released);
  --num_locks_;
}

// ---- Write through -----------------------------------------------------------------------------

// From the top, so that a node's copy never comes before its parent's; it ends with the first node
// for which there is no room.
void HostTier::write_through(NodeIndex end) {
  if (options_.write_policy == WritePolicy::write_back) return;
  copy_path(end, hits_before_backup(options_.write_policy));
}

void HostTier::back_up(NodeIndex end) { copy_path(end, 0); }

void HostTier::copy_path(NodeIndex end, std::size_t enough) {
  path_.clear();
  for (NodeIndex i = end; !index_.node(i).is_root(); i = index_.node(i).parent) {
    const Node& node = index_.node(i);
    if (!node.on_host && !node.backing_up && node.hits >= enough) path_.push_back(i);
  }
  if (path_.empty()) return;
  std::unique_ptr<Copy> copy = new_copy();
  for (; !path_.empty(); path_.pop_back()) {
    if (!reserve_node(path_.back(), *copy)) break;
    index_.holds().set_backing_up(path_.back(), true);
    hold(copy->parts.back());
  }
  if (copy->parts.empty()) return recycle(std::move(copy));
  start_backup(*copy);
  backups_.push_back(std::move(copy));
}

void HostTier::apply_backup(Copy& copy, bool copied) {
  settle(copy.claim);
  copy.for_each_pool(options_, [&](const TierPools& pools, Pages& pages) {
    if (copied) {
      pools.host->complete_write(pages.host);
    } else {
      pools.host->abort_write(pages.host);
      pools.host->free(pages.host);
    }
  });
  for (const Part& part : copy.parts) {
    const NodeIndex end = index_.resolve(part.node);
    for (NodeIndex i = end; index_.node(i).end_pages > part.begin; i = index_.node(i).parent) {
      index_.holds().set_backing_up(i, false);
      if (!copied) continue;
      attach(i, part, copy, i == end);
      tell(i);
    }
    release(part);
  }
  count_backup(copy, copied);
}

// The node has its host copy, and its bytes are there.
void HostTier::tell(NodeIndex i) {
  core_.record_stored(Medium::host, i);
  if (on_backed_up) on_backed_up(i);
}

void HostTier::count_backup(const Copy& copy, bool copied) {
  stats.failed_backups += copied ? 0 : 1;
  stats.backed_up_tokens += copied ? copy.num_pages * index_.page_size() : 0;
}

// Node i is what has become of the part, or the upper end of it after a split.
void HostTier::attach(NodeIndex i, const Part& part, const Copy& copy, bool is_end) {
  const Node& node = index_.node(i);
  const std::size_t offset = node.begin_pages() - part.begin;
  Residency::HostCopy sides{
      .pages = std::span(copy.full.host).subspan(part.full + offset, node.num_pages)};
  if (part.has_window)
    sides.window_pages = std::span(copy.window.host).subspan(part.window + offset, node.num_pages);
  if (part.state && is_end) sides.snapshot = copy.state.host[*part.state];
  index_.residency().attach_host(i, sides);
}

// ---- Write back --------------------------------------------------------------------------------

bool HostTier::write_back(NodeIndex i) {
  if (options_.write_policy != WritePolicy::write_back) return false;
  index_.holds().set_backing_up(i,
                                true);  // or making room, for it or for the next one, might take it
  bool reserved = reserve_node(i, victims_);
  if (reserved && !core_.ranks.all(!victims_.claim.refused)) {
    take_back_last(victims_);
    ++stats.refused_backups;
    reserved = false;
  }
  if (!reserved) {
    index_.holds().set_backing_up(i, false);
    return false;
  }
  settle(victims_.claim);
  attach(i, victims_.parts.back(), victims_, /*is_end=*/true);
  return true;
}

// The nodes are on the host already as far as the tree is concerned; nobody has seen that yet. Some
// may have gone again, with a parent for which there was no room: then their pages are filled for
// nothing.
void HostTier::finish_write_back() {
  if (victims_.parts.empty()) return;
  Copy copy = std::move(victims_);
  victims_ = {};
  start_backup(copy);
  const bool copied = core_.ranks.all(copy.wait());
  copy.for_each_pool(options_, [&](const TierPools& pools, Pages& pages) {
    // Even of a failed copy: its nodes go at once.
    pools.host->complete_write(pages.host, /*on_device=*/false);
  });
  Evicted dropped;
  for (const Part& part : copy.parts) {
    const NodeIndex i = index_.resolve(part.node);
    if (i == kNoNode) continue;
    index_.holds().set_backing_up(i, false);
    if (copied) {
      tell(i);
      index_.evictor().drop_if_bare(i, core_.released, dropped);
    } else {
      index_.evictor().drop_subtree(i, core_.released, dropped);
    }
  }
  count_backup(copy, copied);
}

// ---- Polling -----------------------------------------------------------------------------------

void HostTier::report(std::vector<std::int64_t>& values) const {
  report_in_order(backups_, values, [](const auto& copy) { return copy->progress(); });
  report_in_order(loads_, values, [](const Load& load) { return load.copy.progress(); });
}

void HostTier::apply(std::span<const std::int64_t> values, PollResult& result) {
  const std::span of_backups = values.first(backups_.size());
  const std::span of_loads = values.subspan(of_backups.size());
  for (const std::int64_t value : of_backups) {
    if (value == kUnderWay) break;
    std::unique_ptr<Copy> copy = std::move(backups_.front());
    backups_.pop_front();
    apply_backup(*copy, value == kDone);
    recycle(std::move(copy));
    ++(value == kDone ? result.backups : result.failures);
  }
  for (const std::int64_t value : of_loads) {
    if (value == kUnderWay) break;
    Load load = std::move(loads_.front());
    loads_.pop_front();
    apply_load(load, value == kDone);
    ++(value == kDone ? result.loads : result.failures);
  }
}

void HostTier::drain() {
  for (const auto& copy : backups_) copy->wait();
  for (Load& load : loads_) load.copy.wait();
  std::vector<std::int64_t> values;
  report(values);
  PollResult ignored;
  apply(values, ignored);
}

void HostTier::note_demotions(Released& released) {
  const auto pass_on = [](HostPool* pool, std::vector<HostPageId>& pages) {
    if (!pages.empty()) pool->device_gone(pages);
    pages.clear();
  };
  pass_on(options_.full.host, released.demoted_pages);
  pass_on(options_.window.host, released.demoted_window_pages);
  pass_on(options_.state.host, released.demoted_snapshots);
}

void HostTier::give_back(Released& released) {
  note_demotions(released);
  const auto pass_on = [](HostPool* pool, std::vector<HostPageId>& pages) {
    if (!pages.empty()) pool->free(pages);
    pages.clear();
  };
  pass_on(options_.full.host, released.host_pages);
  pass_on(options_.window.host, released.host_window_pages);
  pass_on(options_.state.host, released.host_snapshots);
}

void HostTier::device_came(NodeIndex i, bool pages, bool window, bool snapshot) {
  const Node& node = index_.node(i);
  if (pages) options_.full.host->device_came(index_.residency().host_pages(node));
  if (window && index_.residency().has_host_window(i))
    options_.window.host->device_came(index_.residency().host_window_pages(node));
  if (!snapshot || !index_.residency().has_host_snapshot(i)) return;
  const HostPageId page = index_.residency().host_snapshot(i);
  options_.state.host->device_came({&page, 1});
}

// ---- Proving -----------------------------------------------------------------------------------

Status HostTier::check(const Reserved& fetching, const Claim& claimed) const {
  for (const ComponentKind kind : kComponents) {
    std::size_t sum = claimed.pages[at(kind)];
    for (const auto& copy : backups_) sum += copy->claim.pages[at(kind)];
    if (sum != under_way_[at(kind)])
      return make_error(ErrorCode::corrupt, "{} host pages of component {} are claimed, counted {}",
                        sum, at(kind), under_way_[at(kind)]);
  }
  struct Expected {
    const HostPool* pool;
    const char* name;
    std::vector<std::optional<PageState>> states;
  };
  const auto expect = [](const HostPool* pool, const char* name) {
    return Expected{pool, name,
                    std::vector<std::optional<PageState>>(pool ? pool->num_pages() : 0)};
  };
  Expected full = expect(options_.full.host, "full");
  Expected window = expect(options_.window.host, "window");
  Expected state = expect(options_.state.host, "state");
  Status status;
  const auto own = [&](Expected& of, std::span<const HostPageId> pages, PageState state_of) {
    for (const HostPageId page : pages) {
      auto& expected = of.states[index_of(page)];
      if (expected && expected != PageState::loading)
        status = make_error(ErrorCode::corrupt, "{} host page {} has two owners", of.name,
                            index_of(page));
      if (!expected) expected = state_of;
    }
  };
  for (const Load& load : loads_) {
    own(full, load.copy.full.host, PageState::loading);
    own(window, load.copy.window.host, PageState::loading);
    own(state, load.copy.state.host, PageState::loading);
  }
  for (const auto& copy : backups_) {
    own(full, copy->full.host, PageState::writing);
    own(window, copy->window.host, PageState::writing);
    own(state, copy->state.host, PageState::writing);
  }
  own(full, fetching.full, PageState::writing);
  own(window, fetching.window, PageState::writing);
  own(state, fetching.state, PageState::writing);
  const auto state_of = [](bool on_device) {
    return on_device ? PageState::synced : PageState::backed_up;
  };
  index_.tree().for_each_node([&](NodeIndex i, const Node& node) {
    if (node.on_host) own(full, index_.residency().host_pages(node), state_of(node.on_device()));
    if (index_.residency().has_host_window(i))
      own(window, index_.residency().host_window_pages(node),
          state_of(index_.residency().has_window(i)));
    if (!index_.residency().has_host_snapshot(i)) return;
    const HostPageId page = index_.residency().host_snapshot(i);
    own(state, {&page, 1}, state_of(index_.residency().has_snapshot(i)));
  });
  if (!status.ok()) return status;
  for (const Expected* of : {&full, &window, &state}) {
    for (std::uint32_t p = 0; p < of->states.size(); ++p) {
      const PageState expected = of->states[p].value_or(PageState::idle);
      if (of->pool->state(HostPageId{p}) != expected)
        return make_error(ErrorCode::corrupt, "{} host page {} is {}, expected {}", of->name, p,
                          to_string(of->pool->state(HostPageId{p})), to_string(expected));
    }
  }
  return {};
}

}  // namespace pando
