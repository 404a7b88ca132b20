// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on running requests: start, allocate, checkpoint, finish. They combine
// those on keys so that at every moment each slot of the request is the tree's (before
// cached_length) or its own (from there on).
#include <algorithm>
#include <numeric>

#include "base/bulk.h"
#include "base/check.h"
#include "base/tokens.h"
#include "cache/prefix_cache_impl.h"
#include "cache/request_impl.h"
#include "pando/cache.h"

namespace pando {

// ---- The request itself ------------------------------------------------------------------------

Request::Request() : impl_(std::make_unique<Impl>()) {}
Request::Request(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Request::Request(Request&& other) noexcept = default;
Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ && impl_->cache != nullptr) impl_->cache->abandon_told(*impl_);
  impl_ = std::move(other.impl_);
  return *this;
}
Request::~Request() {
  if (impl_ && impl_->cache != nullptr) impl_->cache->abandon(*impl_);
}

bool Request::is_running() const { return impl_ && impl_->cache != nullptr; }
std::span<const Token> Request::tokens() const { return impl_->tokens; }
std::string_view Request::ns() const { return impl_->ns; }
const Match& Request::found() const { return impl_->found; }
std::span<const SlotId> Request::slots() const { return impl_->slots.first(impl_->num_slots); }
std::size_t Request::cached_length() const { return impl_->cached_length; }
std::size_t Request::window_released() const { return impl_->window_released; }
StateSlot Request::snapshot() const { return impl_->snapshot; }
std::size_t Request::snapshot_length() const { return impl_->snapshot_length; }
std::size_t Request::widened_ranges() const { return impl_->widened_ranges; }
void Request::release_partial() { impl_->lease.release_partial(); }
Status Request::release_snapshot() { return impl_->lease.release_snapshot(); }

Status Request::append(std::span<const Token> tokens) {
  if (Status s = refuse_negative(tokens, 0, tokens.size(), "append"); !s) return s;
  impl_->tokens.insert(impl_->tokens.end(), tokens.begin(), tokens.end());
  return {};
}

// ---- Starting ----------------------------------------------------------------------------------

Status PrefixCacheImpl::refuse_start(const RequestOptions& given, std::size_t num_tokens) const {
  if (given.session) {
    if (Status s = refuse_session(given.session, "start"); !s) return s;
  }
  for (const RetentionRange& range : given.retention) {
    if (Status s = refuse_range(range, "start"); !s) return s;
    if (Status s = refuse_outside(range, num_tokens, /*grows=*/true, "start"); !s) return s;
  }
  return {};
}

// A bigram key leaves its last token anyway: it has no pair of its own yet.
Result<Match> PrefixCacheImpl::find_start(Running& request, std::size_t recompute) {
  const std::size_t num_tokens = request.tokens.size();
  const std::size_t spare = recompute - (options.bigram && recompute > 0 ? 1 : 0);
  const std::size_t length = num_tokens - std::min(spare, num_tokens);
  if (length == 0 && num_tokens > 0) {
    const MatchEnd end = options.disabled ? MatchEnd::disabled : MatchEnd::page_boundary;
    if (Status s = refuse_negative(request.tokens, 0, num_tokens, "start"); !s) return s.error();
    return Match{.end = end, .cache = cache_id};
  }
  request.slots.reserve(num_tokens, 0);
  return match(request.key(length), request.slots.first(num_tokens), request.session);
}

Result<std::unique_ptr<PrefixCacheImpl::Running>> PrefixCacheImpl::start(
    std::span<const Token> tokens, const RequestOptions& given) {
  if (Status s = refuse_start(given, tokens.size()); !s) return s.error();
  auto request = std::make_unique<Running>();
  request->tokens.assign(tokens.begin(), tokens.end());
  request->ns = given.ns;
  request->priority = given.priority;
  request->retention = given.retention;
  request->session = given.session;
  const Result<Match> found = find_start(*request, given.recompute);
  if (!found) return found.error();
  Result<Lease> lease = lock(*found);
  if (!lease) return lease.error();
  request->found = *found;
  request->lease = std::move(*lease);
  request->cached_length = request->num_slots = found->length;
  request->cache = this;
  request->position = running.size();
  running.push_back(request.get());
  return request;
}

Status PrefixCacheImpl::refuse_foreign(const Running& request, const char* caller) const {
  if (request.cache == this) return {};
  return make_error(ErrorCode::stale_handle, "{}: the request {}", caller,
                    request.cache == nullptr ? "has finished" : "is of another cache");
}

// How many tokens are computed: what the caller says, or all that have slots.
Result<std::size_t> PrefixCacheImpl::computed(const Running& request,
                                              std::optional<std::size_t> said,
                                              const char* caller) const {
  if (Status s = refuse_foreign(request, caller); !s) return s.error();
  const std::size_t most = std::min(request.tokens.size(), request.num_slots);
  if (said.value_or(0) <= most) return said.value_or(most);
  return make_error(ErrorCode::invalid_argument,
                    "{}: {} tokens are said to be computed; the request has {} tokens and {} slots",
                    caller, *said, request.tokens.size(), request.num_slots);
}

// ---- Room --------------------------------------------------------------------------------------

// Tries, evicts what is missing if that can help, and tries again; so that what the allocator
// refuses for another reason is refused before anything is evicted.
template <typename Alloc, typename CountPages>
Status PrefixCacheImpl::allocate(const Asker& asker, Alloc alloc, CountPages count_pages) {
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
    const std::size_t evictable = index.shelves().shelf(Tier::device, kind)->available_to(owner);
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

Status PrefixCacheImpl::allocate(Running& request, std::optional<std::size_t> num_tokens) {
  if (Status s = refuse_foreign(request, "allocate"); !s) return s;
  const std::size_t from = request.num_slots;
  const std::size_t to = num_tokens.value_or(request.tokens.size());
  if (to <= from) return {};
  request.slots.reserve(to, from);
  const SlotId last = from == 0 ? SlotId{0} : request.slots.first(from).back();
  const Status done = allocate_extend({&from, 1}, {&to, 1}, {&last, 1},
                                      request.slots.first(to).subspan(from), request.ns);
  if (done.ok()) request.num_slots = to;
  return done;
}

Status PrefixCacheImpl::give_slots(Running& request, std::span<const SlotId> slots) {
  if (Status s = refuse_foreign(request, "give_slots"); !s) return s;
  if (ledger.full_side() != nullptr)
    return make_error(ErrorCode::unavailable,
                      "give_slots: this cache stands on Pando's allocator; call allocate()");
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (Status s = ledger.refuse_slot(slots[i], i, "give_slots"); !s) return s;
  }
  const std::size_t from = request.num_slots;
  request.slots.reserve(from + slots.size(), from);
  std::copy(slots.begin(), slots.end(),
            request.slots.first(from + slots.size()).begin() + static_cast<std::ptrdiff_t>(from));
  request.num_slots += slots.size();
  return {};
}

Status PrefixCacheImpl::allocate_extend(std::span<const std::size_t> prefix_lens,
                                        std::span<const std::size_t> seq_lens,
                                        std::span<const SlotId> last_slots, std::span<SlotId> out,
                                        std::string_view ns) {
  return allocate(
      {ns, std::accumulate(seq_lens.begin(), seq_lens.end(), std::size_t{0})},
      [&](auto& a) { return a.alloc_extend(prefix_lens, seq_lens, last_slots, out); },
      [&](const PagedAllocator& a) { return a.pages_for_extend(prefix_lens, seq_lens); });
}

Status PrefixCacheImpl::allocate_decode(std::span<const std::size_t> seq_lens,
                                        std::span<const SlotId> last_slots, std::span<SlotId> out,
                                        std::string_view ns) {
  return allocate(
      {ns, 0}, [&](auto& a) { return a.alloc_decode(seq_lens, last_slots, out); },
      [&](const PagedAllocator& a) { return a.pages_for_decode(seq_lens); });
}

Result<StateSlot> PrefixCacheImpl::allocate_state() {
  StateAllocator* pool = states.pool();
  if (pool == nullptr)
    return make_error(ErrorCode::unavailable, "allocate_state: this cache has no state component");
  if (pool->available() == 0) {
    const CauseScope cause(*this, Pressure::allocate, 0);
    evict({.snapshots = 1});
  }
  if (const std::optional<StateSlot> slot = pool->alloc()) return *slot;
  return make_error(ErrorCode::out_of_capacity,
                    "allocate_state: all {} state slots are in use, and no snapshot is evictable",
                    pool->capacity());
}

// ---- Giving to the tree ------------------------------------------------------------------------

void PrefixCacheImpl::copy_tree_slots(NodeIndex node, std::size_t from, std::size_t to,
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

Status PrefixCacheImpl::set_snapshot(Running& request, StateSlot slot, std::size_t num_tokens) {
  if (Status s = refuse_foreign(request, "set_snapshot"); !s) return s;
  if (!options.state)
    return make_error(ErrorCode::unavailable, "set_snapshot: this cache has no state component");
  if (Status s = states.refuse_foreign(slot); !s) return s;
  if (request.snapshot)
    return make_error(ErrorCode::in_use,
                      "set_snapshot: the request has one of {} tokens that was not taken yet",
                      request.snapshot_length);
  if (num_tokens % index.page_size() != 0 || num_tokens > request.num_slots)
    return make_error(ErrorCode::invalid_argument,
                      "set_snapshot: the state after {} tokens; expected a multiple of the page "
                      "size {}, at most the {} slots of the request",
                      num_tokens, index.page_size(), request.num_slots);
  request.snapshot = slot;
  request.snapshot_length = num_tokens;
  return {};
}

// The whole pages of the key may be less than what the request got from the tree: k matched pages
// of a bigram key took one token more than has been computed yet. And there is nothing to give
// where a component would be missing at the end.
Result<std::optional<Key>> PrefixCacheImpl::insertable(const Running& request,
                                                       std::size_t num_computed,
                                                       const char* caller) const {
  Key key = request.key(num_computed);
  if (options.disabled) return std::optional<Key>{};
  // A load under it failed: what was computed from there on is not worth keeping.
  const NodeIndex held = index.resolve(request.lease.node());
  if (held != kNoNode && index.node(held).cut_off) return std::optional<Key>{};
  if (options.state) {
    if (!request.snapshot) return std::optional<Key>{};
    if (request.snapshot_length > index.tree().shape().num_units(key))
      return make_error(ErrorCode::invalid_argument,
                        "{}: the snapshot is of the state after {} tokens; expected at most {}, "
                        "which are computed",
                        caller, request.snapshot_length, index.tree().shape().num_units(key));
    key.tokens = key.tokens.first(request.snapshot_length + (options.bigram ? 1 : 0));
  }
  const std::size_t length = index.tree().shape().num_pages(key) * index.page_size();
  if (length == 0 || length < request.cached_length) return std::optional<Key>{};
  if (options.window && request.window_released > request.cached_length &&
      length < request.window_released + *options.window)
    return std::optional<Key>{};
  return std::optional<Key>(key);
}

InsertOptions PrefixCacheImpl::insert_options(const Running& request, bool chunked,
                                              bool unfinished) const {
  return {.owned_by_tree = request.cached_length,
          .priority = request.priority,
          .chunked = chunked,
          .unfinished = unfinished,
          .session = request.session,
          .window_released = request.window_released,
          .snapshot = request.snapshot};
}

Status PrefixCacheImpl::checkpoint(Running& request, std::optional<std::size_t> num_computed,
                                   bool chunked) {
  const Result<std::size_t> length = computed(request, num_computed, "checkpoint");
  if (!length) return length.error();
  const Result<std::optional<Key>> key = insertable(request, *length, "checkpoint");
  if (!key) return key.error();
  if (!*key) return {};
  const InsertOptions given = insert_options(request, chunked, /*unfinished=*/true);
  const std::span<SlotId> slots = request.slots.first((*key)->tokens.size());
  const Result<InsertPlan> plan = plan_insert(**key, slots, given);
  if (!plan) return plan.error();
  const Inserted inserted = apply_insert(*plan, **key, given);
  const NodeIndex end = index.resolve(inserted.node);
  copy_tree_slots(end, request.cached_length / index.page_size(), plan->cursor.pages, slots);
  Lease lease;
  lease.cache_ = this;
  lease.path_ = hold_path(end);
  request.lease = std::move(lease);  // lets go of the old path
  request.widened_ranges = retain(end, request.retention);
  enforce_cap(index.node(end).owner, end);
  request.cached_length = inserted.length;
  request.snapshot = {};
  ledger.flush();
  return {};
}

Status PrefixCacheImpl::finish(Running& request, std::optional<std::size_t> num_computed) {
  const Result<std::size_t> length = computed(request, num_computed, "finish");
  if (!length) return length.error();
  const Result<std::optional<Key>> key = insertable(request, *length, "finish");
  if (!key) return key.error();
  if (!*key) {
    end_unused(request);
    return {};
  }
  const InsertOptions given = insert_options(request, /*chunked=*/false, /*unfinished=*/false);
  const Result<InsertPlan> plan =
      plan_insert(**key, request.slots.first((*key)->tokens.size()), given);
  if (!plan) return plan.error();
  const Inserted inserted = apply_insert(*plan, **key, given);
  const NodeIndex end = index.resolve(inserted.node);
  request.widened_ranges = retain(end, request.retention);
  enforce_cap(index.node(end).owner, end);
  request.cached_length = inserted.length;  // the tree's now: what is left is the tail
  let_go(request);
  return {};
}

void PrefixCacheImpl::end_unused(Running& request) {
  if (const NodeIndex end = index.resolve(request.lease.node()); end != kNoNode)
    index.finish_use(end);
  if (request.snapshot) states.release({&request.snapshot, 1});
  let_go(request);
}

void PrefixCacheImpl::let_go(Running& request) {
  ledger.release(request.own_slots());
  request.lease.release();
  ledger.flush();
  running.back()->position = request.position;
  running[request.position] = running.back();
  running.pop_back();
  request.cache = nullptr;
  request.slots = {};
  request.num_slots = request.cached_length = request.window_released = 0;
  request.snapshot = {};
}

void PrefixCacheImpl::abandon(Running& request) {
  if (request.cache != nullptr) end_unused(request);
}

// ---- Windows of running requests ---------------------------------------------------------------

// The token to come sees the last `window` tokens. A match of the last whole page, or of the
// snapshot that is to be kept, will want as much before it; without a tree nobody will.
std::size_t PrefixCacheImpl::release_window(Running& request, std::size_t num_tokens) {
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
  ledger.release_window(std::span<const SlotId>(request.slots.first(behind)).subspan(from));
  request.window_released = behind;
  return behind - from;
}

Result<std::size_t> PrefixCacheImpl::release_windows(std::span<Running* const> requests,
                                                     std::span<const std::size_t> num_tokens) {
  if (!options.window)
    return make_error(ErrorCode::unavailable, "release_window: this cache has no window component");
  if (requests.size() != num_tokens.size())
    return make_error(ErrorCode::invalid_argument, "release_window: {} requests, {} lengths",
                      requests.size(), num_tokens.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (Status s = refuse_foreign(*requests[i], "release_window"); !s) return s.error();
    if (num_tokens[i] > requests[i]->num_slots)
      return make_error(
          ErrorCode::invalid_argument,
          "release_window: request {} has {} slots, {} tokens are said to be computed", i,
          requests[i]->num_slots, num_tokens[i]);
  }
  std::size_t released = 0;
  for (std::size_t i = 0; i < requests.size(); ++i)
    released += release_window(*requests[i], num_tokens[i]);
  ledger.flush();
  return released;
}

// ---- Proof -------------------------------------------------------------------------------------

// Own pages of a request are nobody else's: not another's, nor the tree's, nor free.
Status PrefixCacheImpl::check_requests() const {
  std::vector<PageId> owned;
  for (std::size_t i = 0; i < running.size(); ++i) {
    const Running& request = *running[i];
    PANDO_CHECK(request.cache == this && request.position == i, "running request {}", i);
    const std::span<const SlotId> own = request.own_slots();
    for (std::size_t at = 0; at < own.size(); at += index.page_size())
      owned.push_back(ledger.page_of(own[at]));
  }
  return ledger.check_owned(std::move(owned));
}

}  // namespace pando
