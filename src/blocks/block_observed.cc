// SPDX-License-Identifier: Apache-2.0
// The public calls of BlockCache that an observer is told of; see cache/observed.cc.
#include <chrono>
#include <utility>

#include "blocks/block_cache_impl.h"
#include "cache/observed.h"

namespace pando {
namespace {

// Less than a block is left behind what was found, or the next block is not there.
MatchEnd end_of(const BlockCacheOptions& options, std::size_t align, std::size_t limit,
                const BlockMatch& found) {
  if (!options.caching) return MatchEnd::disabled;
  const std::size_t left_out = options.recompute_last_block ? align : 0;
  const bool no_more = found.length + found.host_length + left_out + align > limit;
  return no_more ? MatchEnd::page_boundary : MatchEnd::no_such_child;
}

}  // namespace

Result<BlockRequest> BlockCache::start(std::span<const Token> tokens, RequestKeys keys) {
  CacheObserver* const observer = impl_->options.observer;
  RequestStart started;
  if (observer != nullptr) started = {std::chrono::steady_clock::now(), tokens.size()};
  Result<std::unique_ptr<BlockRequest::Impl>> made =
      observed(observer, CacheCall::start, [&] { return impl_->start(tokens, std::move(keys)); });
  if (!made.ok()) return made.error();
  (*made)->started = started;
  return BlockRequest(std::move(*made));
}

BlockMatch BlockCache::match(const BlockRequest& request) {
  CacheObserver* const observer = impl_->options.observer;
  if (observer == nullptr) return impl_->match(own(request));
  BlockMatch found =
      observed(observer, CacheCall::match, [&] { return impl_->match(own(request)); });
  const BlockRequest::Impl& r = *request.impl_;
  Match match;
  match.length = match.agreed_length = found.length;
  match.host_length = found.host_length;
  match.end = end_of(impl_->options, impl_->search->align(), Impl::limit_of(r), found);
  observer->on_match({r.tokens, *r.ns}, match);
  return found;
}

Status BlockCache::allocate(BlockRequest& request, std::size_t num_new_tokens,
                            const AllocateOptions& options) {
  return observed(impl_->options.observer, CacheCall::allocate,
                  [&] { return impl_->allocate(own(request), num_new_tokens, options); });
}

Status BlockCache::checkpoint(BlockRequest& request, std::size_t num_computed) {
  return observed(impl_->options.observer, CacheCall::checkpoint,
                  [&] { return impl_->checkpoint(own(request), num_computed); });
}

void BlockCache::finish(BlockRequest& request) {
  CacheObserver* const observer = impl_->options.observer;
  observed(observer, CacheCall::finish, [&] {
    impl_->let_go(own(request), /*finished=*/true);
    return true;
  });
  if (observer == nullptr) return;
  BlockRequest::Impl& r = *request.impl_;
  const RequestStart started = std::exchange(r.started, {});
  if (started.prompt_length)
    observer->on_finish({{r.tokens, *r.ns}, *started.prompt_length, started.at});
}

PollResult BlockCache::poll() {
  CacheObserver* const observer = impl_->options.observer;
  const PollResult result = observed(observer, CacheCall::poll, [&] { return impl_->poll(); });
  if (observer != nullptr) observer->on_poll(result);
  return result;
}

Result<Prefetch> BlockCache::prefetch(const BlockRequest& request) {
  CacheObserver* const observer = impl_->options.observer;
  Result<Prefetch> result =
      observed(observer, CacheCall::prefetch, [&] { return impl_->prefetch(own(request)); });
  if (observer != nullptr && result.ok())
    observer->on_prefetch({request.impl_->tokens, *request.impl_->ns}, *result);
  return result;
}

std::size_t BlockCache::end_prefetch(PrefetchId id) {
  return observed(impl_->options.observer, CacheCall::end_prefetch,
                  [&] { return impl_->end_prefetch(id, /*keep=*/true); });
}

void BlockCache::abort_prefetch(PrefetchId id) {
  observed(impl_->options.observer, CacheCall::abort_prefetch,
           [&] { return impl_->end_prefetch(id, /*keep=*/false); });
}

Status BlockCache::reset() {
  return observed(impl_->options.observer, CacheCall::reset, [&] { return impl_->reset(); });
}

}  // namespace pando
