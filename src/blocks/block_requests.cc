// SPDX-License-Identifier: Apache-2.0
// The life of a request in a BlockCache: start, get_computed, allocate, advance, free. An
// allocation is planned first, group by group; when the plan fits, it is carried out.
#include <algorithm>
#include <utility>

#include "base/append.h"
#include "base/check.h"
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
  impl_->cache->let_go(*impl_);
  --impl_->cache->num_requests;
}

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

Result<BlockRequest> BlockCache::start(std::span<const Token> tokens, RequestKeys keys) {
  if (Status s = keys.validate(); !s) return s.error();
  auto r = std::make_unique<BlockRequest::Impl>();
  r->cache = impl_.get();
  r->keys = std::move(keys);
  r->ns = std::make_shared<const std::string>(
      make_namespace({.lora = r->keys.lora, .salt = r->keys.salt}));
  r->groups.resize(impl_->options.groups.size());
  r->tokens.assign(tokens.begin(), tokens.end());
  if (impl_->options.caching) {
    if (Status s = impl_->hasher.extend(r->tokens, r->keys, r->chain); !s) return s.error();
  }
  ++impl_->num_requests;
  return BlockRequest(std::move(r));
}

Status BlockCache::append(BlockRequest& request, std::span<const Token> tokens) {
  BlockRequest::Impl& r = own(request);
  const std::size_t before = r.tokens.size();
  pando::append(r.tokens, tokens);
  if (!impl_->options.caching) return {};
  Status hashed = impl_->hasher.extend(r.tokens, r.keys, r.chain);
  if (!hashed) r.tokens.resize(before);
  return hashed;
}

// ---- Finding -----------------------------------------------------------------------------------

std::size_t BlockCache::Impl::longest_hit(std::size_t limit, HitSearch::Reach reach) {
  const std::size_t length = search->longest(limit, reach);
  if (!options.recompute_last_block || length == 0) return length;
  return search->longest(length - search->align(), reach);
}

ComputedBlocks BlockCache::get_computed(const BlockRequest& request) {
  const BlockRequest::Impl& r = own(request);
  const std::size_t limit = Impl::limit_of(r);
  ComputedBlocks out;
  impl_->search->begin(impl_->keys_of(r));
  out.length = impl_->longest_hit(limit, HitSearch::Reach::device);
  for (std::size_t g = 0; g < r.groups.size(); ++g) {
    const BlockGroup& group = impl_->options.groups[g];
    std::vector<PageId>& blocks = out.blocks.emplace_back(out.length / group.block_size);
    for (std::size_t i = needed_from(group, out.length); i < blocks.size(); ++i)
      blocks[i] = impl_->search->device(g, i);
  }
  if (impl_->host) {
    const std::size_t more = impl_->longest_hit(limit, HitSearch::Reach::host) - out.length;
    if (more >= impl_->options.host->load_threshold) out.host_length = more;
  }
  ++impl_->stats.queries;
  impl_->stats.queried_tokens += r.num_tokens();
  impl_->stats.hit_tokens += out.length;
  impl_->stats.host_hit_tokens += out.host_length;
  return out;
}

// ---- Allocating --------------------------------------------------------------------------------

// Looked up again: blocks may have gone since get_computed().
Status BlockCache::Impl::plan_hits(const Request& r, const AllocateOptions& opts,
                                   std::vector<Plan>& plans) {
  const ComputedBlocks& computed = *opts.computed;
  const bool load = opts.load_from_host && computed.host_length > 0;
  const std::size_t length = computed.length + (load ? computed.host_length : 0);
  if (length > limit_of(r) || length % search->align() != 0 || (load && !host))
    return make_error(ErrorCode::invalid_argument,
                      "allocate: {} computed tokens of a request of {}; expected a multiple of {} "
                      "that get_computed found for it",
                      length, r.num_tokens(), search->align());
  search->begin(keys_of(r));
  for (std::size_t g = 0; g < plans.size(); ++g) {
    const BlockGroup& group = options.groups[g];
    std::vector<PageId>& hits = plans[g].hits;
    hits.assign(length / group.block_size, kNullBlock);
    for (std::size_t i = needed_from(group, length); i < hits.size(); ++i) {
      hits[i] = search->device(g, i);
      if (hits[i] != kNullBlock) continue;
      const std::optional<HostPageId> page = load ? search->host(g, i) : std::nullopt;
      if (!page)
        return make_error(ErrorCode::stale_handle,
                          "allocate: block {} of group {} has gone since get_computed; ask again",
                          i, g);
      plans[g].loads.emplace_back(i, *page);
    }
  }
  return {};
}

// Blocks behind those that the request has or will have, up to `slots_end` tokens. Returns how many
// blocks are taken in all.
std::size_t BlockCache::Impl::plan_new(const Request& r, std::size_t start, std::size_t new_end,
                                       std::size_t slots_end, std::vector<Plan>& plans) const {
  std::size_t sum = 0;
  for (std::size_t g = 0; g < plans.size(); ++g) {
    const BlockGroup& group = options.groups[g];
    Plan& plan = plans[g];
    const std::size_t have = r.groups[g].blocks.size() + plan.hits.size();
    const std::size_t end = std::max(have, (slots_end + group.block_size - 1) / group.block_size);
    std::size_t first = have;
    // A state is written where the step ends, and to every block behind that.
    if (group.kind == GroupKind::recurrent && !group.every_state && new_end > start)
      first = std::clamp((new_end - 1) / group.block_size, have, end);
    plan.num_null = first - have;
    plan.num_new = end - first;
    sum += plan.num_new + plan.loads.size();
  }
  return sum;
}

Status BlockCache::Impl::start_load(Request& r, const std::vector<Plan>& plans) {
  std::vector<BlockHost::Part> parts;
  for (std::uint32_t g = 0; g < plans.size(); ++g) {
    if (plans[g].loads.empty()) continue;
    BlockHost::Part& part = parts.emplace_back();
    part.group = g;
    for (const auto& [i, page] : plans[g].loads) {
      part.device.push_back(plans[g].hits[i]);
      part.host.push_back(page);
      note_origin(r, g, i, plans[g].hits[i]);
    }
  }
  if (parts.empty()) return {};
  Result<std::uint64_t> load = host->load(std::move(parts));
  if (!load) return load.error();
  loads[*load] = &r;
  ++r.num_loads;
  return {};
}

// Holds the hits, takes `num_blocks` more, and starts what is loaded; the request is as before if
// that fails.
Status BlockCache::Impl::commit(Request& r, std::vector<Plan>& plans, std::size_t num_blocks) {
  std::size_t unheld = 0;
  for (const Plan& plan : plans) {
    for (const PageId hit : plan.hits) unheld += hit != kNullBlock && pool->num_holders(hit) == 0;
  }
  if (num_blocks + unheld > pool->num_free())
    return make_error(ErrorCode::out_of_capacity,
                      "allocate: {} new blocks and {} free ones that were found; {} are free",
                      num_blocks, unheld, pool->num_free());
  for (const Plan& plan : plans) pool->touch(plan.hits);
  const auto for_each_load = [&](auto&& fn) {
    for (std::uint32_t g = 0; g < plans.size(); ++g) {
      for (const auto& [i, page] : plans[g].loads) fn(g, i, page);
    }
  };
  // Taking blocks may send others to the host, which must not push out what is to be loaded.
  for_each_load([&](std::uint32_t g, std::size_t, HostPageId page) { host->hold(g, page); });
  scratch.resize(num_blocks);
  const Status taken = pool->take(scratch);
  PANDO_CHECK(taken.ok(), "{} of {} free blocks were refused", num_blocks, pool->num_free());
  std::size_t next = 0;
  for_each_load(
      [&](std::uint32_t g, std::size_t i, HostPageId) { plans[g].hits[i] = scratch[next++]; });
  const Status loading = start_load(r, plans);
  for_each_load([&](std::uint32_t g, std::size_t, HostPageId page) { host->release(g, page); });
  if (!loading) {
    pool->free(std::span(scratch).subspan(next));
    for (const Plan& plan : plans) {
      scratch.assign(plan.hits.rbegin(), plan.hits.rend());
      pool->free(scratch);
    }
    return loading;
  }
  for (std::size_t g = 0; g < plans.size(); ++g) {
    std::vector<PageId>& blocks = r.groups[g].blocks;
    pando::append(blocks, plans[g].hits);
    blocks.resize(blocks.size() + plans[g].num_null, kNullBlock);
    pando::append(blocks, std::span(scratch).subspan(next, plans[g].num_new));
    next += plans[g].num_new;
  }
  return {};
}

Status BlockCache::allocate(BlockRequest& request, std::size_t num_new_tokens,
                            const AllocateOptions& options) {
  BlockRequest::Impl& r = own(request);
  const BlockCacheOptions& own = impl_->options;
  if (r.broken)
    return make_error(ErrorCode::corrupt,
                      "allocate: a load of this request failed; expected it to be preempted");
  if (options.computed != nullptr && r.running)
    return make_error(ErrorCode::invalid_argument,
                      "allocate: computed blocks for a request that has blocks already");
  std::vector<Impl::Plan> plans(r.groups.size());
  std::size_t start = r.num_computed;
  if (options.computed != nullptr) {
    if (Status s = impl_->plan_hits(r, options, plans); !s) return s;
    start = plans[0].hits.size() * own.groups[0].block_size;
  }
  const std::size_t room = own.max_tokens - std::min(start, own.max_tokens);
  if (num_new_tokens > room)
    return make_error(ErrorCode::invalid_argument,
                      "allocate: {} new tokens behind {}; a request may have {}", num_new_tokens,
                      start, own.max_tokens);
  const std::size_t end = start + num_new_tokens;
  const std::size_t slots_end = end + std::min(options.lookahead_tokens, own.max_tokens - end);
  const std::size_t num_blocks = impl_->plan_new(r, start, end, slots_end, plans);
  if (Status s = impl_->commit(r, plans, num_blocks); !s) return s;
  if (!r.running) {
    r.running = true;
    r.position = impl_->running.size();
    impl_->running.push_back(&r);
  }
  if (options.computed != nullptr) {
    r.num_computed = start;
    for (std::size_t g = 0; g < r.groups.size(); ++g) {
      r.groups[g].cached = start / own.groups[g].block_size;
      r.groups[g].released = needed_from(own.groups[g], start);
    }
  }
  if (!options.delay_caching && r.num_loads == 0)
    impl_->cache_blocks(r, std::min(end, r.num_tokens()), end);
  return {};
}

// ---- Caching -----------------------------------------------------------------------------------

void BlockCache::Impl::cache_block(Request& r, std::uint32_t g, std::size_t i) {
  const PageId block = r.groups[g].blocks[i];
  if (block == kNullBlock || pool->has_content(block)) return;
  const BlockContent content = keys_of(r).content(g, options.groups[g].block_size, i);
  if (!pool->cache(block, content)) return;
  ++stats.cached_blocks;
  if (!events) return;
  note_origin(r, g, i, block);
  if (!pool->has_twin(block)) record_stored(Medium::device, content, origins[index_of(block)]);
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

void BlockCache::Impl::settle(Request& r) {
  if (r.num_loads > 0 || r.broken) return;
  cache_blocks(r, r.num_computed, r.num_computed);
  for (std::uint32_t g = 0; g < r.groups.size(); ++g) {
    Request::Group& own = r.groups[g];
    const std::size_t full =
        std::min(r.num_computed / options.groups[g].block_size, own.blocks.size());
    if (host && own.confirmed < full)
      host->write_through(g, std::span(own.blocks).subspan(own.confirmed, full - own.confirmed));
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

Status BlockCache::advance(BlockRequest& request, std::size_t num_computed) {
  BlockRequest::Impl& r = own(request);
  if (r.broken)
    return make_error(ErrorCode::corrupt,
                      "advance: a load of this request failed; expected it to be preempted");
  if (num_computed < r.num_computed || num_computed > r.num_tokens())
    return make_error(ErrorCode::invalid_argument,
                      "advance to {} tokens: {} were computed before, and the request has {}",
                      num_computed, r.num_computed, r.num_tokens());
  for (std::size_t g = 0; g < r.groups.size() && num_computed > r.num_computed; ++g) {
    const BlockGroup& group = impl_->options.groups[g];
    const std::span<const PageId> blocks = r.groups[g].blocks;
    const std::size_t last = (num_computed - 1) / group.block_size;
    if (last >= blocks.size() || (group.kind == GroupKind::recurrent && blocks[last] == kNullBlock))
      return make_error(
          ErrorCode::invalid_argument,
          "advance to {} tokens: group {} has no block there; allocate() gave it {} of "
          "{} tokens",
          num_computed, g, blocks.size(), group.block_size);
  }
  r.num_computed = num_computed;
  impl_->settle(r);
  impl_->release_unseen(r);
  return {};
}

// ---- Letting go --------------------------------------------------------------------------------

void BlockCache::Impl::let_go(Request& r) {
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

void BlockCache::free(BlockRequest& request) { impl_->let_go(own(request)); }

void BlockCache::preempt(BlockRequest& request) {
  BlockRequest::Impl& r = own(request);
  impl_->stats.preemptions += r.running ? 1 : 0;
  impl_->let_go(r);
}

std::vector<std::size_t> BlockCache::common_prefix_blocks(const BlockRequest& any) const {
  const std::size_t n = impl_->running.size();
  std::vector<std::size_t> out;
  for (std::size_t g = 0; g < impl_->options.groups.size(); ++g) {
    std::size_t& shared = out.emplace_back(0);
    if (impl_->options.groups[g].kind != GroupKind::full) continue;
    const std::span<const PageId> blocks = own(any).groups[g].blocks;
    const auto holders = [&](PageId block) {
      return impl_->pool->num_holders(block) - (impl_->host ? impl_->host->copy_holds(block) : 0);
    };
    while (shared < blocks.size() && holders(blocks[shared]) == n) ++shared;
  }
  return out;
}

}  // namespace pando
