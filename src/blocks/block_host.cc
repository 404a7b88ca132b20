// SPDX-License-Identifier: Apache-2.0
// Copies of blocks to the host and back. Everything that a pool or the copier may refuse is asked
// first; what follows cannot fail.
#include "blocks/block_host.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace pando {

BlockHost::Group::Group(const BlockGroup& group, bool keep_tokens, const HazardBlocks* ranks)
    : pools(group.pools),
      block_size(group.block_size),
      index(pools.host->num_pages() + 1, {&group.block_size, 1}, keep_tokens),
      unused(pools.host->num_pages() + 1, FreeQueue::Start::none),
      holds(pools.host->num_pages()),
      loading(pools.host->num_pages()) {
  if (ranks != nullptr) hazard.emplace(pools.host->num_pages() + 1, ranks->index());
}

void BlockHost::Group::add_unused(PageId id) {
  unused.append(id);
  if (hazard) hazard->insert(id);
}

void BlockHost::Group::remove_unused(PageId id) {
  unused.remove(id);
  if (hazard) hazard->erase(id);
}

BlockHost::BlockHost(std::span<const BlockGroup> groups, const BlockHostOptions& options,
                     bool keep_tokens, BlockPool& pool, const HazardBlocks* hazard)
    : options_(options),
      pool_(pool),
      hazard_(hazard),
      uses_(pool.num_blocks()),
      backing_up_(pool.num_blocks()),
      copy_holds_(pool.num_blocks()) {
  for (const BlockGroup& group : groups) groups_.emplace_back(group, keep_tokens, hazard);
}

BlockHost::~BlockHost() {
  on_load_ended = nullptr;
  drain();
  clear();
}

bool BlockHost::Copy::finished() const {
  return std::all_of(transfers.begin(), transfers.end(),
                     [](const Transfer& t) { return t.finished(); });
}

bool BlockHost::Copy::arrived() const {
  return std::all_of(transfers.begin(), transfers.end(),
                     [](const Transfer& t) { return t.wait().ok(); });
}

std::optional<HostPageId> BlockHost::find(const BlockContent& content) const {
  const PageId id =
      groups_[content.group].index.find({0, content.hash, content.tokens, content.alias});
  if (id == kNullBlock) return std::nullopt;
  return page_of(id);
}

// ---- Host pages --------------------------------------------------------------------------------

void BlockHost::evict_one(std::uint32_t g) {
  Group& group = groups_[g];
  const PageId id = group.next_victim();
  group.remove_unused(id);
  if (on_removed) on_removed(content(g, page_of(id)));
  group.index.erase(id);
  const HostPageId page = page_of(id);
  group.pools.host->free({&page, 1});
  stats.host_evicted_tokens += group.block_size;
}

// After evicting what is missing.
Result<std::vector<HostPageId>> BlockHost::reserve(std::uint32_t g, std::size_t n) {
  HostPool& host = *groups_[g].pools.host;
  if (room(g) < n)
    return make_error(ErrorCode::out_of_capacity, "{} host pages wanted of group {}: {} can be had",
                      n, g, room(g));
  while (host.available_pages() < n) evict_one(g);
  std::vector<HostPageId> pages(n);
  if (Status s = host.alloc(pages); !s) return s.error();
  host.protect_write(pages);
  return pages;
}

void BlockHost::give_up(std::uint32_t group, std::span<const HostPageId> pages) {
  HostPool& host = *groups_[group].pools.host;
  host.abort_write(pages);
  host.free(pages);
}

bool BlockHost::keep_fetched(HostPageId page, const BlockContent& content, std::size_t depth) {
  return keep(page, content,
              hazard_ != nullptr ? hazard_->new_rank(content.group, depth) : Draw::Candidate{});
}

bool BlockHost::keep(HostPageId page, const BlockContent& content, const Draw::Candidate& rank) {
  Group& group = groups_[content.group];
  if (find(content)) {
    give_up(content.group, {&page, 1});
    return false;
  }
  group.pools.host->complete_write({&page, 1}, /*on_device=*/false);
  group.index.insert(id_of(page), {0, content.hash, content.tokens, content.alias});
  if (group.hazard) group.hazard->set_rank(id_of(page), rank);
  group.add_unused(id_of(page));
  return true;
}

void BlockHost::used(const BlockContent& content, const Draw::Candidate& rank) {
  const std::optional<HostPageId> page = find(content);
  if (!page) return;
  Group& group = groups_[content.group];
  const bool listed = group.unused.has(id_of(*page));
  if (listed) group.hazard->erase(id_of(*page));
  group.hazard->set_rank(id_of(*page), rank);
  if (listed) group.hazard->insert(id_of(*page));
}

void BlockHost::hold(std::uint32_t g, HostPageId page) {
  Group& group = groups_[g];
  if (group.holds[index_of(page)]++ == 0) group.remove_unused(id_of(page));
}

// What was held has been used: it is the last to go, unless it has a rank.
void BlockHost::release(std::uint32_t g, HostPageId page) {
  Group& group = groups_[g];
  if (--group.holds[index_of(page)] == 0) group.add_unused(id_of(page));
}

// ---- Device to host ----------------------------------------------------------------------------

std::size_t BlockHost::uses_wanted() const {
  switch (options_.write_policy) {
    case WritePolicy::write_through:
      return 1;
    case WritePolicy::write_through_selective:
      return 2;
    case WritePolicy::write_back:
      break;
  }
  return SIZE_MAX;
}

bool BlockHost::is_wanted(PageId block) const {
  return !backing_up_[index_of(block)] && pool_.has_content(block) && !find(pool_.content(block));
}

void BlockHost::hold_blocks(std::span<const PageId> blocks) {
  pool_.touch(blocks);
  for (const PageId block : blocks) ++copy_holds_[index_of(block)];
}

void BlockHost::release_blocks(std::span<const PageId> blocks) {
  for (const PageId block : blocks) --copy_holds_[index_of(block)];
  pool_.free(blocks);
}

void BlockHost::write_through(std::uint32_t group, std::span<const PageId> blocks) {
  const std::size_t wanted = uses_wanted();
  Part part{group, {}, {}};
  for (const PageId block : blocks) {
    if (block == kNullBlock) continue;
    std::uint8_t& uses = uses_[index_of(block)];
    if (uses < 2) ++uses;
    if (uses >= wanted && is_wanted(block)) part.device.push_back(block);
  }
  if (!part.device.empty()) copy_out(std::move(part), /*wait=*/false);
}

void BlockHost::leaving(std::span<const PageId> blocks, bool is_worth_saving) {
  for (const PageId block : blocks) uses_[index_of(block)] = 0;
  if (options_.write_policy != WritePolicy::write_back || !is_worth_saving) return;
  std::map<std::uint32_t, Part> parts;
  for (const PageId block : blocks) {
    if (!is_wanted(block)) continue;
    Part& part = parts[pool_.content(block).group];
    part.group = pool_.content(block).group;
    part.device.push_back(block);
  }
  for (auto& [group, part] : parts) copy_out(std::move(part), /*wait=*/true);
}

// As many of the blocks as there is room for, the first ones first.
void BlockHost::copy_out(Part part, bool wait) {
  Group& group = groups_[part.group];
  const std::size_t n = std::min(part.device.size(), room(part.group));
  stats.refused_backups += part.device.size() - n;
  if (n == 0) return;
  part.device.resize(n);
  Result<std::vector<HostPageId>> pages = reserve(part.group, n);
  if (!pages) return;
  part.host = std::move(*pages);
  Result<Transfer> transfer = options_.copier->backup(
      {*group.pools.device, *group.pools.host, part.device, part.host}, options_.backup_stream);
  if (!transfer) {
    give_up(part.group, part.host);
    stats.failed_backups += n;
    return;
  }
  Copy copy;
  copy.transfers.push_back(*transfer);
  copy.parts.push_back(std::move(part));
  if (wait) {  // they are nobody's: no hold keeps them, and none is needed
    PollResult ignored;
    finish_backup(copy, copy.arrived(), ignored);
    return;
  }
  for (const PageId block : copy.parts[0].device) backing_up_[index_of(block)] = true;
  hold_blocks(copy.parts[0].device);
  backups_.push_back(std::move(copy));
}

void BlockHost::finish_backup(Copy& copy, bool arrived, PollResult& result) {
  Part& part = copy.parts[0];
  for (std::size_t i = 0; i < part.device.size(); ++i) {
    const PageId block = part.device[i];
    backing_up_[index_of(block)] = false;
    if (!arrived || !pool_.has_content(block)) {  // or it was found to be bad meanwhile
      give_up(part.group, {&part.host[i], 1});
      continue;
    }
    const Draw::Candidate rank = hazard_ != nullptr ? hazard_->rank(block) : Draw::Candidate{};
    if (!keep(part.host[i], pool_.content(block), rank)) continue;
    stats.backed_up_tokens += groups_[part.group].block_size;
    if (on_kept) on_kept(part.group, part.host[i], block);
  }
  stats.failed_backups += arrived ? 0 : part.device.size();
  ++(arrived ? result.backups : result.failures);
}

// ---- Host to device ----------------------------------------------------------------------------

Result<std::uint64_t> BlockHost::load(std::vector<Part> parts) {
  Copy copy;
  copy.parts = std::move(parts);
  const auto for_each_page = [&](auto&& fn) {
    for (const Part& part : copy.parts) {
      for (const HostPageId page : part.host) fn(part.group, page);
    }
  };
  for_each_page([&](std::uint32_t g, HostPageId page) {
    Group& group = groups_[g];
    hold(g, page);
    if (group.loading[index_of(page)]++ == 0) group.pools.host->protect_load({&page, 1});
  });
  for (const Part& part : copy.parts) hold_blocks(part.device);
  copy.id = ++last_load_;
  for (const Part& part : copy.parts) {
    const TierPools& pools = groups_[part.group].pools;
    Result<Transfer> transfer = options_.copier->load(
        {*pools.device, *pools.host, part.device, part.host}, options_.load_stream);
    if (!transfer) {  // what has begun must end before anything is let go
      (void)copy.arrived();
      PollResult ignored;
      finish_load(copy, false, ignored);
      return transfer.error();
    }
    copy.transfers.push_back(*transfer);
  }
  for (std::size_t i = 0; i < copy.parts.size(); ++i)
    groups_[copy.parts[i].group].pools.device->gate(copy.transfers[i].signal());
  loads_.push_back(std::move(copy));
  return last_load_;
}

void BlockHost::finish_load(Copy& copy, bool arrived, PollResult& result) {
  for (const Part& part : copy.parts) {
    Group& group = groups_[part.group];
    for (std::size_t i = 0; i < part.host.size(); ++i) {
      const HostPageId page = part.host[i];
      if (arrived && pool_.cache(part.device[i], content(part.group, page)) && on_loaded)
        on_loaded(part.device[i]);
      if (--group.loading[index_of(page)] == 0) group.pools.host->abort_load({&page, 1});
      release(part.group, page);
    }
    release_blocks(part.device);
    if (arrived) stats.loaded_tokens += part.device.size() * group.block_size;
  }
  if (!arrived) ++stats.failed_loads;
  ++(arrived ? result.loads : result.failures);
}

// ---- Ends --------------------------------------------------------------------------------------

void BlockHost::poll(PollResult& result) {
  std::erase_if(loads_, [&](Copy& copy) {
    if (!copy.finished()) return false;
    const bool arrived = copy.arrived();
    finish_load(copy, arrived, result);
    if (on_load_ended) on_load_ended(copy.id, arrived);
    return true;
  });
  std::erase_if(backups_, [&](Copy& copy) {
    if (!copy.finished()) return false;
    finish_backup(copy, copy.arrived(), result);
    release_blocks(copy.parts[0].device);
    return true;
  });
}

void BlockHost::drain() {
  for (const Copy& copy : loads_) (void)copy.arrived();
  for (const Copy& copy : backups_) (void)copy.arrived();
  PollResult ignored;
  poll(ignored);
}

void BlockHost::clear() {
  for (Group& group : groups_) {
    while (group.unused.size() > 0) {
      const PageId id = group.unused.front();
      group.remove_unused(id);
      const HostPageId page = page_of(id);
      group.index.erase(id);
      group.pools.host->free({&page, 1});
    }
  }
}

Sizes BlockHost::sizes(std::uint32_t g) const {
  const Group& group = groups_[g];
  const std::size_t evictable = group.unused.size() * group.block_size;
  const std::size_t total = group.index.size() * group.block_size;
  return {evictable, total - evictable, total};
}

std::size_t BlockHost::memory_bytes() const {
  std::size_t sum = uses_.capacity() + copy_holds_.capacity() * sizeof(std::uint32_t);
  for (const Group& group : groups_)
    sum += group.index.memory_bytes() + group.unused.memory_bytes() +
           (group.hazard ? group.hazard->memory_bytes() : 0) +
           (group.holds.capacity() + group.loading.capacity()) * sizeof(std::uint32_t);
  return sum;
}

Status BlockHost::check(std::span<const std::size_t> num_reserved) const {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (Status s = group.index.check(); !s) return s;
    if (Status s = group.unused.check(); !s) return s;
    if (group.hazard) {
      if (Status s = group.hazard->check(group.unused); !s) return s;
    }
    if (Status s = group.pools.host->check(); !s) return s;
    std::size_t writing = num_reserved[g];
    for (const Copy& copy : backups_)
      writing += copy.parts[0].group == g ? copy.parts[0].host.size() : 0;
    const HostPool& host = *group.pools.host;
    if (host.count(PageState::writing) != writing || host.count(PageState::reserved) != 0 ||
        host.num_pages() - host.available_pages() != writing + group.index.size())
      return make_error(ErrorCode::corrupt,
                        "group {}: {} host pages in use, {} kept and {} being written", g,
                        host.num_pages() - host.available_pages(), group.index.size(), writing);
    for (std::uint32_t i = 0; i < host.num_pages(); ++i) {
      const PageId id = id_of(HostPageId{i});
      const bool kept = group.index.has(id);
      const bool held = group.holds[i] > 0;
      const PageState expected = group.loading[i] > 0 ? PageState::loading : PageState::backed_up;
      if (group.unused.has(id) != (kept && !held) || (held && !kept) ||
          (kept && host.state(HostPageId{i}) != expected))
        return make_error(ErrorCode::corrupt,
                          "group {}: host page {} is {}, {} holds, {}kept, {}in the order of use",
                          g, i, to_string(host.state(HostPageId{i})), group.holds[i],
                          kept ? "" : "not ", group.unused.has(id) ? "" : "not ");
    }
  }
  return {};
}

}  // namespace pando
