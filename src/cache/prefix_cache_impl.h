// SPDX-License-Identifier: Apache-2.0
// What PrefixCache is made of: the index decides, the ledger returns slots, the log records. The
// public calls are in prefix_cache.cc and insert.cc, those on whole requests in requests.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/event_log.h"
#include "cache/slot_ledger.h"
#include "index/radix_index.h"
#include "pando/cache.h"

namespace pando {

/// An error that names the first negative one of tokens[from, to), if there is one.
Status refuse_negative(std::span<const Token> tokens, std::size_t from, std::size_t to,
                       const char* caller);

struct PrefixCache::Impl {
  Impl(const CacheOptions& options, SlotLedger ledger, std::unique_ptr<EvictionPolicy> policy);

  /// An insert that has been checked against the tree and the ledger and cannot fail any more. The
  /// new pages are claimed, in `new_pages`; the caller's duplicates are in `duplicates`.
  struct Plan {
    RadixIndex::Cursor cursor;
    std::size_t num_pages = 0;  // of the key
  };
  /// Changes nothing on error. The key has a whole page at least.
  Result<Plan> plan_insert(const Key& key, std::span<const SlotId> slots,
                           std::size_t owned_by_tree);
  Inserted apply_insert(const Plan& plan, const Key& key, const InsertOptions& options);
  bool has_more_than_tree(const Request& request) const;
  /// Overwrites slots[from, existing) with the tree's own.
  void copy_tree_slots(const Plan& plan, std::size_t from_page, std::span<SlotId> slots) const;

  EvictResult evict_pages(std::size_t num_pages);
  /// alloc(allocator), after evicting what count_pages(allocator) says is missing.
  template <typename Alloc, typename CountPages>
  Status allocate(Alloc alloc, CountPages count_pages);
  NodeId lock_node(NodeIndex node);

  const CacheOptions options;
  const std::uint32_t cache_id;
  RadixIndex index;
  SlotLedger ledger;
  std::optional<EventLog> events;
  RadixIndex::OnRemoved on_removed;  // empty when nobody listens
  CacheStats stats;
  std::size_t num_locks = 0;

  // Scratch of one operation, kept for its memory.
  std::vector<std::uint32_t> new_pages;
  std::vector<PageId> duplicates;
  std::vector<PageId> evicted;

 private:
  Status plan_existing(const Plan& plan, std::span<const SlotId> slots, std::size_t owned_pages);
  Status plan_new(const Plan& plan, std::span<const SlotId> slots);
};

}  // namespace pando
