// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on running requests: start, allocate, checkpoint, finish. They combine
// those on keys so that at every moment each slot of the request is the tree's (before
// cached_length) or its own (from there on).
#include <algorithm>

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
  return {};
}

}  // namespace

Result<Match> PrefixCache::start(Request& request) {
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
  Result<Match> found = match(key, request.slots);
  if (!found) return found;
  Result<Lease> lease = lock(*found);
  if (!lease) return lease.error();
  request.lease = std::move(*lease);
  request.cached_length = found->length;
  return found;
}

// Tries, evicts what is missing if that can help, and tries again; so that what the allocator
// refuses for another reason is refused before anything is evicted.
template <typename Alloc, typename CountPages>
Status PrefixCache::Impl::allocate(Alloc alloc, CountPages count_pages) {
  PagedAllocator* allocator = ledger.allocator();
  if (allocator == nullptr)
    return make_error(ErrorCode::unavailable,
                      "allocate: this cache stands on the engine's own slots; allocate them there");
  Status status = alloc(*allocator);
  if (status.ok() || status.error().code != ErrorCode::out_of_capacity) return status;
  const std::size_t num_pages = count_pages(*allocator);
  const std::size_t page_size = index.page_size();
  const std::size_t available = allocator->available_pages();
  const std::size_t evictable = index.sizes().evictable;
  if (num_pages > available + evictable / page_size)
    return make_error(ErrorCode::out_of_capacity,
                      "allocate: needs {} tokens in whole pages; {} are free and {} evictable",
                      num_pages * page_size, available * page_size, evictable);
  evict_pages(num_pages - available);
  return alloc(*allocator);
}

Status PrefixCache::allocate(Request& request, std::size_t from) {
  if (from > request.slots.size())
    return make_error(ErrorCode::invalid_argument, "allocate: from {} in {} slots", from,
                      request.slots.size());
  const std::size_t to = request.slots.size();
  const SlotId last = from == 0 ? SlotId{0} : request.slots[from - 1];
  return allocate_extend({&from, 1}, {&to, 1}, {&last, 1}, request.slots.subspan(from));
}

Status PrefixCache::allocate_extend(std::span<const std::size_t> prefix_lens,
                                    std::span<const std::size_t> seq_lens,
                                    std::span<const SlotId> last_slots, std::span<SlotId> out) {
  return impl_->allocate(
      [&](PagedAllocator& a) { return a.alloc_extend(prefix_lens, seq_lens, last_slots, out); },
      [&](PagedAllocator& a) { return a.pages_for_extend(prefix_lens, seq_lens); });
}

Status PrefixCache::allocate_decode(std::span<const std::size_t> seq_lens,
                                    std::span<const SlotId> last_slots, std::span<SlotId> out) {
  return impl_->allocate(
      [&](PagedAllocator& a) { return a.alloc_decode(seq_lens, last_slots, out); },
      [&](PagedAllocator& a) { return a.pages_for_decode(seq_lens); });
}

void PrefixCache::Impl::copy_tree_slots(const Plan& plan, std::size_t from_page,
                                        std::span<SlotId> slots) const {
  const std::size_t page_size = index.page_size();
  index.for_each_run(
      plan.cursor, [&](std::size_t first, const std::uint32_t* pages, std::size_t n) {
        const std::size_t skip = first < from_page ? std::min(from_page - first, n) : 0;
        expand_pages(pages + skip, n - skip, page_size, slots.data() + (first + skip) * page_size);
      });
}

// Whether the whole pages of the key reach at least to what the request got from the tree. They may
// not: k matched pages of a bigram key took one token more than has been computed yet.
bool PrefixCache::Impl::has_more_than_tree(const Request& request) const {
  const std::size_t num_pages = index.num_pages(request.key);
  return !options.disabled && num_pages > 0 &&
         num_pages * index.page_size() >= request.cached_length;
}

Status PrefixCache::checkpoint(Request& request, bool chunked) {
  if (Status s = validate(request, "checkpoint"); !s) return s;
  const std::size_t page_size = impl_->index.page_size();
  if (!impl_->has_more_than_tree(request)) return {};
  const std::size_t num_tokens = request.key.tokens.size();
  const Result<Impl::Plan> plan =
      impl_->plan_insert(request.key, request.slots.first(num_tokens), request.cached_length);
  if (!plan) return plan.error();
  impl_->copy_tree_slots(*plan, request.cached_length / page_size, request.slots);
  const Inserted inserted =
      impl_->apply_insert(*plan, request.key, {.priority = request.priority, .chunked = chunked});
  Lease lease;
  lease.cache_ = this;
  lease.node_ = impl_->lock_node(impl_->index.resolve(inserted.node));
  request.lease = std::move(lease);  // lets go of the old path
  request.cached_length = inserted.length;
  impl_->ledger.flush();
  return {};
}

Status PrefixCache::finish(Request& request, bool insert) {
  if (Status s = validate(request, "finish"); !s) return s;
  std::size_t kept = request.cached_length;
  if (insert && impl_->has_more_than_tree(request)) {
    const Result<Impl::Plan> plan = impl_->plan_insert(
        request.key, request.slots.first(request.key.tokens.size()), request.cached_length);
    if (!plan) return plan.error();
    kept = impl_->apply_insert(*plan, request.key, {.priority = request.priority}).length;
  }
  impl_->ledger.release(std::span<const SlotId>(request.slots.subspan(kept)));
  impl_->ledger.flush();
  request.lease.release();
  request.slots = {};
  request.cached_length = 0;
  return {};
}

}  // namespace pando
