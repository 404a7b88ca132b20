// SPDX-License-Identifier: Apache-2.0
// PrefixCache::insert, in two steps that checkpoint and finish share: plan_insert compares the
// caller's slots with the tree's and claims the new pages, or refuses and changes nothing;
// apply_insert cannot fail.
#include <algorithm>

#include "base/bulk.h"
#include "base/check.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"

namespace pando {

Status refuse_negative(std::span<const Token> tokens, std::size_t from, std::size_t to,
                       const char* caller) {
  if (!has_negative(tokens.data() + from, to - from)) return {};
  while (tokens[from] >= 0) ++from;
  return make_error(ErrorCode::invalid_argument,
                    "{}: token {} at position {} is negative; expected a vocabulary id", caller,
                    tokens[from], from);
}

Result<PrefixCache::Impl::Plan> PrefixCache::Impl::plan_insert(const Key& key,
                                                               std::span<const SlotId> slots,
                                                               std::size_t owned_by_tree) {
  const std::size_t page_size = index.page_size();
  Plan plan{index.descend(key, nullptr), index.num_pages(key)};
  const std::size_t existing = plan.cursor.pages * page_size;
  if (owned_by_tree % page_size != 0 || owned_by_tree > existing)
    return make_error(ErrorCode::invalid_argument,
                      "insert: the first {} slots are said to be the tree's, which holds {} tokens "
                      "of this key; expected a multiple of the page size {}, at most that",
                      owned_by_tree, existing, page_size);
  if (Status s = refuse_negative(key.tokens, existing, key.tokens.size(), "insert"); !s)
    return s.error();
  new_pages.clear();
  duplicates.clear();
  Status status = plan_existing(plan, slots, owned_by_tree / page_size);
  if (status.ok()) status = plan_new(plan, slots);
  // Claiming proved that the duplicates are the caller's and differ; they are not kept.
  for (const PageId page : duplicates) ledger.unclaim(page);
  if (!status.ok()) return Error{status.error().code, "insert: " + status.error().message};
  return plan;
}

// The pages that the tree has: the caller's own for them are duplicates.
Status PrefixCache::Impl::plan_existing(const Plan& plan, std::span<const SlotId> slots,
                                        std::size_t owned_pages) {
  const std::size_t page_size = index.page_size();
  Status status;
  index.for_each_run(plan.cursor, [&](std::size_t first, const std::uint32_t* pages,
                                      std::size_t n) {
    // Of the pages said to be the tree's, the last one is looked at: it stands for those before.
    const std::size_t from = std::max(owned_pages, first + 1) - 1;
    for (std::size_t i = first + n; i-- > from && status.ok();) {
      const SlotId* at = slots.data() + i * page_size;
      const auto tree_slot = static_cast<std::int64_t>(pages[i - first] * page_size);
      if (index_of(at[0]) == tree_slot) {  // the tree's own slots came back
        if (i >= owned_pages) status = ledger.refuse_broken_page(at, i * page_size);
        continue;
      }
      if (i < owned_pages) {
        status = make_error(ErrorCode::invalid_argument,
                            "slot {} at position {} is said to be the tree's, which has slot {}",
                            index_of(at[0]), i * page_size, tree_slot);
        return;
      }
      std::uint32_t page;
      status = ledger.claim(at, 1, &page, i * page_size);
      if (status.ok()) duplicates.push_back(PageId{page});
    }
  });
  return status;
}

Status PrefixCache::Impl::plan_new(const Plan& plan, std::span<const SlotId> slots) {
  const std::size_t first = plan.cursor.pages * index.page_size();
  new_pages.resize(plan.num_pages - plan.cursor.pages);
  return ledger.claim(slots.data() + first, new_pages.size(), new_pages.data(), first);
}

Inserted PrefixCache::Impl::apply_insert(const Plan& plan, const Key& key,
                                         const InsertOptions& insert_options) {
  const std::size_t page_size = index.page_size();
  const std::size_t existing = plan.cursor.pages * page_size;
  NodeIndex end = plan.cursor.node == kNoNode ? index.root(key.ns) : index.settle(plan.cursor);
  if (!new_pages.empty()) {
    end = index.add_leaf(end, key.tokens.data() + existing, new_pages);
    if (events) {
      const Node& leaf = index.node(end);
      const std::size_t num_tokens = leaf.num_pages * page_size + (options.bigram ? 1 : 0);
      const PageHash* parent = existing == 0 ? nullptr : index.parent_hash(leaf);
      events->stored(Medium::device, key.ns, parent, {index.hashes(leaf), leaf.num_pages},
                     {leaf.tokens, num_tokens});
    }
  }
  index.touch_insert(end, insert_options.priority, insert_options.chunked);
  ledger.release(std::span<const PageId>(duplicates));
  stats.inserted_tokens += new_pages.size() * page_size;
  stats.duplicate_tokens += duplicates.size() * page_size;
  return {.length = plan.num_pages * page_size,
          .existing = existing,
          .freed = duplicates.size() * page_size,
          .node = index.id(end)};
}

Result<Inserted> PrefixCache::insert(const Key& key, std::span<const SlotId> slots,
                                     const InsertOptions& options) {
  const std::size_t page_size = impl_->index.page_size();
  if (slots.size() != key.tokens.size())
    return make_error(ErrorCode::invalid_argument,
                      "insert: {} slots for {} tokens; expected one for each", slots.size(),
                      key.tokens.size());
  const std::size_t num_pages = impl_->index.num_pages(key);
  if (num_pages == 0)
    return make_error(ErrorCode::invalid_argument,
                      "insert: a key of {} tokens does not fill a page of {}; nothing to keep",
                      key.tokens.size(), page_size);
  if (impl_->options.disabled) {
    impl_->ledger.release(slots.first(num_pages * page_size));
    impl_->ledger.flush();
    return Inserted{.length = 0, .existing = 0, .freed = num_pages * page_size, .node = {}};
  }
  const Result<Impl::Plan> plan = impl_->plan_insert(key, slots, options.owned_by_tree);
  if (!plan) return plan.error();
  const Inserted inserted = impl_->apply_insert(*plan, key, options);
  impl_->ledger.flush();
  return inserted;
}

}  // namespace pando
