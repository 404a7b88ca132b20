// SPDX-License-Identifier: Apache-2.0
// The host tier of a BlockCache: for each group its host pages, found by content as the device's
// blocks are, and the copies between both. A block and its host page know nothing of each other:
// either may go first.
//
// Invariant: a host page is free in its pool, or kept: then it has content, and is in the order of
// use unless something holds it; or it is being written by a copy or a fetch. Both sides of a copy
// are held until poll() has seen it end. Kept pages are `backed_up` in their pool's terms,
// `loading` while a load reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "blocks/free_queue.h"
#include "blocks/hash_index.h"
#include "blocks/hazard_blocks.h"
#include "blocks/hazard_pages.h"
#include "pando/block_cache.h"
#include "pando/host_pool.h"

namespace pando {

class BlockHost {
 public:
  /// `hazard`: pages go by its index; nullptr: the least recently used first.
  BlockHost(std::span<const BlockGroup> groups, const BlockHostOptions& options, bool keep_tokens,
            BlockPool& pool, const HazardBlocks* hazard);
  /// Waits for copies under way.
  ~BlockHost();
  BlockHost(const BlockHost&) = delete;
  BlockHost& operator=(const BlockHost&) = delete;

  std::optional<HostPageId> find(const BlockContent& content) const;

  /// Blocks of a group whose bytes are in place are used: those used often enough are copied.
  void write_through(std::uint32_t group, std::span<const PageId> blocks);
  /// Blocks are about to lose their content: copies them first if that is the policy and they are
  /// worth it.
  void leaving(std::span<const PageId> blocks, bool is_worth_saving);

  /// Under the hazard policy: blocks of this content are ranked so from now on.
  void used(const BlockContent& content, const Draw::Candidate& rank);

  /// What a load brings to blocks of one group.
  struct Part {
    std::uint32_t group = 0;
    std::vector<PageId> device;
    std::vector<HostPageId> host;
  };
  /// Starts copying to blocks, which it holds too. The number names it in poll(). Nothing has
  /// changed if it fails.
  Result<std::uint64_t> load(std::vector<Part> parts);

  /// Applies what copies have done. Loaded blocks have content again before `on_load_ended` hears
  /// of it.
  void poll(PollResult& result);
  void drain();  // waits for all of them first
  bool idle() const { return backups_.empty() && loads_.empty(); }

  // For the store behind it. Pages of `reserve` are being written.
  Result<std::vector<HostPageId>> reserve(std::uint32_t group, std::size_t n);
  /// A page has its bytes, those of the block at `depth` of a chain. False: another with the same
  /// content is there; it is given back.
  bool keep_fetched(HostPageId page, const BlockContent& content, std::size_t depth);
  void give_up(std::uint32_t group, std::span<const HostPageId> pages);
  void hold(std::uint32_t group, HostPageId page);
  void release(std::uint32_t group, HostPageId page);
  BlockContent content(std::uint32_t group, HostPageId page) const {
    return in_group(groups_[group].index.content(id_of(page)), group);
  }
  const HostPool& pages(std::uint32_t group) const { return *groups_[group].pools.host; }
  /// Calls fn(group, page) for each kept page.
  template <typename Fn>
  void for_each(Fn&& fn) const;

  // Called with a page that is kept from now on as a copy of a block, with a page's content that is
  // about to go, with a block that has content again, and at the end of a load.
  std::function<void(std::uint32_t group, HostPageId page, PageId block)> on_kept;
  std::function<void(const BlockContent& content)> on_removed;
  std::function<void(PageId block)> on_loaded;
  std::function<void(std::uint64_t load, bool arrived)> on_load_ended;

  /// Forgets everything; nothing may be held.
  void clear();
  void set_write_policy(WritePolicy policy) { options_.write_policy = policy; }
  WritePolicy write_policy() const { return options_.write_policy; }
  std::size_t copy_holds(PageId block) const { return copy_holds_[index_of(block)]; }
  Sizes sizes(std::uint32_t group) const;
  std::size_t memory_bytes() const;
  /// `num_reserved` are pages of each group that fetches write to.
  Status check(std::span<const std::size_t> num_reserved) const;

  TierStats stats;

 private:
  struct Group {
    Group(const BlockGroup& group, bool keep_tokens, const HazardBlocks* hazard);
    void add_unused(PageId id);
    void remove_unused(PageId id);
    PageId next_victim() { return hazard ? hazard->pick() : unused.front(); }
    TierPools pools;
    std::size_t block_size;
    HashIndex index;   // by page number and 1
    FreeQueue unused;  // kept pages that nothing holds, the least recently used first
    std::optional<HazardPages> hazard;   // by the same; if that is the policy
    std::vector<std::uint32_t> holds;    // of a page
    std::vector<std::uint32_t> loading;  // loads that read it
  };
  struct Copy {
    std::uint64_t id = 0;
    std::vector<Part> parts;
    std::vector<Transfer> transfers;
    bool finished() const;
    bool arrived() const;  // waits
  };

  static PageId id_of(HostPageId page) { return PageId{index_of(page) + 1}; }
  static HostPageId page_of(PageId id) { return HostPageId{index_of(id) - 1}; }
  // Each group has an index of its own, in which its number is 0.
  static BlockContent in_group(BlockContent content, std::uint32_t group) {
    content.group = group;
    return content;
  }
  std::size_t uses_wanted() const;
  bool is_wanted(PageId block) const;
  /// Pages that reserve() could give.
  std::size_t room(std::uint32_t group) const {
    return groups_[group].pools.host->available_pages() + groups_[group].unused.size();
  }
  bool keep(HostPageId page, const BlockContent& content, const Draw::Candidate& rank);
  void evict_one(std::uint32_t group);
  void copy_out(Part part, bool wait);
  void finish_backup(Copy& copy, bool arrived, PollResult& result);
  void finish_load(Copy& copy, bool arrived, PollResult& result);
  void hold_blocks(std::span<const PageId> blocks);
  void release_blocks(std::span<const PageId> blocks);

  BlockHostOptions options_;
  BlockPool& pool_;
  const HazardBlocks* hazard_;
  std::deque<Group> groups_;
  std::deque<Copy> backups_;
  std::deque<Copy> loads_;
  std::uint64_t last_load_ = 0;
  std::vector<std::uint8_t> uses_;  // of a block, up to as many as any policy asks for
  std::vector<bool> backing_up_;
  std::vector<std::uint32_t> copy_holds_;  // of a block, by copies
};

template <typename Fn>
void BlockHost::for_each(Fn&& fn) const {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    for (std::uint32_t i = 0; i < groups_[g].pools.host->num_pages(); ++i) {
      if (groups_[g].index.has(id_of(HostPageId{i}))) fn(g, HostPageId{i});
    }
  }
}

}  // namespace pando
