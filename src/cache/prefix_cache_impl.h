// SPDX-License-Identifier: Apache-2.0
// What PrefixCache is made of: the index decides, the ledgers return slots, the log records. It is
// made in create.cc; the calls on keys are in prefix_cache.cc, leases.cc and insert.cc, those on
// whole requests in requests.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/event_log.h"
#include "cache/slot_ledger.h"
#include "cache/state_ledger.h"
#include "index/radix_index.h"
#include "pando/cache.h"

namespace pando {

/// An error that names the first negative one of tokens[from, to), if there is one.
Status refuse_negative(std::span<const Token> tokens, std::size_t from, std::size_t to,
                       const char* caller);

/// Whole pages that hold so many tokens.
constexpr std::size_t pages_for(std::size_t tokens, std::size_t page_size) {
  return tokens / page_size + (tokens % page_size != 0 ? 1 : 0);
}

struct PrefixCache::Impl {
  Impl(const CacheOptions& options, SlotLedger ledger, std::unique_ptr<EvictionPolicy> policy,
       StateAllocator* states);
  /// Checks what does not depend on the kind of slots, then makes the cache.
  static Result<std::unique_ptr<PrefixCache>> make(const CacheOptions& options, SlotLedger ledger,
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
  /// alloc(allocator), after evicting what count_pages(full side) says is missing.
  template <typename Alloc, typename CountPages>
  Status allocate(Alloc alloc, CountPages count_pages);
  Lease::Hold hold_path(NodeIndex node);
  Lease::Hold hold_partial(NodeIndex node, std::uint32_t page);
  void release_hold_window(Lease::Hold& hold);
  void release_hold_snapshot(Lease::Hold& hold);
  void release_hold(Lease::Hold& hold);

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

  const CacheOptions options;
  const std::uint32_t cache_id;
  RadixIndex index;
  SlotLedger ledger;
  StateLedger states;
  std::optional<EventLog> events;
  CacheStats stats;
  std::size_t num_locks = 0;
  std::size_t num_snapshot_locks = 0;

  // Scratch of one operation, kept for its memory.
  std::vector<std::uint32_t> new_pages;
  std::vector<std::uint32_t> revived_pages;
  std::vector<Revival> revivals;
  std::vector<PageId> duplicates;
  RadixIndex::Released released;

 private:
  Status refuse_insert(const Plan& plan, const InsertOptions& options) const;
  Status plan_existing(const Plan& plan, std::span<const SlotId> slots, std::size_t owned_pages);
  void plan_revival(NodeIndex node, std::uint32_t num_pages, std::uint32_t num_revived);
  Status plan_new(const Plan& plan, std::span<const SlotId> slots);
  std::size_t apply_revivals(const Plan& plan, NodeIndex end);
  NodeIndex apply_new(const Plan& plan, const Key& key, NodeIndex end);
  void apply_snapshot(NodeIndex end, StateSlot snapshot);
};

}  // namespace pando
