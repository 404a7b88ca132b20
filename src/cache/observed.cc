// SPDX-License-Identifier: Apache-2.0
// The public calls of PrefixCache: each is the quiet one of the same name, and tells the observer,
// if there is one, of the call and of what it found. Calls made inside another one are quiet, so
// that every call of the engine is told once. Facts that may happen inside any call (an insert, an
// eviction, what a poll applied) are told where they happen. evict() and poll(), which are short,
// stand beside their quiet ones, so that the compiler makes one of the two.
#include <chrono>
#include <utility>

#include "cache/observed.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"
#include "pando/observer.h"

namespace pando {

// ---- Keys --------------------------------------------------------------------------------------

Result<Match> PrefixCache::match(const Key& key, std::span<SlotId> slots, SessionId session) {
  if (impl_->observer == nullptr) [[likely]]
    return quiet_match(key, slots, session);
  Result<Match> found =
      observed(impl_->observer, CacheCall::match, [&] { return quiet_match(key, slots, session); });
  if (found.ok()) impl_->observer->on_match(key, *found);
  return found;
}

Result<Lease> PrefixCache::lock(const Match& match) {
  return observed(impl_->observer, CacheCall::lock, [&] { return quiet_lock(match); });
}

Result<Inserted> PrefixCache::insert(const Key& key, std::span<const SlotId> slots,
                                     const InsertOptions& options) {
  return observed(impl_->observer, CacheCall::insert,
                  [&] { return quiet_insert(key, slots, options); });
}

EvictResult PrefixCache::evict_host(std::size_t num_tokens) {
  return observed(impl_->observer, CacheCall::evict_host,
                  [&] { return quiet_evict_host(num_tokens); });
}

Status PrefixCache::reset() {
  return observed(impl_->observer, CacheCall::reset, [&] { return quiet_reset(); });
}

// ---- Requests ----------------------------------------------------------------------------------

Result<Match> PrefixCache::start(Request& request) {
  if (impl_->observer == nullptr) [[likely]]
    return quiet_start(request);
  const RequestStart started{std::chrono::steady_clock::now(), request.key.tokens.size()};
  Result<Match> found =
      observed(impl_->observer, CacheCall::start, [&] { return quiet_start(request); });
  if (!found.ok()) return found;
  request.started = started;
  impl_->observer->on_match(request.key, *found);
  return found;
}

Status PrefixCache::allocate(Request& request, std::size_t from) {
  return observed(impl_->observer, CacheCall::allocate,
                  [&] { return quiet_allocate(request, from); });
}

Status PrefixCache::allocate_extend(std::span<const std::size_t> prefix_lens,
                                    std::span<const std::size_t> seq_lens,
                                    std::span<const SlotId> last_slots, std::span<SlotId> out,
                                    std::string_view ns) {
  return observed(impl_->observer, CacheCall::allocate, [&] {
    return quiet_allocate_extend(prefix_lens, seq_lens, last_slots, out, ns);
  });
}

Status PrefixCache::allocate_decode(std::span<const std::size_t> seq_lens,
                                    std::span<const SlotId> last_slots, std::span<SlotId> out,
                                    std::string_view ns) {
  return observed(impl_->observer, CacheCall::allocate,
                  [&] { return quiet_allocate_decode(seq_lens, last_slots, out, ns); });
}

Result<StateSlot> PrefixCache::allocate_state() {
  return observed(impl_->observer, CacheCall::allocate_state,
                  [&] { return quiet_allocate_state(); });
}

Status PrefixCache::checkpoint(Request& request, bool chunked) {
  return observed(impl_->observer, CacheCall::checkpoint,
                  [&] { return quiet_checkpoint(request, chunked); });
}

Status PrefixCache::finish(Request& request, bool insert) {
  if (impl_->observer == nullptr) [[likely]]
    return quiet_finish(request, insert);
  Status status =
      observed(impl_->observer, CacheCall::finish, [&] { return quiet_finish(request, insert); });
  if (!status.ok()) return status;
  const RequestStart started = std::exchange(request.started, {});
  if (started.prompt_length && *started.prompt_length <= request.key.tokens.size())
    impl_->observer->on_finish({request.key, *started.prompt_length, started.at});
  return status;
}

Result<std::size_t> PrefixCache::release_window(std::span<Request* const> requests,
                                                std::span<const std::size_t> num_tokens) {
  return observed(impl_->observer, CacheCall::release_window,
                  [&] { return quiet_release_window(requests, num_tokens); });
}

Result<std::size_t> PrefixCache::release_window(Request& request, std::size_t num_tokens) {
  Request* const requests[] = {&request};
  return release_window(requests, {&num_tokens, 1});
}

// ---- Tiers -------------------------------------------------------------------------------------

Result<LoadBack> PrefixCache::load_back(Lease& lease, std::span<SlotId> slots,
                                        const LoadBackOptions& options) {
  if (impl_->observer == nullptr) [[likely]]
    return quiet_load_back(lease, slots, options);
  Result<LoadBack> result = observed(impl_->observer, CacheCall::load_back,
                                     [&] { return quiet_load_back(lease, slots, options); });
  if (result.ok()) impl_->observer->on_load_back(*result);
  return result;
}

Result<LoadBack> PrefixCache::load_back(Request& request, const LoadBackOptions& options) {
  Result<LoadBack> result = load_back(request.lease, request.slots, options);
  if (result.ok()) request.cached_length += result->tokens;
  return result;
}

Result<Prefetch> PrefixCache::prefetch(const Key& key) {
  if (impl_->observer == nullptr) [[likely]]
    return quiet_prefetch(key);
  Result<Prefetch> result =
      observed(impl_->observer, CacheCall::prefetch, [&] { return quiet_prefetch(key); });
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
