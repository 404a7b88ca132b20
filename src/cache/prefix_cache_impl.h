// SPDX-License-Identifier: Apache-2.0
// What PrefixCache is made of: the core that all parts share, and the tiers. It is made in
// create.cc; the calls on keys are in prefix_cache.cc, leases.cc and insert.cc, those on whole
// requests in requests.cc, those on tiers in tiers.cc and storage.cc. Each is a quiet_ call there;
// observed.cc has the public ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cache/cache_core.h"
#include "cache/host_tier.h"
#include "cache/storage_tier.h"
#include "pando/cache.h"

namespace pando {

/// Whole pages that hold so many tokens.
constexpr std::size_t pages_for(std::size_t tokens, std::size_t page_size) {
  return tokens / page_size + (tokens % page_size != 0 ? 1 : 0);
}

struct PrefixCache::Impl : CacheCore {
  Impl(const CacheOptions& options, SlotLedger ledger, std::unique_ptr<EvictionPolicy> policy,
       StateAllocator* states);
  /// Makes the cache, given what its options and its kind of slots have passed, if everything fits
  /// together on every rank.
  static Result<std::unique_ptr<PrefixCache>> make(const CacheOptions& options, const Status& valid,
                                                   const std::function<SlotLedger()>& make_ledger,
                                                   std::unique_ptr<EvictionPolicy> policy,
                                                   StateAllocator* states);

  /// A tombstone of the path that gets its window back: from its page `first` on, by `num_pages` of
  /// the caller's pages, which lie in `revived_pages` from `offset` on.
  struct Revival {
    NodeIndex node = kNoNode;
    std::uint32_t first = 0;
    std::uint32_t num_pages = 0;
    std::size_t offset = 0;
    bool replace = false;  // the caller's pages take the place of the tree's, which nobody reads
  };
  /// A node of the path that is on the host only: the caller's pages, which lie in `adopted_pages`
  /// from `offset` on, put it on the device.
  struct Adoption {
    NodeIndex node = kNoNode;
    std::size_t first = 0;  // page of the key
    std::uint32_t num_pages = 0;
    std::uint32_t without_window = 0;  // of these, from the first
    std::size_t offset = 0;
  };
  /// An insert that has been checked against the tree and the ledger and cannot fail any more. The
  /// new pages are claimed, in `new_pages`; the caller's duplicates are in `duplicates`.
  struct Plan {
    RadixIndex::Cursor cursor;
    std::size_t num_pages = 0;       // of the key
    std::size_t released_pages = 0;  // of the caller's, without a window
  };
  /// Changes nothing on error. The key has a whole page at least.
  Result<Plan> plan_insert(const Key& key, std::span<const SlotId> slots,
                           const InsertOptions& options);
  Inserted apply_insert(const Plan& plan, const Key& key, const InsertOptions& options);

  EvictResult evict(const RadixIndex::Goal& goal);
  void set_write_policy(WritePolicy policy);
  /// Of everything that nobody holds, on all tiers.
  void evict_all();
  /// alloc(allocator), after evicting what count_pages(full side) says is missing.
  template <typename Alloc, typename CountPages>
  Status allocate(Alloc alloc, CountPages count_pages);
  Lease::Hold hold_path(NodeIndex node);
  Lease::Hold hold_partial(NodeIndex node, std::uint32_t page);
  void release_hold_window(Lease::Hold& hold);
  void release_hold_snapshot(Lease::Hold& hold);
  void release_hold(Lease::Hold& hold);
  void hold_host(Lease& lease, NodeIndex node);
  void release_host(NodeId& node);

  /// What of the request may go to the tree now; nothing if that is less than it got from there.
  Result<std::optional<Key>> insertable(const Request& request, const char* caller) const;
  InsertOptions insert_options(const Request& request, bool chunked) const;
  std::size_t release_window(Request& request, std::size_t num_tokens);
  /// Overwrites slots of the request with the tree's own: pages [from, to) of the path to `node`.
  void copy_tree_slots(NodeIndex node, std::size_t from, std::size_t to,
                       std::span<SlotId> slots) const;

  MatchEnd match_end(const Key& key, const RadixIndex::Cursor& walked,
                     const RadixIndex::Cursor& valid) const;

  /// Passes on what the index let go of.
  void give_back();
  Status check_windows() const;
  Status check_snapshots() const;

  const std::uint32_t cache_id;
  std::optional<HostTier> tier;
  std::unique_ptr<StorageTier> storage;  // goes before the host tier
  std::size_t num_locks = 0;
  std::size_t num_snapshot_locks = 0;
  std::size_t num_host_locks = 0;

  // Scratch of one operation, kept for its memory.
  std::vector<std::int64_t> poll_values;
  std::vector<std::uint32_t> new_pages;
  std::vector<std::uint32_t> revived_pages;
  std::vector<Revival> revivals;
  std::vector<std::uint32_t> adopted_pages;
  std::vector<Adoption> adoptions;
  std::vector<PageId> duplicates;

 private:
  Result<NodeIndex> held_node(const Key& key, const InsertOptions& options) const;
  Status refuse_insert(const Plan& plan, const InsertOptions& options) const;
  Status plan_existing(const Plan& plan, std::span<const SlotId> slots, std::size_t owned_pages,
                       bool look_at_last);
  void plan_revival(NodeIndex node, std::uint32_t num_pages, std::uint32_t num_revived);
  Status plan_new(const Plan& plan, std::span<const SlotId> slots);
  Status plan_adoption(const Plan& plan, NodeIndex node, std::size_t first, std::uint32_t n,
                       const SlotId* slots);
  std::size_t apply_adoptions(const Plan& plan, NodeIndex end);
  void adopt(NodeIndex node, std::span<const std::uint32_t> pages, bool with_window);
  std::size_t apply_revivals(const Plan& plan, NodeIndex end);
  NodeIndex apply_new(const Plan& plan, const Key& key, NodeIndex end);
  void apply_snapshot(NodeIndex end, StateSlot snapshot);
};

}  // namespace pando
