// SPDX-License-Identifier: Apache-2.0
// Host pages by content; see the header.
#include "blocks/host_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace pando {

HostBlocks::Group::Group(const BlockGroup& group, bool keep_tokens, const HazardBlocks* ranks)
    : pool(group.pools.host),
      block_size(group.block_size),
      index(pool->num_pages() + 1, {&group.block_size, 1}, keep_tokens),
      unused(pool->num_pages() + 1, IdList<PageId>::Start::none),
      holds(pool->num_pages()),
      loading(pool->num_pages()),
      unstored(pool->num_pages()),
      generations(pool->num_pages()) {
  if (ranks != nullptr) hazard.emplace(pool->num_pages() + 1, ranks->index());
}

void HostBlocks::Group::add_unused(PageId id) {
  unused.append(id);
  if (hazard) hazard->insert(id);
}

void HostBlocks::Group::remove_unused(PageId id) {
  unused.remove(id);
  if (hazard) hazard->erase(id);
}

HostBlocks::HostBlocks(std::span<const BlockGroup> groups, bool keep_tokens,
                       const HazardBlocks* hazard) {
  for (const BlockGroup& group : groups) groups_.emplace_back(group, keep_tokens, hazard);
}

std::optional<HostPageId> HostBlocks::find(const BlockContent& content) const {
  const PageId id =
      groups_[content.group].index.find({0, content.hash, content.tokens, content.alias});
  if (id == kNullBlock) return std::nullopt;
  return page_of(id);
}

void HostBlocks::keep(HostPageId page, const BlockContent& content, const Draw::Candidate& rank) {
  Group& group = groups_[content.group];
  group.index.insert(id_of(page), {0, content.hash, content.tokens, content.alias});
  if (group.hazard) group.hazard->set_rank(id_of(page), rank);
  group.add_unused(id_of(page));
}

void HostBlocks::set_rank(const BlockContent& content, const Draw::Candidate& rank) {
  const std::optional<HostPageId> page = find(content);
  if (!page) return;
  Group& group = groups_[content.group];
  const bool listed = group.unused.has(id_of(*page));
  if (listed) group.hazard->erase(id_of(*page));
  group.hazard->set_rank(id_of(*page), rank);
  if (listed) group.hazard->insert(id_of(*page));
}

void HostBlocks::hold(std::uint32_t g, HostPageId page) {
  Group& group = groups_[g];
  if (group.holds[index_of(page)]++ == 0) group.remove_unused(id_of(page));
}

// What was held has been used: it is the last to go, unless it has a rank.
void HostBlocks::release(std::uint32_t g, HostPageId page) {
  Group& group = groups_[g];
  if (--group.holds[index_of(page)] == 0) group.add_unused(id_of(page));
}

void HostBlocks::begin_load(std::uint32_t g, HostPageId page) {
  Group& group = groups_[g];
  if (group.loading[index_of(page)]++ == 0) group.pool->protect_load({&page, 1});
}

void HostBlocks::end_load(std::uint32_t g, HostPageId page) {
  Group& group = groups_[g];
  if (--group.loading[index_of(page)] == 0) group.pool->abort_load({&page, 1});
}

void HostBlocks::set_unstored(std::uint32_t g, HostPageId page, bool yes) {
  std::vector<bool>& unstored = groups_[g].unstored;
  if (unstored[index_of(page)] == yes) return;
  unstored[index_of(page)] = yes;
  num_unstored_ += yes ? 1 : SIZE_MAX;
}

void HostBlocks::set_all_unstored() {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    for (std::uint32_t i = 0; i < groups_[g].unstored.size(); ++i)
      set_unstored(g, HostPageId{i}, groups_[g].index.has(id_of(HostPageId{i})));
  }
}

// ---- Going -------------------------------------------------------------------------------------

void HostBlocks::forget(std::uint32_t g, PageId id) {
  Group& group = groups_[g];
  const HostPageId page = page_of(id);
  group.remove_unused(id);
  group.index.erase(id);
  set_unstored(g, page, false);
  ++group.generations[index_of(page)];
  group.pool->free({&page, 1});
}

std::size_t HostBlocks::evict(std::uint32_t g, std::size_t n) {
  Group& group = groups_[g];
  n = std::min(n, group.unused.size());
  for (std::size_t i = 0; i < n; ++i) {
    const PageId id = group.next_victim();
    if (on_removed) on_removed(content(g, page_of(id)));
    forget(g, id);
  }
  return n;
}

void HostBlocks::clear() {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    while (groups_[g].unused.size() > 0) forget(g, groups_[g].unused.front());
  }
}

// ---- Telling -----------------------------------------------------------------------------------

Sizes HostBlocks::sizes(std::uint32_t g) const {
  const Group& group = groups_[g];
  const std::size_t evictable = group.unused.size() * group.block_size;
  const std::size_t total = group.index.size() * group.block_size;
  return {evictable, total - evictable, total};
}

std::size_t HostBlocks::memory_bytes() const {
  std::size_t sum = 0;
  for (const Group& group : groups_)
    sum += group.index.memory_bytes() + group.unused.memory_bytes() +
           (group.hazard ? group.hazard->memory_bytes() : 0) +
           (group.holds.capacity() + group.loading.capacity() + group.generations.capacity()) *
               sizeof(std::uint32_t) +
           group.unstored.capacity() / 8;
  return sum;
}

Status HostBlocks::check(std::span<const std::size_t> num_writing) const {
  std::size_t num_unstored = 0;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (Status s = group.index.check(); !s) return s;
    if (Status s = group.unused.check(); !s) return s;
    if (group.hazard) {
      if (Status s = group.hazard->check(group.unused); !s) return s;
    }
    const HostPool& pool = *group.pool;
    if (Status s = pool.check(); !s) return s;
    if (pool.count(PageState::writing) != num_writing[g] || pool.count(PageState::reserved) != 0 ||
        pool.num_pages() - pool.available_pages() != num_writing[g] + group.index.size())
      return make_error(
          ErrorCode::corrupt, "group {}: {} host pages in use, {} kept and {} being written", g,
          pool.num_pages() - pool.available_pages(), group.index.size(), num_writing[g]);
    for (std::uint32_t i = 0; i < pool.num_pages(); ++i) {
      const PageId id = id_of(HostPageId{i});
      const bool kept = group.index.has(id);
      const bool held = group.holds[i] > 0;
      const PageState expected = group.loading[i] > 0 ? PageState::loading : PageState::backed_up;
      num_unstored += group.unstored[i] ? 1 : 0;
      if (group.unused.has(id) != (kept && !held) || (held && !kept) ||
          (group.unstored[i] && !kept) || (kept && pool.state(HostPageId{i}) != expected))
        return make_error(ErrorCode::corrupt,
                          "group {}: host page {} is {}, {} holds, {}kept, {}in the order of use",
                          g, i, to_string(pool.state(HostPageId{i})), group.holds[i],
                          kept ? "" : "not ", group.unused.has(id) ? "" : "not ");
    }
  }
  if (num_unstored != num_unstored_)
    return make_error(ErrorCode::corrupt, "{} host pages are unstored, counted {}", num_unstored,
                      num_unstored_);
  return {};
}

}  // namespace pando
