// SPDX-License-Identifier: Apache-2.0
// The public calls of PrefixCache and Paths: each calls the function of the same name of
// PrefixCacheImpl, and tells the observer, if there is one, of the call and of what it found.
// PrefixCacheImpl calls its own functions, so
// every call of the engine is told once. Facts that may happen inside any call (an insert, an
// eviction, what a poll applied) are told where they happen. evict() and poll(), which are short,
// stand beside their Impl's, so that the compiler makes one of the two.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "cache/observed.h"
#include "cache/prefix_cache_impl.h"
#include "cache/request_impl.h"
#include "pando/cache.h"
#include "pando/observer.h"

namespace pando {

// ---- Keys --------------------------------------------------------------------------------------

Result<Match> Paths::match(const Key& key, std::span<SlotId> slots, SessionId session) {
  if (cache_.observer == nullptr) [[likely]]
    return cache_.match(key, slots, session);
  Result<Match> found = observed(cache_.observer, CacheCall::match,
                                 [&] { return cache_.match(key, slots, session); });
  if (found.ok()) cache_.observer->on_match(key, *found);
  return found;
}

Result<Lease> Paths::lock(const Match& match) {
  return observed(cache_.observer, CacheCall::lock, [&] { return cache_.lock(match); });
}

Result<Inserted> Paths::insert(const Key& key, std::span<const SlotId> slots,
                               const InsertOptions& options) {
  return observed(cache_.observer, CacheCall::insert,
                  [&] { return cache_.insert(key, slots, options); });
}

Status PrefixCache::reset() {
  return observed(impl_->observer, CacheCall::reset, [&] { return impl_->reset(); });
}

// ---- Requests ----------------------------------------------------------------------------------

Result<Request> PrefixCache::start(std::span<const Token> tokens, const RequestOptions& options) {
  using Started = Result<std::unique_ptr<PrefixCacheImpl::Running>>;
  const RequestStart at{impl_->observer == nullptr ? std::chrono::steady_clock::time_point{}
                                                   : std::chrono::steady_clock::now(),
                        tokens.size()};
  Started started =
      observed(impl_->observer, CacheCall::start, [&] { return impl_->start(tokens, options); });
  if (!started.ok()) return started.error();
  PrefixCacheImpl::Running& request = **started;
  if (impl_->observer != nullptr) {
    request.started = at;
    impl_->observer->on_match(request.key(tokens.size()), request.found);
  }
  return Request(std::move(*started));
}

Status PrefixCache::allocate(Request& request, std::optional<std::size_t> num_tokens) {
  return observed(impl_->observer, CacheCall::allocate,
                  [&] { return impl_->allocate(*request.impl_, num_tokens); });
}

Status PrefixCache::give_slots(Request& request, std::span<const SlotId> slots) {
  return impl_->give_slots(*request.impl_, slots);
}

Status Paths::allocate_extend(std::span<const std::size_t> prefix_lens,
                              std::span<const std::size_t> seq_lens,
                              std::span<const SlotId> last_slots, std::span<SlotId> out,
                              std::string_view ns) {
  return observed(cache_.observer, CacheCall::allocate, [&] {
    return cache_.allocate_extend(prefix_lens, seq_lens, last_slots, out, ns);
  });
}

Status Paths::allocate_decode(std::span<const std::size_t> seq_lens,
                              std::span<const SlotId> last_slots, std::span<SlotId> out,
                              std::string_view ns) {
  return observed(cache_.observer, CacheCall::allocate,
                  [&] { return cache_.allocate_decode(seq_lens, last_slots, out, ns); });
}

Result<StateSlot> PrefixCache::allocate_state() {
  return observed(impl_->observer, CacheCall::allocate_state,
                  [&] { return impl_->allocate_state(); });
}

Status PrefixCache::set_snapshot(Request& request, StateSlot slot, std::size_t num_tokens) {
  return impl_->set_snapshot(*request.impl_, slot, num_tokens);
}

Status PrefixCache::checkpoint(Request& request, std::optional<std::size_t> num_computed,
                               bool chunked) {
  return observed(impl_->observer, CacheCall::checkpoint,
                  [&] { return impl_->checkpoint(*request.impl_, num_computed, chunked); });
}

Status PrefixCache::finish(Request& request, std::optional<std::size_t> num_computed) {
  PrefixCacheImpl::Running& r = *request.impl_;
  if (impl_->observer == nullptr) [[likely]]
    return impl_->finish(r, num_computed);
  const std::size_t length = num_computed.value_or(std::min(r.tokens.size(), r.num_slots));
  Status status =
      observed(impl_->observer, CacheCall::finish, [&] { return impl_->finish(r, num_computed); });
  if (status.ok()) impl_->tell_finished(r, length);
  return status;
}

void PrefixCache::abandon(Request& request) {
  if (request.impl_->cache != nullptr) impl_->abandon_told(*request.impl_);
}

void PrefixCacheImpl::abandon_told(Running& request) {
  PANDO_CHECK(request.cache == this, "abandon: a request of another cache");
  observed(observer, CacheCall::finish, [&] {
    abandon(request);
    return Status{};
  }).value();
  if (observer != nullptr) tell_finished(request, request.tokens.size());
}

void PrefixCacheImpl::tell_finished(Running& request, std::size_t length) {
  const RequestStart started = std::exchange(request.started, {});
  if (started.prompt_length && *started.prompt_length <= length)
    observer->on_finish({request.key(length), *started.prompt_length, started.at});
}

Result<std::size_t> PrefixCache::release_window(std::span<Request* const> requests,
                                                std::span<const std::size_t> num_tokens) {
  std::vector<PrefixCacheImpl::Running*> running;
  for (const Request* request : requests) running.push_back(request->impl_.get());
  return observed(impl_->observer, CacheCall::release_window,
                  [&] { return impl_->release_windows(running, num_tokens); });
}

Result<std::size_t> PrefixCache::release_window(Request& request, std::size_t num_tokens) {
  PrefixCacheImpl::Running* const running[] = {request.impl_.get()};
  return observed(impl_->observer, CacheCall::release_window, [&] {
    return impl_->release_windows(running, {&num_tokens, 1});
  });
}

// ---- Tiers -------------------------------------------------------------------------------------

Result<LoadBack> Paths::load_back(Lease& lease, std::span<SlotId> slots,
                                  const LoadBackOptions& options) {
  if (cache_.observer == nullptr) [[likely]]
    return cache_.load_back(lease, slots, options);
  Result<LoadBack> result = observed(cache_.observer, CacheCall::load_back,
                                     [&] { return cache_.load_back(lease, slots, options); });
  if (result.ok()) cache_.observer->on_load_back(*result);
  return result;
}

Result<LoadBack> PrefixCache::load_back(Request& request, const LoadBackOptions& options) {
  PrefixCacheImpl::Running& r = *request.impl_;
  if (Status s = impl_->refuse_foreign(r, "load_back"); !s) return s.error();
  if (r.num_slots != r.cached_length)
    return make_error(
        ErrorCode::in_use,
        "load_back: the request has {} slots of its own behind the {} that are cached; "
        "load before you allocate",
        r.num_slots - r.cached_length, r.cached_length);
  Result<LoadBack> result =
      impl_->paths_door.load_back(r.lease, r.slots.first(r.slots.capacity()), options);
  if (result.ok()) r.cached_length = r.num_slots = r.cached_length + result->tokens;
  return result;
}

Result<Prefetch> PrefixCache::prefetch(const Key& key) {
  if (impl_->observer == nullptr) [[likely]]
    return impl_->prefetch(key);
  Result<Prefetch> result =
      observed(impl_->observer, CacheCall::prefetch, [&] { return impl_->prefetch(key); });
  if (result.ok()) impl_->observer->on_prefetch(key, *result);
  return result;
}

std::size_t PrefixCache::end_prefetch(PrefetchId id) {
  const std::size_t tokens = observed(impl_->observer, CacheCall::end_prefetch,
                                      [&] { return impl_->end_prefetch(id, /*keep=*/true); });
  if (impl_->observer != nullptr) impl_->observer->on_prefetched(tokens);
  return tokens;
}

void PrefixCache::abort_prefetch(PrefetchId id) {
  observed(impl_->observer, CacheCall::abort_prefetch,
           [&] { return impl_->end_prefetch(id, /*keep=*/false); });
}

}  // namespace pando
