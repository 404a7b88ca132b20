// SPDX-License-Identifier: Apache-2.0
// Copies of blocks to the host and back; see the header.
#include "blocks/block_tiers.h"

#include <algorithm>
#include <utility>

#include "base/append.h"
#include "base/check.h"

namespace pando {
namespace {

ComponentKind component_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::full:
      break;
    case GroupKind::sliding_window:
    case GroupKind::chunked_local:
      return ComponentKind::window;
    case GroupKind::recurrent:
      return ComponentKind::state;
  }
  return ComponentKind::full;
}

TierEngine::Options engine_options(const BlockCacheOptions& options) {
  TierEngine::Options out{.are_groups = true,
                          .copier = options.host->copier,
                          .backup_stream = options.host->backup_stream,
                          .load_stream = options.host->load_stream,
                          .cost_gate = options.host->cost_gate};
  for (const BlockGroup& group : options.groups) {
    out.pools.push_back(group.pools);
    out.kinds.push_back(component_of(group.kind));
  }
  return out;
}

}  // namespace

BlockTiers::BlockTiers(const Shared& shared)
    : groups_(shared.options.groups),
      pool_(shared.pool),
      host_(shared.host),
      hazard_(shared.hazard),
      ranks_(shared.ranks),
      write_policy_(shared.options.host->write_policy),
      search_(groups_, pool_, &host_),
      uses_(pool_.num_blocks()),
      backing_up_(pool_.num_blocks()),
      copy_holds_(pool_.num_blocks()),
      engine(engine_options(shared.options), shared.ranks, *this) {}

BlockTiers::~BlockTiers() {
  on_load_ended = nullptr;
  engine.detach();
  engine.drain();
  host_.clear();
}

// ---- Room --------------------------------------------------------------------------------------

std::size_t BlockTiers::kept_pages(std::size_t component) const {
  return host_.num_kept(static_cast<std::uint32_t>(component));
}

std::size_t BlockTiers::evictable_for(std::size_t component, OwnerId) const {
  return host_.num_evictable(static_cast<std::uint32_t>(component));
}

void BlockTiers::evict_host(const Shortage& shortage) {
  const auto group = static_cast<std::uint32_t>(shortage.component);
  evict(group, shortage.num_pages * groups_[group].block_size);
}

std::size_t BlockTiers::evict(std::uint32_t group, std::size_t num_tokens) {
  const std::size_t size = groups_[group].block_size;
  const std::size_t num_pages = num_tokens / size + (num_tokens % size != 0 ? 1 : 0);
  const std::size_t evicted = host_.evict(group, num_pages) * size;
  engine.stats.host_evicted_tokens += evicted;
  return evicted;
}

// ---- Device to host ----------------------------------------------------------------------------

std::size_t BlockTiers::uses_wanted() const {
  switch (write_policy_) {
    case WritePolicy::write_through:
      return 1;
    case WritePolicy::write_through_selective:
      return 2;
    case WritePolicy::write_back:
      break;
  }
  return SIZE_MAX;
}

bool BlockTiers::is_wanted(PageId block) const {
  return !backing_up_[index_of(block)] && pool_.has_content(block) &&
         !host_.find(pool_.content(block));
}

void BlockTiers::hold_blocks(std::span<const PageId> blocks) {
  pool_.touch(blocks);
  for (const PageId block : blocks) ++copy_holds_[index_of(block)];
}

void BlockTiers::release_blocks(std::span<const PageId> blocks) {
  for (const PageId block : blocks) --copy_holds_[index_of(block)];
  pool_.free(blocks);
}

// Host pages for as many of the blocks as there is room for, the first ones first.
bool BlockTiers::reserve(std::uint32_t group, std::vector<PageId>& blocks, PageCopy& copy) {
  const std::size_t n = std::min(blocks.size(), engine.room.available(group, kSharedOwner));
  engine.stats.refused_backups += blocks.size() - n;
  blocks.resize(n);
  if (n == 0 || !engine.room.reserve(group, n, kSharedOwner, copy.of[group].host, copy.claim))
    return false;
  append(copy.of[group].device, blocks);
  return true;
}

void BlockTiers::used(std::uint32_t group, std::span<const PageId> blocks) {
  const std::size_t wanted = uses_wanted();
  scratch_.clear();
  for (const PageId block : blocks) {
    if (block == kNullBlock) continue;
    std::uint8_t& uses = uses_[index_of(block)];
    if (uses < 2) ++uses;
    if (uses >= wanted && is_wanted(block)) scratch_.push_back(block);
  }
  if (engine.store() != nullptr && host_.has_unstored()) put_unstored(blocks);
  if (scratch_.empty()) return;
  std::unique_ptr<PageCopy> copy = engine.new_backup();
  if (!reserve(group, scratch_, *copy)) return engine.recycle(std::move(copy));
  for (const PageId block : scratch_) backing_up_[index_of(block)] = true;
  hold_blocks(scratch_);
  engine.start_backup(std::move(copy));
}

void BlockTiers::leaving(std::span<const PageId> blocks, bool is_worth_saving) {
  for (const PageId block : blocks) uses_[index_of(block)] = 0;
  if (write_policy_ != WritePolicy::write_back || !is_worth_saving) return;
  std::unique_ptr<PageCopy> copy = engine.new_backup();
  bool any = false;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    scratch_.clear();
    for (const PageId block : blocks) {
      if (is_wanted(block) && pool_.content(block).group == g) scratch_.push_back(block);
    }
    any = (!scratch_.empty() && reserve(g, scratch_, *copy)) || any;
  }
  if (any) {  // they are nobody's: no hold keeps them, and none is needed
    const bool copied = engine.back_up_now(*copy);
    copy->unclaim(engine.room);
    keep_copied(*copy, copied);
  }
  engine.recycle(std::move(copy));
}

void BlockTiers::backup_ended(PageCopy& copy, bool copied) {
  keep_copied(copy, copied);
  for (std::size_t c = 0; c < copy.of.size(); ++c) release_blocks(copy.of[c].device);
}

// A block may have been found to be bad meanwhile, or another of the same content was faster.
void BlockTiers::keep_copied(const PageCopy& copy, bool copied) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const PageCopy::Pages& pages = copy.of[g];
    engine.stats.failed_backups += copied ? 0 : pages.device.size();
    for (const PageId block : pages.device) backing_up_[index_of(block)] = false;
    for (std::size_t i = 0; i < pages.host.size(); ++i) {
      const PageId block = pages.device[i];
      const HostPageId page = pages.host[i];
      if (!copied || !pool_.has_content(block) || host_.find(pool_.content(block))) {
        engine.free_written(g, {&page, 1});
        continue;
      }
      engine.room.pool(g).complete_write({&page, 1}, /*on_device=*/false);
      host_.keep(page, pool_.content(block),
                 hazard_ != nullptr ? hazard_->rank(block) : Draw::Candidate{});
      engine.stats.backed_up_tokens += groups_[g].block_size;
      if (on_backed_up) on_backed_up(block);
      if (engine.store() == nullptr) continue;
      host_.set_unstored(g, page, true);
      engine.put(entry_of(g, page));
    }
  }
}

// ---- Host to device ----------------------------------------------------------------------------

bool BlockTiers::is_worth_loading(std::span<const std::size_t> pages_by_group,
                                  std::size_t num_tokens) {
  std::size_t size_bytes = 0;
  for (std::size_t g = 0; g < pages_by_group.size(); ++g)
    size_bytes += pages_by_group[g] * groups_[g].pools.host->page_bytes();
  return engine.is_worth_loading(size_bytes, num_tokens);
}

Result<std::uint64_t> BlockTiers::load(std::span<const Pair> pairs) {
  std::unique_ptr<PageCopy> copy = engine.new_load();
  for (const Pair& pair : pairs) {
    copy->of[pair.group].device.push_back(pair.block);
    copy->of[pair.group].host.push_back(pair.page);
    copy->num_tokens += groups_[pair.group].block_size;
    host_.hold(pair.group, pair.page);
    host_.begin_load(pair.group, pair.page);
  }
  Status started = engine.start_load(*copy, LoadOrder::by_layer);
  if (!ranks_.all(started.ok())) {
    copy->stop();
    for (const Pair& pair : pairs) {
      host_.end_load(pair.group, pair.page);
      host_.release(pair.group, pair.page);
    }
    ++engine.stats.failed_loads;
    if (!started) return started.error();
    return make_error(ErrorCode::unavailable, "allocate: {}",
                      ranks_.lost() ? "the ranks have lost each other"
                                    : "the copier of another rank has refused");
  }
  for (std::size_t c = 0; c < copy->of.size(); ++c) hold_blocks(copy->of[c].device);
  loading_.push_back(++last_load_);
  engine.commit_load(std::move(copy));
  return last_load_;
}

// Loaded blocks have content again before on_load_ended hears of it.
void BlockTiers::load_ended(PageCopy& copy, bool loaded) {
  const std::uint64_t load = loading_.front();
  loading_.pop_front();
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const PageCopy::Pages& pages = copy.of[g];
    for (std::size_t i = 0; i < pages.host.size(); ++i) {
      if (loaded && pool_.cache(pages.device[i], host_.content(g, pages.host[i])) && on_loaded)
        on_loaded(pages.device[i]);
      host_.end_load(g, pages.host[i]);
      host_.release(g, pages.host[i]);
    }
    release_blocks(pages.device);
  }
  if (on_load_ended) on_load_ended(load, loaded);
}

// ---- Proving -----------------------------------------------------------------------------------

std::size_t BlockTiers::memory_bytes() const {
  return uses_.capacity() + copy_holds_.capacity() * sizeof(std::uint32_t);
}

Status BlockTiers::check() const {
  if (Status s = engine.check(); !s) return s;
  std::vector<std::size_t> writing(groups_.size());
  engine.for_each_page([&](std::size_t c, HostPageId, PageState state) {
    writing[c] += state == PageState::writing ? 1 : 0;
  });
  return host_.check(writing);
}

}  // namespace pando
