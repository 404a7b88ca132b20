// SPDX-License-Identifier: Apache-2.0
// Loading back: what of a path the device lacks, room for it, the copies, and their
// acknowledgement. Before commit() nothing has changed that anyone could see, but that the device
// may have evicted something for it.
#include <algorithm>
#include <utility>

#include "base/append.h"
#include "base/check.h"
#include "cache/tree_tiers.h"

namespace pando {
namespace {

constexpr std::size_t kFull = 0, kWindow = 1, kState = 2;  // as ComponentKind

}  // namespace

/// What the path to `end` lacks on the device, and what is being taken for it.
struct TreeTiers::LoadPlan {
  NodeIndex end = kNoNode;
  std::vector<NodeIndex> nodes;    // not on the device, from the top
  std::vector<NodeIndex> windows;  // within the window of the end, without one on the device
  std::uint32_t window_from = 0;   // pages from the root: where the window of the end begins
  bool wants_window = false;       // the cache has windows, and the end is not the root
  bool wants_snapshot = false;
  std::size_t num_pages = 0;         // of `nodes`
  std::size_t num_window_pages = 0;  // of `windows`

  // Taken on the device, and being filled.
  std::unique_ptr<PageCopy> copy;
  std::vector<PageId> without_window;  // that have been given one, in the order of `windows`
  StateSlot snapshot = {};
};

// A node across the beginning of the window is split there first: only its lower part is loaded.
TreeTiers::LoadPlan TreeTiers::plan_load(NodeIndex end) {
  LoadPlan plan;
  plan.copy = engine.new_load();
  plan.end = end;
  const std::uint32_t end_pages = index_.node(end).end_pages;
  if (core_.options.window) {
    plan.wants_window = true;
    plan.window_from = end_pages - static_cast<std::uint32_t>(std::min<std::size_t>(
                                       end_pages, index_.matcher().window_pages()));
    NodeIndex i = end;
    while (index_.node(i).begin_pages() > plan.window_from) i = index_.node(i).parent;
    if (index_.node(i).begin_pages() < plan.window_from)
      index_.tree().split_at(
          {i, plan.window_from - index_.node(i).begin_pages(), plan.window_from});
    for (i = end; index_.node(i).end_pages > plan.window_from; i = index_.node(i).parent) {
      if (index_.residency().has_window(i)) continue;
      plan.windows.push_back(i);
      plan.num_window_pages += index_.node(i).num_pages;
    }
  }
  for (NodeIndex i = end; !index_.node(i).is_root() && !index_.node(i).on_device();
       i = index_.node(i).parent) {
    plan.nodes.push_back(i);
    plan.num_pages += index_.node(i).num_pages;
  }
  std::reverse(plan.nodes.begin(), plan.nodes.end());
  plan.wants_snapshot = core_.options.state && !index_.residency().has_snapshot(end);
  return plan;
}

std::size_t TreeTiers::load_bytes(const LoadPlan& plan) const {
  std::size_t size_bytes = plan.num_pages * options_.full.host->page_bytes();
  if (plan.num_window_pages > 0)
    size_bytes += plan.num_window_pages * options_.window.host->page_bytes();
  if (plan.wants_snapshot) size_bytes += options_.state.host->page_bytes();
  return size_bytes;
}

// ---- Room on the device ------------------------------------------------------------------------

// Of an engine's own slots nobody here knows how many are free: they are asked for.
Evictor::Goal TreeTiers::shortage(const LoadPlan& plan) const {
  const auto beyond = [](std::size_t wanted, std::size_t available) {
    return wanted - std::min(wanted, available);
  };
  Evictor::Goal goal{.by = index_.node(plan.end).owner, .incoming_pages = plan.num_pages};
  if (const PagedAllocator* full = core_.ledger.full_side())
    goal.pages = beyond(plan.num_pages, full->available_pages());
  if (const WindowAllocator* both = core_.ledger.window_allocator())
    goal.window_pages = beyond(plan.num_window_pages, both->window().available_pages());
  if (plan.wants_snapshot) goal.snapshots = beyond(1, core_.states.pool()->available());
  return goal;
}

// Evicting less than what is missing would be for nothing.
bool TreeTiers::can_evict(const Evictor::Goal& goal) const {
  const auto has = [&](ComponentKind kind, std::size_t n) {
    return n == 0 || n <= index_.shelves().shelf(Tier::device, kind)->available_to(goal.by);
  };
  if (!has(ComponentKind::state, goal.snapshots)) return false;
  if (core_.ledger.full_side() == nullptr) return true;
  return has(ComponentKind::full, goal.pages) && has(ComponentKind::window, goal.window_pages);
}

// Returns what was refused; nothing if all is taken.
Evictor::Goal TreeTiers::take_pages(LoadPlan& plan) {
  std::vector<PageId>& taken = plan.copy->of[kFull].device;
  if (plan.num_pages > 0 && !core_.ledger.alloc(plan.num_pages, taken).ok())
    return {.pages = plan.num_pages};

  std::vector<PageId> without_window;
  std::size_t offset = taken.size();
  for (const NodeIndex i : plan.windows) {  // from the end up
    const Node& node = index_.node(i);
    std::span<const PageId> pages = index_.residency().device_pages(node);
    if (!node.on_device()) {
      offset -= node.num_pages;
      pages = std::span(taken).subspan(offset, node.num_pages);
    }
    append(without_window, pages);
  }
  if (!without_window.empty()) {
    if (!core_.ledger.alloc_window(without_window).ok())
      return {.window_pages = without_window.size()};
    core_.ledger.window_pages(without_window, plan.copy->of[kWindow].device);
    plan.without_window = std::move(without_window);
  }
  if (!plan.wants_snapshot) return {};
  const std::optional<StateSlot> slot = core_.states.pool()->alloc();
  if (!slot) return {.snapshots = 1};
  plan.snapshot = *slot;
  plan.copy->of[kState].device.push_back(page_of(*slot));
  return {};
}

// Gives back what was taken on the device.
void TreeTiers::give_up(LoadPlan& plan) {
  if (plan.snapshot) core_.states.release({&plan.snapshot, 1});
  // Those of nodes that were on the device already keep their page and lose the window again.
  core_.ledger.release_window(std::span<const PageId>(plan.without_window));
  core_.ledger.release(std::span<const PageId>(plan.copy->of[kFull].device));
  core_.ledger.flush();
  plan.copy->clear();
  plan.without_window.clear();
  plan.snapshot = {};
}

// ---- Copying -----------------------------------------------------------------------------------

// Unless it succeeds nothing is under way.
Status TreeTiers::start_load(LoadPlan& plan, LoadOrder order) {
  PageCopy& copy = *plan.copy;
  for (const NodeIndex i : plan.nodes)
    append(copy.of[kFull].host, index_.residency().host_pages(index_.node(i)));
  for (const NodeIndex i : plan.windows)
    append(copy.of[kWindow].host, index_.residency().host_window_pages(index_.node(i)));
  if (plan.wants_snapshot)
    copy.of[kState].host.push_back(index_.residency().host_snapshot(plan.end));
  copy.for_each([&](std::size_t c, const PageCopy::Pages& pages) {
    engine.room.pool(c).protect_load(pages.host);
  });
  Status status = engine.start_load(copy, order);
  if (!status.ok()) abort_load(plan);
  return status;
}

void TreeTiers::abort_load(LoadPlan& plan) {
  plan.copy->stop();
  plan.copy->for_each([&](std::size_t c, const PageCopy::Pages& pages) {
    engine.room.pool(c).abort_load(pages.host);
  });
}

// With what is free; or after evicting what any rank was short of, once for each component. In the
// end all ranks have it under way, or none has taken anything.
Result<bool> TreeTiers::try_load(LoadPlan& plan, LoadOrder order) {
  Evictor::Goal evicted;
  const auto again = [](std::size_t& before, std::size_t now) {
    return now > 0 && std::exchange(before, now) > 0;
  };
  while (true) {
    Evictor::Goal goal = shortage(plan);
    if (!goal.any()) goal = take_pages(plan);
    const bool taken = !goal.any();
    const Status started = taken ? start_load(plan, order) : Status{};
    const bool here = taken && started.ok();
    std::int64_t values[] = {here, started.ok(), -static_cast<std::int64_t>(goal.pages),
                             -static_cast<std::int64_t>(goal.window_pages),
                             -static_cast<std::int64_t>(goal.snapshots)};
    core_.ranks.least(values);
    if (values[0] != 0) return true;
    if (here) abort_load(plan);
    give_up(plan);
    if (!started.ok()) return started.error();
    if (values[1] == 0)
      return make_error(ErrorCode::unavailable, "load_back: {}",
                        core_.ranks.lost() ? "the ranks have lost each other"
                                           : "the copier of another rank has refused");
    goal = {.pages = static_cast<std::size_t>(-values[2]),
            .window_pages = static_cast<std::size_t>(-values[3]),
            .snapshots = static_cast<std::size_t>(-values[4]),
            .by = index_.node(plan.end).owner,
            .incoming_pages = plan.num_pages};
    if (!can_evict(goal) || again(evicted.pages, goal.pages) ||
        again(evicted.window_pages, goal.window_pages) || again(evicted.snapshots, goal.snapshots))
      return false;
    evict_(goal);
  }
}

// ---- Loading -----------------------------------------------------------------------------------

void TreeTiers::commit(LoadPlan& plan) {
  std::size_t offset = 0;
  const auto has_new_window = [&](NodeIndex i) {
    return std::find(plan.windows.begin(), plan.windows.end(), i) != plan.windows.end();
  };
  for (const NodeIndex i : plan.nodes) {
    const std::uint32_t n = index_.node(i).num_pages;
    const auto* pages = reinterpret_cast<const std::uint32_t*>(plan.copy->of[kFull].device.data());
    index_.residency().attach_device(i, {pages + offset, n}, has_new_window(i));
    core_.record_stored(Tier::device, i);
    offset += n;
  }
  for (const NodeIndex i : plan.windows) {
    if (!index_.residency().has_window(i)) index_.residency().attach_window(i);
  }
  if (plan.snapshot) {
    core_.states.claim(plan.snapshot);
    index_.residency().attach_snapshot(plan.end, plan.snapshot);
  }
  const NodeIndex top_window = plan.windows.empty() ? plan.end : plan.windows.back();
  const NodeIndex top_node = plan.nodes.empty() ? plan.end : plan.nodes.front();
  HeldPath& held = loading_.emplace_back();
  held.begin = std::min(index_.node(top_window).begin_pages(), index_.node(top_node).begin_pages());
  held.end = {.entry = entry_of(index_.id(plan.end)), .begin = plan.window_from};
  if (plan.wants_window) held.end.components |= 1u << kWindow;
  if (core_.options.state) held.end.components |= 1u << kState;
  hold(held.end);
  index_.holds().lock_host(plan.end);
  ++num_host_locks_;
  plan.copy->num_tokens = plan.num_pages * index_.page_size();
  engine.commit_load(std::move(plan.copy));
}

Result<LoadOutcome> TreeTiers::load(NodeIndex end, std::size_t from,
                                    const LoadBackOptions& load_options) {
  const std::size_t page_size = index_.page_size();
  const std::size_t gained = (index_.node(end).end_pages - from) * page_size;
  if (gained == 0) return LoadOutcome::nothing_to_load;
  if (gained < options_.load_back_threshold) return LoadOutcome::below_threshold;
  LoadPlan plan = plan_load(end);
  if (load_options.quota_tokens && plan.num_pages * page_size > *load_options.quota_tokens)
    return LoadOutcome::over_quota;
  if (!engine.is_worth_loading(load_bytes(plan), gained)) return LoadOutcome::recompute;

  // Against our own eviction: the path as far as the device has it, and of the window and the
  // snapshot what it has.
  std::vector<NodeIndex> kept_windows;
  if (plan.wants_window) {
    for (NodeIndex i = end; index_.node(i).end_pages > plan.window_from;
         i = index_.node(i).parent) {
      if (index_.residency().has_window(i)) kept_windows.push_back(i);
    }
  }
  const NodeIndex anchor = plan.nodes.empty() ? end : index_.node(plan.nodes.front()).parent;
  const bool keeps_snapshot = core_.options.state && !plan.wants_snapshot;
  const bool has_anchor = !index_.node(anchor).is_root();
  if (has_anchor) index_.holds().lock(anchor);
  for (const NodeIndex i : kept_windows)
    index_.holds().lock_window(i, index_.node(i).begin_pages());
  if (keeps_snapshot) index_.holds().lock_state(end);
  index_.holds().lock_host(end);
  const Result<bool> loads = try_load(plan, load_options.order);
  if (loads.ok() && *loads) commit(plan);
  index_.unlock_host(end, core_.released);
  if (keeps_snapshot) index_.holds().unlock_state(end);
  for (const NodeIndex i : kept_windows)
    index_.holds().unlock_window(i, index_.node(i).begin_pages());
  if (has_anchor) index_.unlock(anchor, core_.released);
  if (!loads.ok()) return loads.error();
  return *loads ? LoadOutcome::loaded : LoadOutcome::no_room;
}

// Nodes may have been split since: what a failed load was to fill begins at a page.
void TreeTiers::load_ended(PageCopy& copy, bool loaded) {
  const HeldPath held = loading_.front();
  loading_.pop_front();
  NodeIndex top = resolve(held.end.entry);
  while (index_.node(top).begin_pages() > held.begin) top = index_.node(top).parent;
  const NodeId top_id = index_.id(top);
  copy.for_each([&](std::size_t c, const PageCopy::Pages& pages) {
    engine.room.pool(c).complete_load(pages.host);  // even of a failed one: its nodes are cut off
  });
  index_.unlock_host(resolve(held.end.entry), core_.released);
  --num_host_locks_;
  release(held.end);
  if (loaded) return;
  top = index_.resolve(top_id);
  if (top != kNoNode && !index_.node(top).cut_off) index_.evictor().cut_off(top, core_.released);
}

}  // namespace pando
