// SPDX-License-Identifier: Apache-2.0
// The radix tree over pages of tokens: keys, nodes, locks, eviction order. It decides and returns
// what became free; PrefixCache executes. It touches no KV bytes and frees no slots.
//
// A walk is read-only: descend() follows a key and returns a Cursor; settle(), add_leaf() and the
// touch calls then change the tree at that place. So bad input is refused after the walk and before
// the first change, and probe() is descend() alone.
//
// Invariants (check() proves them):
// - an edge holds whole pages; siblings differ in their first page;
// - locks of a node = leases on it + children that are locked; evictable are the tokens of nodes
//   without locks; in the eviction order are exactly the unlocked nodes without children;
// - a node was used at least as recently as its children.
// Costs: descend compares each token once and looks up one child per edge; lock and unlock touch
// the nodes whose state changes; evict is O(log leaves) per victim.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "index/branch_index.h"
#include "index/child_table.h"
#include "index/eviction_order.h"
#include "index/node.h"
#include "index/segment.h"
#include "pando/policy.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class RadixIndex {
 public:
  struct Options {
    std::size_t page_size = 1;
    bool bigram = false;
    bool hashes = false;  // keep the hash of every page
    std::uint64_t hash_seed = 0;
  };
  RadixIndex(const Options& options, std::unique_ptr<EvictionPolicy> policy);
  ~RadixIndex();

  /// Where a key leaves the tree: after `pages` whole pages, `pages_in_node` into `node`.
  struct Cursor {
    NodeIndex node = kNoNode;  // kNoNode: the namespace is unknown
    std::uint32_t pages_in_node = 0;
    std::size_t pages = 0;
  };
  /// Follows the key as far as the tree agrees. Writes the slots of what agrees to `out` unless it
  /// is nullptr.
  Cursor descend(const Key& key, SlotId* out) const;

  /// Beyond the cursor, inside the next page: which node agrees longest, and for how many tokens.
  struct Partial {
    NodeIndex node = kNoNode;  // the page is its first one once the cursor is settled
    std::uint32_t page = 0;
    std::size_t length = 0;
  };
  Partial partial(const Key& key, const Cursor& cursor) const;

  /// Calls fn(first, pages, n) for the runs of pages along the cursor's path, from its end to the
  /// root: pages [first, first + n) of the key lie in device pages pages[0, n).
  template <typename Fn>
  void for_each_run(const Cursor& cursor, Fn&& fn) const;

  /// Splits so that the cursor is at the end of a node, and returns that node (the namespace's root
  /// for 0 pages). The lower half keeps the identity: leases and handles stay with the end they
  /// were made for.
  NodeIndex settle(const Cursor& cursor);

  /// The root of a namespace, made if need be. It goes when its last child does.
  NodeIndex root(std::string_view ns);

  /// Hangs pages below `parent`: tokens has pages.size() * page_size (bigram: one more).
  NodeIndex add_leaf(NodeIndex parent, const Token* tokens, std::span<const std::uint32_t> pages);

  /// The path from `node` to the root was used just now.
  void touch(NodeIndex node);
  /// The same by an insert: raises priorities, counts a hit unless chunked.
  void touch_insert(NodeIndex node, std::int32_t priority, bool chunked);

  void lock(NodeIndex node);
  void unlock(NodeIndex node);

  /// Called for pages about to leave: n pages of `node` from its page `first` on.
  using OnRemoved = std::function<void(const Node& node, std::uint32_t first, std::uint32_t n)>;
  struct Evicted {
    std::size_t pages = 0;
    std::size_t nodes = 0;
  };
  /// Takes pages from the least valuable leaves until `num_pages` are gone, trimming the last one
  /// unless `whole_nodes`. Appends them to `out`.
  Evicted evict(std::size_t num_pages, bool whole_nodes, std::vector<PageId>& out,
                const OnRemoved& on_removed);

  NodeId id(NodeIndex node) const { return nodes_.id(node); }
  NodeIndex resolve(NodeId id) const { return nodes_.resolve(id); }
  const Node& node(NodeIndex index) const { return nodes_[index]; }
  const PageHash* hashes(const Node& node) const {
    return node.segment->hashes.get() + node.offset_pages;
  }
  /// The hash of the page before `node`'s first; nullptr at a chain's start.
  const PageHash* parent_hash(const Node& node) const;

  std::size_t page_size() const { return page_size_; }
  /// Whole pages of a key; 0 for one shorter than a page.
  std::size_t num_pages(const Key& key) const {
    return key.tokens.size() <= overlap_ ? 0 : (key.tokens.size() - overlap_) / page_size_;
  }
  std::size_t num_units(const Key& key) const {
    return key.tokens.size() <= overlap_ ? 0 : key.tokens.size() - overlap_;
  }
  Sizes sizes() const;
  std::size_t num_nodes() const { return nodes_.num_live(); }
  std::size_t memory_bytes() const;
  std::vector<PageId> all_pages() const;
  std::string dump() const;
  /// O(tree). `num_leases` is how many locks callers hold.
  Status check(std::size_t num_leases) const;

 private:
  NodeIndex find_root(std::string_view ns, std::uint32_t hash) const;
  std::uint32_t hash_namespace(std::string_view ns) const;
  std::uint32_t hash_page(NodeIndex parent, const Token* tokens) const;
  std::size_t agreeing_pages(const Token* a, const Token* b, std::size_t max_pages) const;

  NodeIndex split(NodeIndex node, std::uint32_t at_page);
  void set_slice(Node& node, Segment* segment, std::uint32_t offset, std::uint32_t num_pages);
  void prefetch_victims();
  void remove_leaf(NodeIndex leaf);
  void trim(NodeIndex leaf, std::uint32_t keep_pages);
  void shrink_segment(NodeIndex last_holder);
  void drop_root_if_empty(NodeIndex root);

  NodeStats stats(const Node& node) const;
  void enter_order(NodeIndex node);
  void leave_order(NodeIndex node);

  std::vector<NodeIndex> roots() const;
  Status check_node(NodeIndex index, std::size_t* extra_locks) const;
  Status check_segments() const;

  const std::size_t page_size_;
  const std::size_t overlap_;  // raw tokens a page reads beyond its units: 1 for bigram keys
  const bool with_hashes_;
  std::array<std::uint64_t, 24> secret_;  // of the hash that finds children
  std::unique_ptr<EvictionPolicy> policy_;
  NodeSlab nodes_;
  SegmentStore segments_;
  ChildTable children_;
  BranchIndex branches_;
  EvictionOrder order_;
  std::uint64_t now_ = 0;
  std::size_t evictable_pages_ = 0;
  std::size_t protected_pages_ = 0;
};

template <typename Fn>
void RadixIndex::for_each_run(const Cursor& cursor, Fn&& fn) const {
  std::size_t end = cursor.pages;
  std::uint32_t n = cursor.pages_in_node;
  for (NodeIndex i = cursor.node; end > 0; i = nodes_[i].parent, n = nodes_[i].num_pages) {
    end -= n;
    fn(end, nodes_[i].pages, n);
  }
}

}  // namespace pando
