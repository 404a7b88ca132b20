// SPDX-License-Identifier: Apache-2.0
// The life of a request in a BlockCache: start, append, match, checkpoint, preempt and finish.
// block_allocate.cc has the blocks for its next tokens.
#include <algorithm>
#include <utility>

#include "base/append.h"
#include "base/check.h"
#include "base/tokens.h"
#include "blocks/block_cache_impl.h"

namespace pando {

// ---- The request -------------------------------------------------------------------------------

BlockRequest::BlockRequest(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockRequest::BlockRequest(BlockRequest&& other) noexcept = default;

BlockRequest& BlockRequest::operator=(BlockRequest&& other) noexcept {
  if (this != &other) {
    BlockRequest gone(std::move(*this));
    impl_ = std::move(other.impl_);
  }
  return *this;
}

BlockRequest::~BlockRequest() {
  if (!impl_) return;
  impl_->cache->let_go(*impl_, /*finished=*/true);
  --impl_->cache->num_requests;
}

bool BlockRequest::is_running() const { return impl_ && impl_->running; }
std::span<const Token> BlockRequest::tokens() const { return impl_->tokens; }
std::span<const BlockHash> BlockRequest::hashes() const { return impl_->chain; }
const RequestKeys& BlockRequest::keys() const { return impl_->keys; }
std::span<const PageId> BlockRequest::blocks(std::size_t group) const {
  PANDO_CHECK(group < impl_->groups.size(), "group {} of {}", group, impl_->groups.size());
  return impl_->groups[group].blocks;
}
std::size_t BlockRequest::num_computed() const { return impl_->num_computed; }
bool BlockRequest::is_broken() const { return impl_->broken; }

BlockRequest::Impl& BlockCache::own(const BlockRequest& request) const {
  PANDO_CHECK(request.impl_ && request.impl_->cache == impl_.get(),
              "a BlockCache was given a request that {}",
              request.impl_ ? "is another's" : "was moved from");
  return *request.impl_;
}

Result<std::unique_ptr<BlockRequest::Impl>> BlockCache::Impl::start(std::span<const Token> tokens,
                                                                    RequestKeys keys) {
  if (Status s = keys.validate(); !s) return s.error();
  auto r = std::make_unique<Request>();
  r->cache = this;
  r->keys = std::move(keys);
  r->ns = std::make_shared<const std::string>(
      make_namespace({.lora = r->keys.lora, .salt = r->keys.salt}));
  r->groups.resize(options.groups.size());
  r->tokens.assign(tokens.begin(), tokens.end());
  if (options.caching) {
    if (Status s = hasher.extend(r->tokens, r->keys, r->chain); !s) return s.error();
  }
  // The hasher has looked at whole blocks.
  if (Status s = refuse_negative(tokens, r->chain.size() * unit, tokens.size(), "start"); !s)
    return s.error();
  ++num_requests;
  return r;
}

Status BlockRequest::append(std::span<const Token> tokens) {
  PANDO_CHECK(impl_, "append to a BlockRequest that was moved from");
  const BlockCache::Impl& cache = *impl_->cache;
  const std::size_t before = impl_->tokens.size();
  pando::append(impl_->tokens, tokens);
  Status taken = refuse_negative(impl_->tokens, before, impl_->tokens.size(), "append");
  if (taken.ok() && cache.options.caching)
    taken = cache.hasher.extend(impl_->tokens, impl_->keys, impl_->chain);
  if (!taken) impl_->tokens.resize(before);
  return taken;
}

// ---- Finding -----------------------------------------------------------------------------------

std::size_t BlockCache::Impl::longest_hit(std::size_t limit, HitSearch::Reach reach) {
  const std::size_t length = search->longest(limit, reach);
  if (!options.recompute_last_block || length == 0) return length;
  return search->longest(length - search->align(), reach);
}

// By the cost gate. `length` is where the hit would end.
bool BlockCache::Impl::is_worth_loading(const Request& r, std::size_t length,
                                        std::size_t num_tokens) {
  if (!tiers->engine.gate.is_on()) return true;
  std::vector<std::size_t> pages(r.groups.size());
  for (std::size_t g = 0; g < pages.size(); ++g) {
    const BlockGroup& group = options.groups[g];
    for (std::size_t i = needed_from(group, length); i < length / group.block_size; ++i)
      pages[g] += search->device(g, i) == kNullBlock ? 1 : 0;
  }
  return tiers->is_worth_loading(pages, num_tokens);
}

BlockMatch BlockCache::Impl::match(const Request& r) {
  const std::size_t limit = limit_of(r);
  BlockMatch out;
  search->begin(keys_of(r));
  out.length = longest_hit(limit, HitSearch::Reach::device);
  for (std::size_t g = 0; g < r.groups.size(); ++g) {
    const BlockGroup& group = options.groups[g];
    std::vector<PageId>& blocks = out.blocks.emplace_back(out.length / group.block_size);
    for (std::size_t i = needed_from(group, out.length); i < blocks.size(); ++i)
      blocks[i] = search->device(g, i);
  }
  if (host) {
    const std::size_t more = longest_hit(limit, HitSearch::Reach::host) - out.length;
    if (more > 0 && more >= options.host->load_back_threshold &&
        is_worth_loading(r, out.length + more, more))
      out.host_length = more;
  }
  ++stats.queries;
  stats.queried_tokens += r.num_tokens();
  stats.hit_tokens += out.length;
  stats.host_hit_tokens += out.host_length;
  return out;
}

// ---- Caching -----------------------------------------------------------------------------------

void BlockCache::Impl::cache_block(Request& r, std::uint32_t g, std::size_t i) {
  const PageId block = r.groups[g].blocks[i];
  if (block == kNullBlock || pool->has_content(block)) return;
  const BlockContent content = keys_of(r).content(g, options.groups[g].block_size, i);
  if (hazard) note_position(r, g, i, block, i > 0 ? cached_block(r, g, i - 1) : kNullBlock);
  if (!pool->cache(block, content)) return;
  ++stats.cached_blocks;
  if (hazard && pool->has_twin(block)) hazard->copy_hits(block, pool->find(content));
  if (!events) return;
  note_origin(r, g, i, block);
  if (!pool->has_twin(block)) record_stored(Tier::device, content, origins[index_of(block)]);
}

void BlockCache::Impl::cache_blocks(Request& r, std::size_t length, std::size_t step_end) {
  if (!options.caching) return;
  for (std::uint32_t g = 0; g < r.groups.size(); ++g) {
    const BlockGroup& group = options.groups[g];
    Request::Group& own = r.groups[g];
    const std::size_t full = std::min(length / group.block_size, own.blocks.size());
    if (group.kind == GroupKind::recurrent && !group.every_state) {
      // Only where a step ends is the state that of a block's end.
      if (full > 0 && full * group.block_size == step_end) cache_block(r, g, full - 1);
      own.cached = std::max(own.cached, full);
      continue;
    }
    for (; own.cached < full; ++own.cached) cache_block(r, g, own.cached);
  }
}

void BlockCache::Impl::cache_computed(Request& r) {
  if (r.num_loads > 0 || r.broken) return;
  cache_blocks(r, r.num_computed, r.num_computed);
  for (std::uint32_t g = 0; g < r.groups.size(); ++g) {
    Request::Group& own = r.groups[g];
    const std::size_t full =
        std::min(r.num_computed / options.groups[g].block_size, own.blocks.size());
    if (tiers && own.confirmed < full)
      tiers->used(g, std::span(own.blocks).subspan(own.confirmed, full - own.confirmed));
    own.confirmed = std::max(own.confirmed, full);
  }
}

// From the last to the first, as everything that a request lets go of.
void BlockCache::Impl::release_unseen(Request& r) {
  for (std::size_t g = 0; g < r.groups.size(); ++g) {
    Request::Group& own = r.groups[g];
    const std::size_t from =
        std::min(needed_from(options.groups[g], r.num_computed), own.blocks.size());
    scratch.clear();
    for (std::size_t i = from; i > own.released; --i)
      scratch.push_back(std::exchange(own.blocks[i - 1], kNullBlock));
    own.released = std::max(own.released, from);
    pool->free(scratch);
  }
}

Status BlockCache::Impl::checkpoint(Request& r, std::size_t num_computed) {
  if (r.broken)
    return make_error(ErrorCode::corrupt,
                      "checkpoint: a load of this request failed; expected it to be preempted");
  if (num_computed < r.num_computed || num_computed > r.num_tokens())
    return make_error(ErrorCode::invalid_argument,
                      "checkpoint of {} tokens: {} were computed before, and the request has {}",
                      num_computed, r.num_computed, r.num_tokens());
  for (std::size_t g = 0; g < r.groups.size() && num_computed > r.num_computed; ++g) {
    const BlockGroup& group = options.groups[g];
    const std::span<const PageId> blocks = r.groups[g].blocks;
    const std::size_t last = (num_computed - 1) / group.block_size;
    if (last >= blocks.size() || (group.kind == GroupKind::recurrent && blocks[last] == kNullBlock))
      return make_error(
          ErrorCode::invalid_argument,
          "checkpoint of {} tokens: group {} has no block there; allocate() gave it {} of "
          "{} tokens",
          num_computed, g, blocks.size(), group.block_size);
  }
  r.num_computed = num_computed;
  cache_computed(r);
  release_unseen(r);
  return {};
}

// ---- Letting go --------------------------------------------------------------------------------

void BlockCache::Impl::let_go(Request& r, bool finished) {
  if (!r.running) return;
  scratch.clear();
  for (std::size_t g = 0; g < r.groups.size(); ++g) {
    const Request::Group& own = r.groups[g];
    const std::size_t computed = r.num_computed / options.groups[g].block_size;
    for (std::size_t i = computed; i < std::min(own.cached, own.blocks.size()); ++i)
      scratch.push_back(own.blocks[i]);
  }
  discarding = true;
  pool->forget(scratch);
  discarding = false;
  if (hazard) observe(r, finished);
  for (Request::Group& own : r.groups) {
    std::reverse(own.blocks.begin(), own.blocks.end());
    pool->free(own.blocks);
    own = {};
  }
  for (auto& [load, request] : loads) {
    if (request == &r) request = nullptr;
  }
  running.back()->position = r.position;
  running[r.position] = running.back();
  running.pop_back();
  r.running = false;
  r.num_computed = 0;
  r.num_loads = 0;
  r.broken = false;
}

void BlockCache::preempt(BlockRequest& request) {
  BlockRequest::Impl& r = own(request);
  impl_->stats.preemptions += r.running ? 1 : 0;
  impl_->let_go(r, /*finished=*/false);
}

void BlockCache::forget(std::span<const PageId> blocks) {
  impl_->discarding = true;
  impl_->pool->forget(blocks);
  impl_->discarding = false;
}

std::vector<std::size_t> BlockCache::common_prefix_blocks(const BlockRequest& any) const {
  const std::size_t n = impl_->running.size();
  std::vector<std::size_t> out;
  for (std::size_t g = 0; g < impl_->options.groups.size(); ++g) {
    std::size_t& shared = out.emplace_back(0);
    if (impl_->options.groups[g].kind != GroupKind::full) continue;
    const std::span<const PageId> blocks = own(any).groups[g].blocks;
    const auto holders = [&](PageId block) {
      return impl_->pool->num_holders(block) - (impl_->tiers ? impl_->tiers->copy_holds(block) : 0);
    };
    while (shared < blocks.size() && holders(blocks[shared]) == n) ++shared;
  }
  return out;
}

}  // namespace pando
