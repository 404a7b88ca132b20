// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on running requests: start, allocate, checkpoint, finish. They combine
// those on keys so that at every moment each slot of the request is the tree's (before
// cached_length) or its own (from there on).
#include <algorithm>
#include <numeric>

#include "base/bulk.h"
#include "base/check.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"

namespace pando {
namespace {

Status validate(const Request& request, const char* caller) {
  if (request.slots.size() < request.key.tokens.size())
    return make_error(ErrorCode::invalid_argument,
                      "{}: {} slots for {} tokens; expected at least one for each", caller,
                      request.slots.size(), request.key.tokens.size());
  if (request.cached_length > request.key.tokens.size())
    return make_error(ErrorCode::invalid_argument, "{}: {} tokens cached of {}", caller,
                      request.cached_length, request.key.tokens.size());
  for (const RetentionRange& range : request.retention) {
    if (Status s = refuse_range(range, caller); !s) return s;
  }
  return {};
}

}  // namespace

Result<Match> PrefixCache::quiet_start(Request& request) {
  if (request.session) {
    if (Status s = impl_->refuse_session(request.session, "start"); !s) return s.error();
  }
  for (const RetentionRange& range : request.retention) {
    const std::size_t length = request.key.tokens.size();
    if (Status s = refuse_range(range, "start"); !s) return s.error();
    if (Status s = refuse_outside(range, length, /*grows=*/true, "start"); !s) return s.error();
  }
  if (request.lease || request.cached_length != 0)
    return make_error(ErrorCode::in_use, "start: the request has started already");
  if (Status s = validate(request, "start"); !s) return s.error();
  // One token is left to compute, for the logits. A bigram key leaves its last token anyway.
  const std::size_t spare = impl_->options.bigram || request.key.tokens.empty() ? 0 : 1;
  if (request.key.tokens.size() == 1 && spare == 1) {
    const MatchEnd end = impl_->options.disabled ? MatchEnd::disabled : MatchEnd::page_boundary;
    return Match{.end = end, .cache = impl_->cache_id};
  }
  const Key key{request.key.tokens.first(request.key.tokens.size() - spare), request.key.ns};
  Result<Match> found = quiet_match(key, request.slots, request.session);
  if (!found) return found;
  Result<Lease> lease = quiet_lock(*found);
  if (!lease) return lease.error();
  request.lease = std::move(*lease);
  request.cached_length = found->length;
  return found;
}

// Tries, evicts what is missing if that can help, and tries again; so that what the allocator
// refuses for another reason is refused before anything is evicted.
template <typename Alloc, typename CountPages>
Status PrefixCache::Impl::allocate(const Asker& asker, Alloc alloc, CountPages count_pages) {
  const PagedAllocator* full = ledger.full_side();
  if (full == nullptr)
    return make_error(ErrorCode::unavailable,
                      "allocate: this cache stands on the engine's own slots; allocate them there");
  Status status = ledger.with_allocator(alloc);
  if (status.ok() || status.error().code != ErrorCode::out_of_capacity) return status;
  if (waits_for_time() && ranks.alone()) pass_time(clock());
  const std::size_t num_pages = count_pages(*full);
  const OwnerId owner = tenants.owner_of(asker.ns);
  Evictor::Goal goal{.by = owner,
                     .incoming_pages = num_pages,
                     .request_pages = asker.num_tokens / index.page_size()};
  const auto plan = [&](const PagedAllocator& side, ComponentKind kind, std::size_t& missing) {
    const std::size_t evictable = index.shelves().shelf(Medium::device, kind)->available_to(owner);
    missing = num_pages - std::min(num_pages, side.available_pages());
    if (missing <= evictable) return Status{};
    return Status{make_error(
        ErrorCode::out_of_capacity,
        "allocate: needs {} tokens in whole pages{}; {} are free and {} evictable",
        num_pages * index.page_size(), kind == ComponentKind::window ? " of window slots" : "",
        side.available(), evictable * index.page_size())};
  };
  if (Status s = plan(*full, ComponentKind::full, goal.pages); !s) return s;
  if (const WindowAllocator* both = ledger.window_allocator()) {
    if (Status s = plan(both->window(), ComponentKind::window, goal.window_pages); !s) return s;
  }
  const CauseScope cause(*this, Pressure::allocate, goal.pages * index.page_size());
  evict(goal);
  return ledger.with_allocator(alloc);
}

Status PrefixCache::quiet_allocate(Request& request, std::size_t from) {
  if (from > request.slots.size())
    return make_error(ErrorCode::invalid_argument, "allocate: from {} in {} slots", from,
                      request.slots.size());
  const std::size_t to = request.slots.size();
  const SlotId last = from == 0 ? SlotId{0} : request.slots[from - 1];
  return quiet_allocate_extend({&from, 1}, {&to, 1}, {&last, 1}, request.slots.subspan(from),
                               request.key.ns);
}

Status PrefixCache::quiet_allocate_extend(std::span<const std::size_t> prefix_lens,
                                          std::span<const std::size_t> seq_lens,
                                          std::span<const SlotId> last_slots, std::span<SlotId> out,
                                          std::string_view ns) {
  return impl_->allocate(
      {ns, std::accumulate(seq_lens.begin(), seq_lens.end(), std::size_t{0})},
      [&](auto& a) { return a.alloc_extend(prefix_lens, seq_lens, last_slots, out); },
      [&](const PagedAllocator& a) { return a.pages_for_extend(prefix_lens, seq_lens); });
}

Status PrefixCache::quiet_allocate_decode(std::span<const std::size_t> seq_lens,
                                          std::span<const SlotId> last_slots, std::span<SlotId> out,
                                          std::string_view ns) {
  return impl_->allocate(
      {ns, 0}, [&](auto& a) { return a.alloc_decode(seq_lens, last_slots, out); },
      [&](const PagedAllocator& a) { return a.pages_for_decode(seq_lens); });
}

Result<StateSlot> PrefixCache::quiet_allocate_state() {
  StateAllocator* pool = impl_->states.pool();
  if (pool == nullptr)
    return make_error(ErrorCode::unavailable, "allocate_state: this cache has no state component");
  if (pool->available() == 0) {
    const CauseScope cause(*impl_, Pressure::allocate, 0);
    impl_->evict({.snapshots = 1});
  }
  if (const std::optional<StateSlot> slot = pool->alloc()) return *slot;
  return make_error(ErrorCode::out_of_capacity,
                    "allocate_state: all {} state slots are in use, and no snapshot is evictable",
                    pool->capacity());
}

// ---- Giving to the tree ------------------------------------------------------------------------

void PrefixCache::Impl::copy_tree_slots(NodeIndex node, std::size_t from, std::size_t to,
                                        std::span<SlotId> slots) const {
  const std::size_t page_size = index.page_size();
  const Node& last = index.node(node);
  const Tree::Cursor path{node, last.num_pages, last.end_pages};
  index.tree().for_each_on_path(path, [&](NodeIndex i, std::size_t first, std::uint32_t n) {
    const std::size_t begin = std::max(first, from);
    const std::size_t end = std::min(first + n, to);
    if (begin < end)
      expand_pages(index.node(i).pages + (begin - first), end - begin, page_size,
                   slots.data() + begin * page_size);
  });
}

// The whole pages of the key may be less than what the request got from the tree: k matched pages
// of a bigram key took one token more than has been computed yet. And there is nothing to give
// where a component would be missing at the end.
Result<std::optional<Key>> PrefixCache::Impl::insertable(const Request& request,
                                                         const char* caller) const {
  Key key = request.key;
  if (options.disabled) return std::optional<Key>{};
  // A load under it failed: what was computed from there on is not worth keeping.
  const NodeIndex held = index.resolve(request.lease.node());
  if (held != kNoNode && index.node(held).cut_off) return std::optional<Key>{};
  if (options.state) {
    if (!request.snapshot) return std::optional<Key>{};
    if (request.snapshot_length % index.page_size() != 0 ||
        request.snapshot_length > index.tree().shape().num_units(key))
      return make_error(ErrorCode::invalid_argument,
                        "{}: the snapshot is of the state after {} tokens; expected a multiple of "
                        "the page size {}, at most {}",
                        caller, request.snapshot_length, index.page_size(),
                        index.tree().shape().num_units(key));
    key.tokens = key.tokens.first(request.snapshot_length + (options.bigram ? 1 : 0));
  }
  const std::size_t length = index.tree().shape().num_pages(key) * index.page_size();
  if (length == 0 || length < request.cached_length) return std::optional<Key>{};
  if (options.window && request.window_released > request.cached_length &&
      length < request.window_released + *options.window)
    return std::optional<Key>{};
  return std::optional<Key>(key);
}

InsertOptions PrefixCache::Impl::insert_options(const Request& request, bool chunked,
                                                bool unfinished) const {
  return {.owned_by_tree = request.cached_length,
          .priority = request.priority,
          .chunked = chunked,
          .unfinished = unfinished,
          .session = request.session,
          .window_released = request.window_released,
          .snapshot = request.snapshot};
}

Status PrefixCache::quiet_checkpoint(Request& request, bool chunked) {
  if (Status s = validate(request, "checkpoint"); !s) return s;
  const Result<std::optional<Key>> key = impl_->insertable(request, "checkpoint");
  if (!key) return key.error();
  if (!*key) return {};
  const InsertOptions options = impl_->insert_options(request, chunked, /*unfinished=*/true);
  const std::span<SlotId> slots = request.slots.first((*key)->tokens.size());
  const Result<Impl::Plan> plan = impl_->plan_insert(**key, slots, options);
  if (!plan) return plan.error();
  const Inserted inserted = impl_->apply_insert(*plan, **key, options);
  const NodeIndex end = impl_->index.resolve(inserted.node);
  impl_->copy_tree_slots(end, request.cached_length / impl_->index.page_size(), plan->cursor.pages,
                         request.slots);
  Lease lease;
  lease.cache_ = this;
  lease.path_ = impl_->hold_path(end);
  request.lease = std::move(lease);  // lets go of the old path
  request.widened_ranges = impl_->retain(end, request.retention);
  impl_->enforce_cap(impl_->index.node(end).owner, end);
  request.cached_length = inserted.length;
  request.snapshot = {};
  impl_->ledger.flush();
  return {};
}

Status PrefixCache::quiet_finish(Request& request, bool insert) {
  if (Status s = validate(request, "finish"); !s) return s;
  if (request.snapshot) {
    if (Status s = impl_->states.refuse_foreign(request.snapshot); !s) return s;
  }
  std::size_t kept = request.cached_length;
  const Result<std::optional<Key>> key = impl_->insertable(request, "finish");
  if (insert && !key) return key.error();
  if (insert && *key) {
    const InsertOptions options =
        impl_->insert_options(request, /*chunked=*/false, /*unfinished=*/false);
    const Result<Impl::Plan> plan =
        impl_->plan_insert(**key, request.slots.first((*key)->tokens.size()), options);
    if (!plan) return plan.error();
    const Inserted inserted = impl_->apply_insert(*plan, **key, options);
    kept = inserted.length;
    const NodeIndex end = impl_->index.resolve(inserted.node);
    request.widened_ranges = impl_->retain(end, request.retention);
    impl_->enforce_cap(impl_->index.node(end).owner, end);
  } else {
    if (const NodeIndex end = impl_->index.resolve(request.lease.node()); end != kNoNode)
      impl_->index.finish_use(end);
    if (request.snapshot) impl_->states.release({&request.snapshot, 1});
  }
  impl_->ledger.release(std::span<const SlotId>(request.slots.subspan(kept)));
  request.lease.release();
  impl_->ledger.flush();
  request.slots = {};
  request.cached_length = 0;
  request.window_released = 0;
  request.snapshot = {};
  return {};
}

// ---- Windows of running requests ---------------------------------------------------------------

// The token to come sees the last `window` tokens. A match of the last whole page, or of the
// snapshot that is to be kept, will want as much before it; without a tree nobody will.
std::size_t PrefixCache::Impl::release_window(Request& request, std::size_t num_tokens) {
  const std::size_t page_size = index.page_size();
  const std::size_t unit_less = options.bigram && num_tokens > 0 ? 1 : 0;
  std::size_t seen_until =
      options.disabled ? num_tokens : (num_tokens - unit_less) / page_size * page_size;
  if (request.snapshot) seen_until = std::min(seen_until, request.snapshot_length);
  if (seen_until <= *options.window) return 0;
  const std::size_t behind = (seen_until - *options.window) / page_size * page_size;
  const std::size_t from = std::max(request.window_released, request.cached_length);
  if (behind >= request.cached_length) release_hold_window(request.lease.path_);
  if (behind <= from) return 0;
  ledger.release_window(std::span<const SlotId>(request.slots).subspan(from, behind - from));
  request.window_released = behind;
  return behind - from;
}

Result<std::size_t> PrefixCache::quiet_release_window(std::span<Request* const> requests,
                                                      std::span<const std::size_t> num_tokens) {
  if (!impl_->options.window)
    return make_error(ErrorCode::unavailable, "release_window: this cache has no window component");
  if (requests.size() != num_tokens.size())
    return make_error(ErrorCode::invalid_argument, "release_window: {} requests, {} lengths",
                      requests.size(), num_tokens.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (num_tokens[i] > requests[i]->slots.size())
      return make_error(
          ErrorCode::invalid_argument,
          "release_window: request {} has {} slots, {} tokens are said to be computed", i,
          requests[i]->slots.size(), num_tokens[i]);
  }
  std::size_t released = 0;
  for (std::size_t i = 0; i < requests.size(); ++i)
    released += impl_->release_window(*requests[i], num_tokens[i]);
  impl_->ledger.flush();
  return released;
}

}  // namespace pando
