// SPDX-License-Identifier: Apache-2.0
// Pictures and proofs of the radix tree: dump, all_pages, check. All O(tree), none on a hot path.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/page_hash.h"
#include "index/compare.h"
#include "index/radix_index.h"

namespace pando {
namespace {

template <typename... Args>
Error broken(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::corrupt,
               "radix index: " + fmt::format(format, std::forward<Args>(args)...)};
}

// The first few of n values, separated by spaces.
template <typename T>
std::string first_few(const T* values, std::size_t n) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, n); ++i) text += fmt::format(" {}", values[i]);
  return n > kShown ? text + " ..." : text;
}

}  // namespace

// Roots by namespace, so that what is printed depends on the tree alone.
std::vector<NodeIndex> RadixIndex::roots() const {
  std::vector<NodeIndex> found;
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    if (nodes_[i].is_root()) found.push_back(i);
  }
  std::sort(found.begin(), found.end(), [this](NodeIndex a, NodeIndex b) {
    return nodes_[a].info->name < nodes_[b].info->name;
  });
  return found;
}

std::vector<PageId> RadixIndex::all_pages() const {
  std::vector<PageId> out;
  std::vector<NodeIndex> todo = roots();
  std::reverse(todo.begin(), todo.end());
  while (!todo.empty()) {
    const NodeIndex i = todo.back();
    todo.pop_back();
    for (std::uint32_t p = 0; p < nodes_[i].num_pages; ++p)
      out.push_back(PageId{nodes_[i].pages[p]});
    const std::size_t first = todo.size();
    branches_.for_each_child(i, [&](NodeIndex child) { todo.push_back(child); });
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
  }
  return out;
}

std::string RadixIndex::dump() const {
  std::string text;
  struct Item {
    NodeIndex node;
    std::size_t depth, begin;
  };
  std::vector<Item> todo;
  for (const NodeIndex root : roots()) todo.push_back({root, 0, 0});
  std::reverse(todo.begin(), todo.end());
  while (!todo.empty()) {
    const auto [i, depth, begin] = todo.back();
    todo.pop_back();
    const Node& node = nodes_[i];
    const std::size_t end = begin + node.num_pages * page_size_;
    if (node.is_root()) {
      text += fmt::format("namespace \"{}\"\n", node.info->name);
    } else {
      text += fmt::format("{:{}}[{}, {}) tokens{} pages{} locks {} hits {} priority {} used {}{}\n",
                          "", 2 * depth, begin, end, first_few(node.tokens, end - begin),
                          first_few(node.pages, node.num_pages), node.locks, node.hits,
                          node.priority, node.last_access, node.in_order ? " evictable" : "");
    }
    const std::size_t first = todo.size();
    branches_.for_each_child(i, [&, d = depth + 1, e = end](NodeIndex c) {
      todo.push_back({c, d, e});
    });
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
  }
  return text + fmt::format("{} tokens, {} evictable, {} protected, {} nodes\n", sizes().total,
                            sizes().evictable, sizes().protected_tokens, num_nodes());
}

// One node against its parent, children, table entry and order entry. Adds to *own_locks the locks
// that are not a locked child.
Status RadixIndex::check_node(NodeIndex index, std::size_t* own_locks) const {
  const Node& node = nodes_[index];
  std::size_t children = 0;
  std::size_t locked_children = 0;
  const Node* previous = nullptr;
  Status status;
  branches_.for_each_child(index, [&](NodeIndex c) {
    const Node& child = nodes_[c];
    ++children;
    locked_children += child.locks > 0 ? 1 : 0;
    if (child.parent != index) status = broken("node {} is not under its parent {}", c, index);
    if (previous != nullptr &&
        !std::lexicographical_compare(previous->tokens, previous->tokens + page_size_ + overlap_,
                                      child.tokens, child.tokens + page_size_ + overlap_))
      status = broken("children of node {} out of order at {}", index, c);
    if (!node.is_root() && child.last_access > node.last_access)
      status = broken("node {} used after its parent {}", c, index);
    previous = &child;
  });
  if (!status) return status;
  if (children != node.num_children)
    return broken("node {} counts {} children, has {}", index, node.num_children, children);
  if (node.is_root() ? children == 0 : node.num_pages == 0)
    return broken("node {} is empty", index);

  if (children_.find(node.hash, [&](NodeIndex i) { return i == index; }) != index)
    return broken("node {} is not in the child table", index);
  if (node.is_root()) return {};

  if (node.hash != hash_page(node.parent, node.tokens))
    return broken("node {} hash is stale", index);
  if (node.locks < locked_children) return broken("node {} has fewer locks than children", index);
  *own_locks += node.locks - locked_children;
  if (node.in_order != node.is_candidate())
    return broken("node {} is {}in the eviction order", index, node.in_order ? "" : "not ");
  if (node.in_order && node.order_key != policy_->key(stats(node)))
    return broken("node {} has an old eviction key", index);
  if (with_hashes_) {
    std::vector<PageHash> expected(node.num_pages);
    hash_page_chain(parent_hash(node), node.tokens, node.num_pages, page_size_, overlap_ != 0,
                    expected.data());
    if (!std::equal(expected.begin(), expected.end(), hashes(node)))
      return broken("node {} page hashes are wrong", index);
  }
  return {};
}

// Slices against segments: references, live pages, chains without gaps, memory within twice.
Status RadixIndex::check_segments() const {
  struct Use {
    std::uint32_t refs = 0, pages = 0;
  };
  std::unordered_map<const Segment*, Use> uses;
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    const Node& node = nodes_[i];
    if (!node.live || node.is_root()) continue;
    Use& use = uses[node.segment];
    ++use.refs;
    use.pages += node.num_pages;
    const Node& parent = nodes_[node.parent];
    if (node.offset_pages > 0 && (parent.segment != node.segment ||
                                  parent.offset_pages + parent.num_pages != node.offset_pages))
      return broken("node {} does not continue its parent's segment", i);
  }
  for (const auto& [segment, use] : uses) {
    if (segment->refs != use.refs || segment->live_pages != use.pages)
      return broken("a segment counts {} references and {} pages, has {} and {}", segment->refs,
                    segment->live_pages, use.refs, use.pages);
    if (segment->live_pages * 2 < segment->num_pages)
      return broken("a segment of {} pages keeps only {}", segment->num_pages, segment->live_pages);
  }
  return {};
}

Status RadixIndex::check(std::size_t num_leases) const {
  std::size_t evictable = 0;
  std::size_t locked = 0;
  std::size_t own_locks = 0;
  std::size_t live = 0;
  std::size_t candidates = 0;
  std::unordered_set<std::uint32_t> owned;
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    const Node& node = nodes_[i];
    if (!node.live) continue;
    ++live;
    if (Status s = check_node(i, &own_locks); !s) return s;
    (node.locks > 0 ? locked : evictable) += node.num_pages;
    candidates += node.in_order ? 1 : 0;
    for (std::uint32_t p = 0; p < node.num_pages; ++p) {
      if (!owned.insert(node.pages[p]).second)
        return broken("page {} is in the tree twice, second in node {}", node.pages[p], i);
    }
  }
  if (live != nodes_.num_live() || live != children_.size())
    return broken("{} nodes live, slab counts {}, child table {}", live, nodes_.num_live(),
                  children_.size());
  if (evictable != evictable_pages_ || locked != protected_pages_)
    return broken("{} pages evictable and {} protected, counted {} and {}", evictable, locked,
                  evictable_pages_, protected_pages_);
  if (own_locks != num_leases) return broken("{} locks, {} leases", own_locks, num_leases);
  if (candidates != order_.size())
    return broken("{} evictable leaves, eviction order holds {}", candidates, order_.size());
  if (Status s = order_.check(); !s) return s;
  return check_segments();
}

}  // namespace pando
