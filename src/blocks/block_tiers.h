// SPDX-License-Identifier: Apache-2.0
// The blocks as an index of the tier engine (tiers/tier_engine.h): which blocks go to the host, to
// the store, and back. A block is an extent of one page; its component is its group. One per
// BlockCache that has a host tier.
//
// Invariant: blocks that a copy moves are held in the pool, pages that a load or a put reads are
// held on the host, until the engine says that it has ended.
//
// block_tiers.cc has the copies, block_store.cc the store. A fetch asks which blocks are there,
// finds by the groups' rules how long a hit they make, and reads those that it needs. Blocks are
// found one by one, so whatever has arrived is of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "blocks/hazard_blocks.h"
#include "blocks/hit_search.h"
#include "blocks/host_blocks.h"
#include "pando/block_cache.h"
#include "tiers/tier_engine.h"

namespace pando {

class BlockTiers final : private TierIndex {
 public:
  /// What the cache shares with it; all must outlive it.
  struct Shared {
    const BlockCacheOptions& options;
    BlockPool& pool;
    HostBlocks& host;
    const HazardBlocks* hazard;  // nullptr unless that is the policy
    Agreement& ranks;
  };
  explicit BlockTiers(const Shared& shared);
  /// Waits for copies under way.
  ~BlockTiers();
  BlockTiers(const BlockTiers&) = delete;
  BlockTiers& operator=(const BlockTiers&) = delete;

  /// Blocks of a group whose bytes are in place are used: those used often enough are copied, and
  /// what the store lacks of them is put.
  void used(std::uint32_t group, std::span<const PageId> blocks);
  /// Blocks are about to lose their content: copies them first if that is the policy and they are
  /// worth it.
  void leaving(std::span<const PageId> blocks, bool is_worth_saving);

  /// A block that a load fills, and the page that it is filled from.
  struct Pair {
    std::uint32_t group = 0;
    PageId block = {};
    HostPageId page = {};
  };
  /// Starts copying to blocks, which it holds too. The number names it in on_load_ended. Nothing
  /// has changed if it fails.
  Result<std::uint64_t> load(std::span<const Pair> pairs);

  /// Whether to load pages of so many bytes, for so many tokens, or to compute them again.
  bool is_worth_loading(std::span<const std::size_t> pages_by_group, std::size_t num_tokens);
  /// Evicts from the host; returns the tokens.
  std::size_t evict(std::uint32_t group, std::size_t num_tokens);

  /// That fetches may occupy unless the options say.
  std::size_t default_fetch_tokens() const;
  /// `limit` is the longest hit that the request may have.
  Prefetch prefetch(const BlockKeys& keys, std::size_t limit);

  // Called with a block whose content the host keeps from now on, with a block that has content
  // again, with a block that was fetched, and at the end of a load.
  std::function<void(PageId block)> on_backed_up;
  std::function<void(PageId block)> on_loaded;
  std::function<void(const BlockKeys& keys, std::uint32_t group, std::size_t i)> on_fetched;
  std::function<void(std::uint64_t load, bool arrived)> on_load_ended;

  void set_write_policy(WritePolicy policy) { write_policy_ = policy; }
  WritePolicy write_policy() const { return write_policy_; }
  std::size_t copy_holds(PageId block) const { return copy_holds_[index_of(block)]; }
  std::size_t memory_bytes() const;
  Status check() const;

 private:
  struct BlockFetch;  // block_store.cc

  // A page that is kept: its number, its group (12 bits) and its generation (20 bits). Ranks have
  // other pages for the same blocks, but an entry that has gone has gone on all of them.
  std::uint64_t entry_of(std::uint32_t group, HostPageId page) const {
    const std::uint64_t generation = host_.generation(group, page) & 0xfffffu;
    return generation << 44 | std::uint64_t{group} << 32 | index_of(page);
  }
  static std::uint32_t group_of(std::uint64_t entry) {
    return static_cast<std::uint32_t>(entry >> 32 & 0xfffu);
  }
  static HostPageId page_of(std::uint64_t entry) {
    return HostPageId{static_cast<std::uint32_t>(entry)};
  }

  // HostKeeper. Blocks have no owners: no share is capped.
  Share share(std::size_t, OwnerId) const override { return {}; }
  std::size_t kept_pages(std::size_t component) const override;
  std::size_t evictable_for(std::size_t component, OwnerId owner) const override;
  void evict_host(const Shortage& shortage) override;
  // TierIndex.
  void backup_ended(PageCopy& copy, bool copied) override;
  void load_ended(PageCopy& copy, bool loaded) override;
  // StoreIndex.
  void store_attached() override;
  std::optional<Extent> hold_unstored(std::uint64_t entry, std::vector<NamedPage>& pages) override;
  bool is_unstored(std::uint64_t entry) const override;
  void put_ended(const Extent& extent, bool stored) override;
  std::size_t choose(FetchTarget& target, const std::function<bool(std::size_t)>& has,
                     std::size_t limit) override;
  std::size_t keep(FetchTarget& target, std::span<FetchedPage> pages) override;
  void fetch_ended(FetchTarget&) override {}

  std::size_t uses_wanted() const;
  bool is_wanted(PageId block) const;
  bool reserve(std::uint32_t group, std::vector<PageId>& blocks, PageCopy& copy);
  void keep_copied(const PageCopy& copy, bool copied);
  void put_unstored(std::span<const PageId> blocks);
  void hold_blocks(std::span<const PageId> blocks);
  void release_blocks(std::span<const PageId> blocks);

  const std::span<const BlockGroup> groups_;
  BlockPool& pool_;
  HostBlocks& host_;
  const HazardBlocks* hazard_;
  Agreement& ranks_;
  WritePolicy write_policy_;
  HitSearch search_;                   // for fetches
  std::deque<std::uint64_t> loading_;  // as the engine's loads
  std::uint64_t last_load_ = 0;
  std::vector<std::uint8_t> uses_;  // of a block, up to as many as any policy asks for
  std::vector<bool> backing_up_;
  std::vector<std::uint32_t> copy_holds_;  // of a block, by copies
  std::vector<PageId> scratch_;

 public:
  TierEngine engine;
};

}  // namespace pando
