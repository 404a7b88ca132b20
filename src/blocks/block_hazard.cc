// SPDX-License-Identifier: Apache-2.0
// What BlockCache tells a policy that learns: where blocks are in their chains, what a request had
// been seen of when it started, and what it used when it finished.
#include <algorithm>

#include "blocks/block_cache_impl.h"

namespace pando {

// The first group with full attention; without one, that of the smallest blocks.
void BlockCache::Impl::make_hazard() {
  HazardBlocks::Options made;
  made.num_blocks = options.num_blocks;
  const auto before = [](const BlockGroup& a, const BlockGroup& b) {
    if ((a.kind == GroupKind::full) != (b.kind == GroupKind::full))
      return a.kind == GroupKind::full;
    return a.kind != GroupKind::full && a.block_size < b.block_size;
  };
  const auto unit_group = std::min_element(options.groups.begin(), options.groups.end(), before);
  made.unit_group = static_cast<std::uint32_t>(unit_group - options.groups.begin());
  made.unit_group_tokens = unit_group->block_size;
  for (const BlockGroup& group : options.groups)
    made.leaves_only.push_back(group.kind == GroupKind::full);
  if (options.host) made.lower_pages = unit_group->pools.host->num_pages();
  hazard = std::make_unique<HazardBlocks>(made);
}

// ---- Chains ------------------------------------------------------------------------------------

void BlockCache::Impl::note_position(const Request& r, std::uint32_t g, std::size_t i, PageId block,
                                     PageId before) {
  const BlockKeys keys = keys_of(r);
  const std::size_t size = options.groups[g].block_size;
  HazardBlocks::Position position;
  position.group = g;
  position.depth = static_cast<std::uint32_t>(i);
  position.name = HazardBlocks::name_of(*keys.content(g, size, i).hash);
  if (i > 0 && options.groups[g].kind == GroupKind::full) {
    position.name_before = HazardBlocks::name_of(*keys.content(g, size, i - 1).hash);
    position.before = before;
  }
  if (g == hazard->unit_group()) position.unit = unit_name(r, i);
  hazard->set_position(block, position);
}

// Of the unit that block i is in, if the request has all of it.
std::optional<std::uint64_t> BlockCache::Impl::unit_name(const Request& r, std::size_t i) const {
  const std::uint32_t g = hazard->unit_group();
  const std::size_t end = (i / hazard->blocks_per_unit() + 1) * hazard->blocks_per_unit();
  if (end > blocks_in(r, g, r.num_tokens())) return std::nullopt;
  return HazardBlocks::name_of(*keys_of(r).content(g, options.groups[g].block_size, end - 1).hash);
}

// The request's own where it has content. Deduplicated it may have none: then another's.
PageId BlockCache::Impl::cached_block(const Request& r, std::uint32_t g, std::size_t i) const {
  const std::vector<PageId>& own = r.groups[g].blocks;
  if (i < own.size() && own[i] != kNullBlock && pool->has_content(own[i])) return own[i];
  if (options.groups[g].kind != GroupKind::full) return kNullBlock;
  return pool->find(keys_of(r).content(g, options.groups[g].block_size, i));
}

// ---- Requests ----------------------------------------------------------------------------------

std::size_t BlockCache::Impl::blocks_in(const Request& r, std::uint32_t g,
                                        std::size_t num_tokens) const {
  return std::min(num_tokens, r.chain.size() * unit) / options.groups[g].block_size;
}

// Behind the hit there may be blocks that have gone, or that the hit had to leave out.
std::size_t BlockCache::Impl::count_seen(const Request& r, std::size_t hit_tokens) const {
  const std::uint32_t g = hazard->unit_group();
  const std::size_t size = options.groups[g].block_size;
  const BlockKeys keys = keys_of(r);
  std::size_t seen = hit_tokens / size;
  for (const std::size_t n = blocks_in(r, g, r.num_tokens()); seen < n; ++seen) {
    const BlockContent content = keys.content(g, size, seen);
    if (!hazard->past_hits(unit_name(r, seen)) && pool->find(content) == kNullBlock &&
        !(host && host->find(content)))
      break;
  }
  return seen;
}

// Its blocks are still held. One that is preempted has not finished: its blocks get a class, but
// nothing is learned of them.
void BlockCache::Impl::observe(Request& r, bool finished) {
  if (!r.num_seen) return;
  const std::uint32_t unit_group = hazard->unit_group();
  const std::size_t length = blocks_in(r, unit_group, r.num_computed);
  const std::size_t num_new = hazard->units_of(length - std::min(length, *r.num_seen));
  if (finished && length > 0) hazard->begin_request(length);
  for (std::uint32_t g = 0; g < r.groups.size(); ++g) {
    const std::size_t n = blocks_in(r, g, r.num_computed);
    const std::size_t unit_blocks = g == unit_group ? hazard->blocks_per_unit() : 1;
    for (std::size_t i = 0; i < n; ++i)
      observe_block(r, g, i, {num_new, i + unit_blocks >= n, finished});
  }
  if (finished) r.num_seen.reset();
}

void BlockCache::Impl::observe_block(const Request& r, std::uint32_t g, std::size_t i,
                                     const Access& access) {
  const PageId block = cached_block(r, g, i);
  const bool is_unit = g == hazard->unit_group();
  if (!access.finished) {
    if (block != kNullBlock && hazard->is_fresh(block))
      hazard->use(block,
                  ReuseHazard::class_of(access.num_new, hazard->hits(block), access.is_last));
    return;
  }
  if (block == kNullBlock && !is_unit) return;
  const BlockContent content = keys_of(r).content(g, options.groups[g].block_size, i);
  const std::uint64_t name = HazardBlocks::name_of(*content.hash);
  const std::uint32_t hits = block != kNullBlock ? hazard->hit(block)
                                                 : hazard->past_hits(unit_name(r, i)).value_or(0) +
                                                       (i < *r.num_seen ? 1 : 0);
  const ReuseHazard::Class cls = ReuseHazard::class_of(access.num_new, hits, access.is_last);
  if (is_unit) hazard->access(name, i, cls);
  if (block == kNullBlock) return;
  hazard->use(block, cls);
  if (host) host->set_rank(content, hazard->rank(block));
}

}  // namespace pando
