// SPDX-License-Identifier: Apache-2.0
// Blocks for a request's next tokens: planned first, group by group; when the plan fits, it is
// carried out.
#include <algorithm>
#include <utility>

#include "base/append.h"
#include "base/check.h"
#include "blocks/block_cache_impl.h"

namespace pando {

// Looked up again: blocks may have gone since match().
Status BlockCache::Impl::plan_hits(const Request& r, const AllocateOptions& opts,
                                   std::vector<GroupPlan>& plans) {
  const BlockMatch& match = *opts.match;
  const bool load = opts.load_back && match.host_length > 0;
  const std::size_t length = match.length + (load ? match.host_length : 0);
  if (length > limit_of(r) || length % search->align() != 0 || (load && !host))
    return make_error(
        ErrorCode::invalid_argument,
        "allocate: a match of {} tokens for a request of {}; expected a multiple of {} "
        "that match() found for it",
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
                          "allocate: block {} of group {} has gone since match(); ask again", i, g);
      plans[g].loads.emplace_back(i, *page);
    }
  }
  return {};
}

// Blocks behind those that the request has or will have, up to `slots_end` tokens. Returns how many
// blocks are taken in all.
std::size_t BlockCache::Impl::plan_new(const Request& r, std::size_t start, std::size_t new_end,
                                       std::size_t slots_end, std::vector<GroupPlan>& plans) const {
  std::size_t sum = 0;
  for (std::size_t g = 0; g < plans.size(); ++g) {
    const BlockGroup& group = options.groups[g];
    GroupPlan& plan = plans[g];
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

Status BlockCache::Impl::start_load(Request& r, const std::vector<GroupPlan>& plans) {
  std::vector<BlockTiers::Pair> pairs;
  for (std::uint32_t g = 0; g < plans.size(); ++g) {
    for (const auto& [i, page] : plans[g].loads) {
      pairs.push_back({g, plans[g].hits[i], page});
      note_origin(r, g, i, plans[g].hits[i]);
      if (hazard)
        note_position(r, g, i, plans[g].hits[i], i > 0 ? plans[g].hits[i - 1] : kNullBlock);
    }
  }
  if (pairs.empty()) return {};
  Result<std::uint64_t> load = tiers->load(pairs);
  if (!load) return load.error();
  loads[*load] = &r;
  ++r.num_loads;
  return {};
}

// Holds the hits, takes `num_blocks` more, and starts what is loaded; the request is as before if
// that fails.
Status BlockCache::Impl::commit(Request& r, std::vector<GroupPlan>& plans, std::size_t num_blocks) {
  std::size_t unheld = 0;
  for (const GroupPlan& plan : plans) {
    for (const PageId hit : plan.hits) unheld += hit != kNullBlock && pool->num_holders(hit) == 0;
  }
  if (num_blocks + unheld > pool->num_free())
    return make_error(ErrorCode::out_of_capacity,
                      "allocate: {} new blocks and {} free ones that were found; {} are free",
                      num_blocks, unheld, pool->num_free());
  for (const GroupPlan& plan : plans) pool->touch(plan.hits);
  const auto for_each_load = [&](auto&& fn) {
    for (std::uint32_t g = 0; g < plans.size(); ++g) {
      for (const auto& [i, page] : plans[g].loads) fn(g, i, page);
    }
  };
  // Taking blocks may send others to the host, which must not push out what is to be loaded.
  for_each_load([&](std::uint32_t g, std::size_t, HostPageId page) { host->hold(g, page); });
  scratch.resize(num_blocks);
  if (hazard) hazard->look_ahead(blocks_in(r, hazard->unit_group(), r.num_tokens()));
  const Status taken = pool->take(scratch);
  if (hazard) hazard->look_ahead(0);
  PANDO_CHECK(taken.ok(), "{} of {} free blocks were refused", num_blocks, pool->num_free());
  std::size_t next = 0;
  for_each_load(
      [&](std::uint32_t g, std::size_t i, HostPageId) { plans[g].hits[i] = scratch[next++]; });
  Status loading = start_load(r, plans);
  for_each_load([&](std::uint32_t g, std::size_t, HostPageId page) { host->release(g, page); });
  if (!loading) {
    pool->free(std::span(scratch).subspan(next));
    for (const GroupPlan& plan : plans) {
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

Status BlockCache::Impl::allocate(Request& r, std::size_t num_new_tokens,
                                  const AllocateOptions& given) {
  if (r.broken)
    return make_error(ErrorCode::corrupt,
                      "allocate: a load of this request failed; expected it to be preempted");
  if (given.match != nullptr && r.running)
    return make_error(ErrorCode::invalid_argument,
                      "allocate: a match for a request that has blocks already");
  std::vector<GroupPlan> plans(r.groups.size());
  std::size_t start = r.num_computed;
  if (given.match != nullptr) {
    if (Status s = plan_hits(r, given, plans); !s) return s;
    start = plans[0].hits.size() * options.groups[0].block_size;
  }
  const std::size_t room = options.max_tokens - std::min(start, options.max_tokens);
  if (num_new_tokens > room)
    return make_error(ErrorCode::invalid_argument,
                      "allocate: {} new tokens behind {}; a request may have {}", num_new_tokens,
                      start, options.max_tokens);
  const std::size_t end = start + num_new_tokens;
  const std::size_t slots_end = end + std::min(given.lookahead_tokens, options.max_tokens - end);
  const std::size_t num_blocks = plan_new(r, start, end, slots_end, plans);
  // Before anything is evicted or cached for it.
  const bool counts = hazard && !r.num_seen;
  const std::size_t num_seen = counts ? count_seen(r, start) : 0;
  if (Status s = commit(r, plans, num_blocks); !s) return s;
  if (counts) r.num_seen = num_seen;
  if (!r.running) {
    r.running = true;
    r.position = running.size();
    running.push_back(&r);
  }
  if (given.match != nullptr) {
    r.num_computed = start;
    for (std::size_t g = 0; g < r.groups.size(); ++g) {
      r.groups[g].cached = start / options.groups[g].block_size;
      r.groups[g].released = needed_from(options.groups[g], start);
    }
  }
  if (!given.delay_caching && r.num_loads == 0) cache_blocks(r, std::min(end, r.num_tokens()), end);
  return {};
}

}  // namespace pando
