// SPDX-License-Identifier: Apache-2.0
// What a BlockCache keeps on the host: for each group its pages, found by content as the device's
// blocks are. A block and its host page know nothing of each other: either may go first. What is on
// its way between tiers is BlockTiers' (block_tiers.h).
//
// Invariant: a kept page has content, and is in the order of use unless something holds it. Kept
// pages are `backed_up` in their pool's terms, `loading` while a load reads them.
//
// Cost: O(1) each, O(log n) where the policy draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/id_list.h"
#include "blocks/hash_index.h"
#include "blocks/hazard_blocks.h"
#include "blocks/hazard_pages.h"
#include "pando/block_cache.h"
#include "pando/pools.h"

namespace pando {

class HostBlocks {
 public:
  /// `hazard`: pages go by its index; nullptr: the least recently used first.
  HostBlocks(std::span<const BlockGroup> groups, bool keep_tokens, const HazardBlocks* hazard);
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  std::optional<HostPageId> find(const BlockContent& content) const;
  BlockContent content(std::uint32_t group, HostPageId page) const {
    return in_group(groups_[group].index.content(id_of(page)), group);
  }
  /// Calls fn(group, page) for each kept page that nothing holds, in the order of use.
  template <typename Fn>
  void for_each_unused(Fn&& fn) const {
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      for (const PageId id : groups_[g].unused.list()) fn(g, page_of(id));
    }
  }

  /// A page has this content, which no other has, and is kept from now on.
  void keep(HostPageId page, const BlockContent& content, const Draw::Candidate& rank);
  /// Under the hazard policy: a page of this content is ranked so from now on.
  void set_rank(const BlockContent& content, const Draw::Candidate& rank);
  void hold(std::uint32_t group, HostPageId page);
  void release(std::uint32_t group, HostPageId page);
  /// A load reads a held page; several may at once.
  void begin_load(std::uint32_t group, HostPageId page);
  void end_load(std::uint32_t group, HostPageId page);

  /// A store that has just been attached lacks all of them.
  void set_all_unstored();
  /// The store lacks this page.
  void set_unstored(std::uint32_t group, HostPageId page, bool yes);
  bool is_unstored(std::uint32_t group, HostPageId page) const {
    return groups_[group].unstored[index_of(page)];
  }
  bool has_unstored() const { return num_unstored_ > 0; }
  /// Counts up when the page goes: what was kept under its number before is another.
  std::uint32_t generation(std::uint32_t group, HostPageId page) const {
    return groups_[group].generations[index_of(page)];
  }

  std::size_t num_kept(std::uint32_t group) const { return groups_[group].index.size(); }
  std::size_t num_evictable(std::uint32_t group) const { return groups_[group].unused.size(); }
  /// Evicts as many pages as there are, `n` at most; returns how many.
  std::size_t evict(std::uint32_t group, std::size_t n);
  /// Called with content that is about to go.
  std::function<void(const BlockContent& content)> on_removed;
  /// Forgets everything; nothing may be held.
  void clear();

  Sizes sizes(std::uint32_t group) const;
  std::size_t memory_bytes() const;
  /// `num_writing` are pages of each group that something under way writes to.
  Status check(std::span<const std::size_t> num_writing) const;

 private:
  struct Group {
    Group(const BlockGroup& group, bool keep_tokens, const HazardBlocks* hazard);
    void add_unused(PageId id);
    void remove_unused(PageId id);
    PageId next_victim() { return hazard ? hazard->pick() : unused.front(); }
    HostPool* pool;
    std::size_t block_size;
    HashIndex index;        // by page number and 1
    IdList<PageId> unused;  // kept pages that nothing holds, the least recently used first
    std::optional<HazardPages> hazard;   // by the same; if that is the policy
    std::vector<std::uint32_t> holds;    // of a page
    std::vector<std::uint32_t> loading;  // loads that read it
    std::vector<bool> unstored;
    std::vector<std::uint32_t> generations;
  };

  static PageId id_of(HostPageId page) { return PageId{index_of(page) + 1}; }
  static HostPageId page_of(PageId id) { return HostPageId{index_of(id) - 1}; }
  // Each group has an index of its own, in which its number is 0.
  static BlockContent in_group(BlockContent content, std::uint32_t group) {
    content.group = group;
    return content;
  }
  void forget(std::uint32_t group, PageId id);

  std::deque<Group> groups_;
  std::size_t num_unstored_ = 0;
};

}  // namespace pando
