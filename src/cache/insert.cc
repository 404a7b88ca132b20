// SPDX-License-Identifier: Apache-2.0
// PrefixCache::insert, in two steps that checkpoint and finish share: plan_insert compares the
// caller's slots with the tree's and claims what the tree will take, or refuses and changes
// nothing; apply_insert cannot fail.
//
// Of the pages that the tree has already, the caller's own are duplicates. With a window component
// some of the tree's may be tombstones, which nothing can be matched at: there the caller's pages,
// as far as they have a window, bring it back (a Revival). Where the tree has pages on the host
// only, the caller's put them on the device (an Adoption).
#include <algorithm>

#include "base/bulk.h"
#include "base/check.h"
#include "base/tokens.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"
#include "pando/observer.h"

namespace pando {

// ---- Planning ----------------------------------------------------------------------------------

Result<PrefixCacheImpl::InsertPlan> PrefixCacheImpl::plan_insert(
    const Key& key, std::span<const SlotId> slots, const InsertOptions& insert_options) {
  const std::size_t page_size = index.page_size();
  const Result<NodeIndex> held = held_node(key, insert_options);
  if (!held) return held.error();
  const InsertPlan plan{*held == kNoNode ? index.tree().descend(key, nullptr)
                                         : index.tree().descend_behind(*held, key),
                        index.tree().shape().num_pages(key),
                        insert_options.window_released / page_size};
  if (Status s = refuse_insert(plan, insert_options); !s) return s.error();
  const std::size_t existing = plan.cursor.pages * page_size;
  if (Status s = refuse_negative(key.tokens, existing, key.tokens.size(), "insert"); !s)
    return s.error();
  new_pages.clear();
  revived_pages.clear();
  revivals.clear();
  adopted_pages.clear();
  adoptions.clear();
  duplicates.clear();
  Status status = plan_existing(plan, slots, insert_options.owned_by_tree / page_size,
                                /*look_at_last=*/*held == kNoNode);
  if (status.ok()) status = plan_new(plan, slots);
  // Claiming proved that the duplicates are the caller's and differ; they are not kept.
  for (const PageId page : duplicates) ledger.unclaim(page);
  if (status.ok()) return plan;
  for (const std::uint32_t page : adopted_pages) ledger.unclaim(PageId{page});
  for (const std::uint32_t page : revived_pages) ledger.unclaim(PageId{page});
  return Error{status.error().code, "insert: " + status.error().message};
}

// Where the lease of the options ends; nothing without one, or one that holds nothing.
Result<NodeIndex> PrefixCacheImpl::held_node(const Key& key, const InsertOptions& o) const {
  if (o.held == nullptr) return kNoNode;
  const NodeIndex node = index.resolve(o.held->node());
  const std::size_t pages = node == kNoNode ? 0 : index.node(node).end_pages;
  const std::size_t length = pages * index.page_size();
  if (length != o.owned_by_tree || pages > index.tree().shape().num_pages(key))
    return make_error(ErrorCode::invalid_argument,
                      "insert: the lease holds {} tokens; expected the first {} of a key of {}",
                      length, o.owned_by_tree, key.tokens.size());
  if (node != kNoNode && index.tree().namespace_of(node) != key.ns)
    return make_error(ErrorCode::invalid_argument,
                      "insert: the lease is in namespace '{}', the key in '{}'",
                      index.tree().namespace_of(node), key.ns);
  return node;
}

Status PrefixCacheImpl::refuse_insert(const InsertPlan& plan, const InsertOptions& o) const {
  const std::size_t page_size = index.page_size();
  const std::size_t existing = index.matcher().device_end(plan.cursor).pages * page_size;
  if (o.owned_by_tree % page_size != 0 || o.owned_by_tree > existing)
    return make_error(ErrorCode::invalid_argument,
                      "insert: the first {} slots are said to be the tree's, which holds {} tokens "
                      "of this key; expected a multiple of the page size {}, at most that",
                      o.owned_by_tree, existing, page_size);
  if (o.window_released != 0 && !options.window)
    return make_error(ErrorCode::invalid_argument,
                      "insert: window_released is {}, but this cache has no window component",
                      o.window_released);
  if (o.window_released % page_size != 0 || plan.released_pages > plan.num_pages ||
      (plan.released_pages == plan.num_pages && plan.num_pages > plan.cursor.pages))
    return make_error(ErrorCode::invalid_argument,
                      "insert: window_released is {}; expected a multiple of the page size {} that "
                      "leaves a window at the end of {} tokens",
                      o.window_released, page_size, plan.num_pages * page_size);
  if (!options.state && o.snapshot)
    return make_error(ErrorCode::invalid_argument,
                      "insert: a snapshot is given, but this cache has no state component");
  if (!options.state) return {};
  if (!o.snapshot)
    return make_error(ErrorCode::invalid_argument,
                      "insert: expected a snapshot of the state after token {}: nothing could be "
                      "matched there without",
                      plan.num_pages * page_size);
  if (Status s = states.refuse_foreign(o.snapshot); !s)
    return Error{s.error().code, "insert: " + s.error().message};
  return {};
}

// The pages that the tree has: the caller's own for them are duplicates, or revive a tombstone.
Status PrefixCacheImpl::plan_existing(const InsertPlan& plan, std::span<const SlotId> slots,
                                      std::size_t owned_pages, bool look_at_last) {
  const std::size_t page_size = index.page_size();
  Status status;
  index.tree().for_each_on_path(plan.cursor, [&](NodeIndex node, std::size_t first,
                                                 std::uint32_t n) {
    if (!index.node(node).on_device()) {
      if (status.ok()) status = plan_adoption(plan, node, first, n, slots.data());
      return;
    }
    const std::uint32_t* pages = index.node(node).pages;
    const bool tombstone = !index.residency().has_window(node);
    std::uint32_t revived = 0;  // pages at the end of the node
    // Of the pages said to be the tree's, the last one is looked at: it stands for those before.
    const std::size_t from =
        look_at_last ? std::max(owned_pages, first + 1) - 1 : std::max(owned_pages, first);
    for (std::size_t i = first + n; i-- > from && status.ok();) {
      const SlotId* at = slots.data() + i * page_size;
      const auto tree_slot = static_cast<std::int64_t>(pages[i - first] * page_size);
      if (index_of(at[0]) == tree_slot) {  // the tree's own slots came back
        if (i >= owned_pages) status = ledger.refuse_broken_page(at, i * page_size);
        continue;
      }
      if (i < owned_pages) {
        status = make_error(ErrorCode::invalid_argument,
                            "slot {} at position {} is said to be the tree's, which has slot {}",
                            index_of(at[0]), i * page_size, tree_slot);
        return;
      }
      const bool revives = tombstone && i >= plan.released_pages && i + revived + 1 == first + n;
      std::uint32_t page;
      status = ledger.claim(at, 1, &page, i * page_size, revives);
      if (!status.ok()) return;
      if (revives) {
        revived_pages.push_back(page);
        ++revived;
      } else {
        duplicates.push_back(PageId{page});
      }
    }
    if (revived > 0) plan_revival(node, n, revived);
  });
  return status;
}

// The last `num_revived` of the first `num_pages` of the node; their pages were found backwards.
void PrefixCacheImpl::plan_revival(NodeIndex node, std::uint32_t num_pages,
                                   std::uint32_t num_revived) {
  const std::size_t offset = revived_pages.size() - num_revived;
  std::reverse(revived_pages.begin() + static_cast<std::ptrdiff_t>(offset), revived_pages.end());
  revivals.push_back({.node = node,
                      .first = num_pages - num_revived,
                      .num_pages = num_revived,
                      .offset = offset,
                      .replace = index.node(node).locks == 0});
}

Status PrefixCacheImpl::plan_adoption(const InsertPlan& plan, NodeIndex node, std::size_t first,
                                      std::uint32_t n, const SlotId* slots) {
  const std::size_t page_size = index.page_size();
  const std::size_t offset = adopted_pages.size();
  const auto released = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(plan.released_pages, first, first + n) - first);
  adopted_pages.resize(offset + n);
  const auto claim = [&](std::size_t from, std::size_t count, bool with_window) {
    return ledger.claim(slots + (first + from) * page_size, count,
                        adopted_pages.data() + offset + from, (first + from) * page_size,
                        with_window);
  };
  Status status = claim(0, released, false);
  if (status.ok()) {
    status = claim(released, n - released, options.window.has_value());
    if (!status.ok()) adopted_pages.resize(offset + released);  // what is to be unclaimed
  } else {
    adopted_pages.resize(offset);
  }
  if (status.ok()) adoptions.push_back({node, first, n, released, offset});
  return status;
}

Status PrefixCacheImpl::plan_new(const InsertPlan& plan, std::span<const SlotId> slots) {
  const std::size_t page_size = index.page_size();
  const std::size_t begin = plan.cursor.pages;
  const std::size_t buried = std::max(plan.released_pages, begin) - begin;
  new_pages.resize(plan.num_pages - begin);
  const auto claim = [&](std::size_t first, std::size_t n, bool with_window) {
    return ledger.claim(slots.data() + (begin + first) * page_size, n, new_pages.data() + first,
                        (begin + first) * page_size, with_window);
  };
  if (Status s = claim(buried, new_pages.size() - buried, options.window.has_value()); !s) return s;
  if (buried == 0) return {};
  Status status = claim(0, buried, false);
  if (status.ok()) return status;
  for (std::size_t i = buried; i < new_pages.size(); ++i) ledger.unclaim(PageId{new_pages[i]});
  return status;
}

// ---- Applying ----------------------------------------------------------------------------------

Inserted PrefixCacheImpl::apply_insert(const InsertPlan& plan, const Key& key,
                                       const InsertOptions& insert_options) {
  const std::size_t page_size = index.page_size();
  NodeIndex end =
      plan.cursor.node == kNoNode ? index.root(key.ns) : index.tree().split_at(plan.cursor);
  const std::size_t adopted = apply_adoptions(plan, end);
  const std::size_t revived = apply_revivals(plan, end);
  const std::size_t freed = duplicates.size() + released.pages.size();
  if (!new_pages.empty()) end = apply_new(plan, key, end);
  if (options.state) apply_snapshot(end, insert_options.snapshot);
  index.touch_insert(end, {.priority = insert_options.priority,
                           .chunked = insert_options.chunked,
                           .unfinished = insert_options.unfinished});
  if (sessions.contains(insert_options.session.value)) {
    use_session(insert_options.session, end);
  } else {
    index.retention().note_common_use(end);
  }
  if (tier) {
    tier->inserted(end);
    tier->engine.stats.recomputed_tokens += adopted * page_size;
  }
  ledger.release(std::span<const PageId>(duplicates));
  give_back();
  stats.inserted_tokens += new_pages.size() * page_size;
  stats.duplicate_tokens += freed * page_size;
  stats.revived_tokens += revived * page_size;
  const Inserted inserted{.length = plan.num_pages * page_size,
                          .existing = plan.cursor.pages * page_size,
                          .freed = freed * page_size,
                          .revived = revived * page_size,
                          .node = index.id(end),
                          .cache = cache_id};
  if (observer != nullptr) observer->on_insert(key, inserted);
  return inserted;
}

// From the top: what is on the device has its parent there. Returns the number of pages adopted.
std::size_t PrefixCacheImpl::apply_adoptions(const InsertPlan& plan, NodeIndex end) {
  for (std::size_t i = adoptions.size(); i-- > 0;) {
    const Adoption& a = adoptions[i];
    const NodeIndex node = a.node == plan.cursor.node ? end : a.node;
    const std::span pages(adopted_pages.data() + a.offset, a.num_pages);
    const std::uint32_t without = a.without_window;
    if (without == a.num_pages) {
      adopt(node, pages, false);
      continue;
    }
    if (without > 0)
      adopt(index.tree().split_at({node, without, a.first + without}), pages.first(without), false);
    adopt(node, pages.subspan(without), true);
  }
  return adopted_pages.size();
}

void PrefixCacheImpl::adopt(NodeIndex node, std::span<const std::uint32_t> pages,
                            bool with_window) {
  index.residency().attach_device(node, pages, with_window);
  tier->device_came(node, /*pages=*/true, with_window, /*snapshot=*/false);
  record_stored(Tier::device, node);
  if (with_window || ledger.window_allocator() == nullptr) return;
  // Pando's own allocator knows whether they really have given it back.
  for (const std::uint32_t page : pages) released.window_pages.push_back(PageId{page});
}

// `end` is where the plan's cursor is now. Returns the number of pages revived.
std::size_t PrefixCacheImpl::apply_revivals(const InsertPlan& plan, NodeIndex end) {
  for (const Revival& revival : revivals) {
    const NodeIndex node = revival.node == plan.cursor.node ? end : revival.node;
    const std::span pages(revived_pages.data() + revival.offset, revival.num_pages);
    const std::uint32_t* old = index.node(node).pages + revival.first;
    if (revival.replace) {
      for (std::size_t i = 0; i < pages.size(); ++i) released.pages.push_back(PageId{old[i]});
      index.residency().attach_window(node, revival.first, pages);
      if (tier) tier->device_came(node, /*pages=*/false, /*window=*/true, /*snapshot=*/false);
      continue;
    }
    for (std::size_t i = 0; i < pages.size(); ++i) {
      ledger.move_window(PageId{pages[i]}, PageId{old[i]});
      duplicates.push_back(PageId{pages[i]});
    }
    index.residency().attach_window(node, revival.first, {});
    if (tier) tier->device_came(node, /*pages=*/false, /*window=*/true, /*snapshot=*/false);
  }
  return revived_pages.size();
}

// The leaf, of which the part before `released_pages` is a tombstone.
NodeIndex PrefixCacheImpl::apply_new(const InsertPlan& plan, const Key& key, NodeIndex parent) {
  const std::size_t page_size = index.page_size();
  const std::size_t begin = plan.cursor.pages;
  const NodeIndex end = index.add_leaf(parent, key.tokens.data() + begin * page_size, new_pages);
  record_stored(Tier::device, end);
  if (plan.released_pages > begin) {
    const std::size_t buried = plan.released_pages - begin;
    index.residency().bury_head(end, static_cast<std::uint32_t>(buried));
    // Pando's own allocator knows whether they really have given it back.
    for (std::size_t i = 0; i < buried && ledger.window_allocator() != nullptr; ++i)
      released.window_pages.push_back(PageId{new_pages[i]});
  }
  return end;
}

void PrefixCacheImpl::apply_snapshot(NodeIndex end, StateSlot snapshot) {
  if (index.residency().has_snapshot(end)) {
    released.snapshots.push_back(snapshot);  // a duplicate
    return;
  }
  states.claim(snapshot);
  index.residency().attach_snapshot(end, snapshot);
  if (tier) tier->device_came(end, /*pages=*/false, /*window=*/false, /*snapshot=*/true);
  index.evictor().thin_snapshots(end, released);
}

Result<Inserted> PrefixCacheImpl::insert(const Key& key, std::span<const SlotId> slots,
                                         const InsertOptions& given) {
  const std::size_t page_size = index.page_size();
  if (slots.size() != key.tokens.size())
    return make_error(ErrorCode::invalid_argument,
                      "insert: {} slots for {} tokens; expected one for each", slots.size(),
                      key.tokens.size());
  if (given.session) {
    if (Status s = refuse_session(given.session, "insert"); !s) return s.error();
  }
  for (const RetentionRange& range : given.retention) {
    if (Status s = refuse_range(range, "insert"); !s) return s.error();
    if (Status s = refuse_outside(range, key.tokens.size(), /*grows=*/false, "insert"); !s)
      return s.error();
  }
  const std::size_t num_pages = index.tree().shape().num_pages(key);
  if (num_pages == 0)
    return make_error(ErrorCode::invalid_argument,
                      "insert: a key of {} tokens does not fill a page of {}; nothing to keep",
                      key.tokens.size(), page_size);
  if (options.disabled) {
    if (given.snapshot) {
      if (Status s = states.refuse_foreign(given.snapshot); !s) return s.error();
      states.release({&given.snapshot, 1});
    }
    ledger.release(slots.first(num_pages * page_size));
    ledger.flush();
    return Inserted{.length = 0, .existing = 0, .freed = num_pages * page_size, .node = {}};
  }
  if (given.held != nullptr && *given.held && given.held->cache_ != this)
    return make_error(ErrorCode::invalid_argument, "insert: the lease is of another cache");
  const Result<InsertPlan> plan = plan_insert(key, slots, given);
  if (!plan) return plan.error();
  Inserted inserted = apply_insert(*plan, key, given);
  const NodeIndex end = index.resolve(inserted.node);
  inserted.widened_ranges = retain(end, given.retention);
  enforce_cap(index.node(end).owner, end);
  ledger.flush();
  return inserted;
}

}  // namespace pando
