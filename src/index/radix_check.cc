// SPDX-License-Identifier: Apache-2.0
// Pictures and proofs of the radix tree: dump, all_pages, check. All O(tree), none on a hot path.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

std::string describe(const Component& component, NodeIndex i, const char* with,
                     const char* without) {
  const Component::Side& side = component[i];
  if (!side.present) return fmt::format(" | {}", without);
  return fmt::format(" | {} locks {}{}", with, side.locks, side.in_order ? " evictable" : "");
}

/// What a shelf should say, counted node by node.
class ShelfCount {
 public:
  void add(OwnerId owner, std::size_t n, bool evictable) {
    if (owner >= tallies_.size()) tallies_.resize(owner + std::size_t{1});
    tallies_[owner].total += n;
    tallies_[owner].evictable += evictable ? n : 0;
  }
  Status compare(const Shelf& shelf, std::size_t candidates, const char* name) const {
    for (OwnerId owner = 0; owner < std::max<std::size_t>(shelf.num_owners(), tallies_.size());
         ++owner) {
      const Shelf::Tally found = owner < tallies_.size() ? tallies_[owner] : Shelf::Tally{};
      const Shelf::Tally counted = shelf.of(owner);
      if (found != counted)
        return broken("{}: owner {} has {}, {} evictable; counted {} and {}", name, owner,
                      found.total, found.evictable, counted.total, counted.evictable);
    }
    if (candidates != shelf.num_candidates())
      return broken("{}: {} nodes may go, its shelf has {}", name, candidates,
                    shelf.num_candidates());
    return shelf.check();
  }

 private:
  std::vector<Shelf::Tally> tallies_;
};

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
    for (std::uint32_t p = 0; numbered_ && nodes_[i].on_device() && p < nodes_[i].num_pages; ++p)
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
      const std::string pages =
          !numbered_
              ? ""
              : fmt::format(" pages{}",
                            node.on_device() ? first_few(node.pages, node.num_pages) : " none");
      text += fmt::format("{:{}}[{}, {}) tokens{}{} locks {} hits {} priority {} used {}{}", "",
                          2 * depth, begin, end, first_few(node.tokens, end - begin), pages,
                          node.locks, node.hits, node.priority, node.last_access,
                          node.in_order ? " evictable" : "");
      if (node.level != 0) text += fmt::format(" level {}", node.level);
      if (window_) text += describe(*window_, i, "window", "tombstone");
      if (state_) text += describe(*state_, i, "snapshot", "no snapshot");
      if (node.on_host) {
        text += fmt::format(" | host pages{} locks {}{}",
                            first_few(node.segment->host.get() + node.offset_pages, node.num_pages),
                            node.host_locks, node.in_host_order ? " evictable" : "");
        if (host_window_) text += describe(*host_window_, i, "host window", "no host window");
        if (host_state_) text += describe(*host_state_, i, "host snapshot", "no host snapshot");
      }
      text += '\n';
    }
    const std::size_t first = todo.size();
    branches_.for_each_child(i, [&, d = depth + 1, e = end](NodeIndex c) {
      todo.push_back({c, d, e});
    });
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
  }
  const auto line = [&](ComponentKind kind, const char* what) {
    const Sizes s = sizes(kind);
    return fmt::format("{} {}, {} evictable, {} protected", s.total, what, s.evictable,
                       s.protected_tokens);
  };
  text += line(ComponentKind::full, "tokens");
  if (window_) text += "; " + line(ComponentKind::window, "window tokens");
  if (state_) text += "; " + line(ComponentKind::state, "snapshots");
  if (host_) {
    const Sizes s = host_sizes(ComponentKind::full);
    text += fmt::format("; {} pages on the host, {} evictable", s.total, s.evictable);
  }
  return text + fmt::format(", {} nodes\n", num_nodes());
}

std::uint64_t RadixIndex::digest() const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](const void* data, std::size_t size_bytes) {
    hash = XXH3_64bits_withSeed(data, size_bytes, hash);
  };
  std::vector<NodeIndex> todo = roots();
  std::reverse(todo.begin(), todo.end());
  while (!todo.empty()) {
    const NodeIndex i = todo.back();
    todo.pop_back();
    const Node& node = nodes_[i];
    if (node.is_root()) mix(node.info->name.data(), node.info->name.size());
    mix(node.tokens, node.is_root() ? 0 : segments_.num_tokens(node.num_pages) * sizeof(Token));
    const std::uint64_t facts[] = {node.end_pages,
                                   node.num_children,
                                   node.locks,
                                   node.host_locks,
                                   node.last_access,
                                   node.created,
                                   node.hits,
                                   static_cast<std::uint64_t>(node.priority),
                                   static_cast<std::uint64_t>(node.level),
                                   node.owner,
                                   node.on_device(),
                                   node.on_host,
                                   node.backing_up,
                                   node.unstored,
                                   !node.is_root() && has_window(i),
                                   has_snapshot(i),
                                   has_host_window(i),
                                   has_host_snapshot(i)};
    mix(facts, sizeof facts);
    const std::size_t first = todo.size();
    branches_.for_each_child(i, [&](NodeIndex child) { todo.push_back(child); });
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
  }
  return hash;
}

// One node against its parent, children, table entry and order entry. Adds to *own_locks the locks
// that are not a locked child.
Status RadixIndex::check_node(NodeIndex index, std::size_t* own_locks) const {
  const Node& node = nodes_[index];
  std::size_t children = 0;
  std::size_t locked_children = 0;
  std::size_t device_children = 0;
  const Node* previous = nullptr;
  Status status;
  branches_.for_each_child(index, [&](NodeIndex c) {
    const Node& child = nodes_[c];
    ++children;
    locked_children += child.locks > 0 ? 1 : 0;
    device_children += child.on_device() ? 1 : 0;
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
  if (children != node.num_children || device_children != node.device_children)
    return broken("node {} counts {} children, {} on the device; has {} and {}", index,
                  node.num_children, node.device_children, children, device_children);
  if (node.is_root() ? children + node.locks == 0 : node.num_pages == 0)
    return broken("node {} is empty", index);

  if (!node.cut_top && children_.find(node.hash, [&](NodeIndex i) { return i == index; }) != index)
    return broken("node {} is not in the child table", index);
  if (node.is_root()) return {};

  if (node.end_pages != nodes_[node.parent].end_pages + node.num_pages)
    return broken("node {} ends at page {}, its parent at {}", index, node.end_pages,
                  nodes_[node.parent].end_pages);
  if (is_bare_leaf(index)) return broken("leaf {} is a tombstone that nobody holds", index);
  if (node.hash != hash_page(node.parent, node.tokens))
    return broken("node {} hash is stale", index);
  if (node.locks < locked_children) return broken("node {} has fewer locks than children", index);
  *own_locks += node.locks - locked_children;
  if (node.in_order != node.is_candidate())
    return broken("node {} is {}in the eviction order", index, node.in_order ? "" : "not ");
  if ((node.in_order || node.in_host_order) && node.order_key != key_of(index))
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

// Sides against nodes, sizes and order.
Status RadixIndex::check_component(const Component& component, const char* name) const {
  ShelfCount count;
  std::size_t in_order = 0;
  Status status;
  for_each_node([&](NodeIndex i, const Node& node) {
    const Component::Side& side = component[i];
    if (side.present) count.add(node.owner, component.weight(node), side.locks == 0);
    in_order += side.in_order ? 1 : 0;
    if (side.in_order != (side.present && side.locks == 0))
      status = broken("node {} is {}in the {} order", i, side.in_order ? "" : "not ", name);
    if (side.in_order && side.key != key_of(i))
      status = broken("node {} has an old key in the {} order", i, name);
    if (side.locks > 0 && (!side.present || node.locks + node.host_locks == 0))
      status = broken("node {} has {} {} locks and {} locks", i, side.locks, name, node.locks);
  });
  if (!status) return status;
  return count.compare(component.shelf(), in_order, name);
}

// Whoever holds a window holds the node: counted by leases, not by locked children.
Status RadixIndex::check_held_windows() const {
  std::vector<NodeIndex> deepest_first;
  std::unordered_map<NodeIndex, std::size_t> leases;
  for_each_node([&](NodeIndex i, const Node& node) {
    deepest_first.push_back(i);
    leases[i] += node.locks;
    if (node.locks > 0) --leases[node.parent];  // counted there as a locked child
  });
  std::sort(deepest_first.begin(), deepest_first.end(),
            [this](NodeIndex a, NodeIndex b) { return nodes_[a].end_pages > nodes_[b].end_pages; });
  for (const NodeIndex i : deepest_first) {
    if ((*window_)[i].locks > leases[i])
      return broken("node {}: {} leases hold its window, {} hold it", i, (*window_)[i].locks,
                    leases[i]);
    leases[nodes_[i].parent] += leases[i];
  }
  return {};
}

Status RadixIndex::check_snapshots(std::size_t num_state_locks) const {
  std::unordered_set<std::uint32_t> slots;
  std::size_t locks = 0;
  Status status;
  for_each_node([&](NodeIndex i, const Node&) {
    locks += (*state_)[i].locks;
    if (state_->has(i) && !slots.insert(snapshot(i).index).second)
      status =
          broken("state slot {} is in the tree twice, second at node {}", snapshot(i).index, i);
  });
  if (!status) return status;
  if (locks != num_state_locks)
    return broken("{} locks on snapshots, {} leases hold one", locks, num_state_locks);
  return {};
}

// Every node is somewhere, what is on the device is the top of the tree, and the host's order and
// tallies are those of its nodes.
Status RadixIndex::check_tiers(const Holds& holds) const {
  ShelfCount pages;
  std::size_t leaves = 0, mirrors = 0;
  std::unordered_map<NodeIndex, std::size_t> locked_children;
  std::size_t own_locks = 0;
  Status status;
  for_each_node([&](NodeIndex i, const Node& node) {
    const Node& parent = nodes_[node.parent];
    if (!node.on_device() && !node.on_host) status = broken("node {} is on no tier", i);
    if (node.on_device() && !parent.is_root() && !parent.on_device() && !node.cut_top)
      status = broken("node {} is on the device, its parent {} is not", i, node.parent);
    if (!host_ && (node.on_host || node.host_locks > 0))
      status = broken("node {} is on a host that is not there", i);
    if (!node.on_device() && (has_snapshot(i) || (window_ && window_->has(i))))
      status = broken("node {} has a component on the device, where it is not", i);
    if (!node.on_host && (has_host_window(i) || has_host_snapshot(i)))
      status = broken("node {} has a component on the host, where it is not", i);
    if (node.in_host_order != node.is_host_candidate() ||
        node.in_mirrors != (mirrors_first_ && node.is_mirror()))
      status = broken("node {} is {}in the host order and {}among the mirrors", i,
                      node.in_host_order ? "" : "not ", node.in_mirrors ? "" : "not ");
    if (node.on_host) pages.add(node.owner, node.num_pages, node.is_host_evictable());
    leaves += node.in_host_order ? 1 : 0;
    mirrors += node.in_mirrors ? 1 : 0;
    own_locks += node.host_locks;
    if (node.host_locks > 0 && !parent.is_root()) ++locked_children[node.parent];
    const bool locked = node.host_locks > 0;
    for (const auto* component : {&host_window_, &host_state_}) {
      if (*component && (**component)[i].present && ((**component)[i].locks > 0) != locked)
        status = broken("node {} is held on the host, a component of it is not", i);
    }
  });
  for (const auto& [i, locked] : locked_children) {
    if (nodes_[i].host_locks < locked)
      status =
          broken("node {} has {} host locks and {} held children", i, nodes_[i].host_locks, locked);
    own_locks -= locked;
  }
  if (!status) return status;
  if (own_locks != holds.host_locks)
    return broken("{} host locks, {} holds", own_locks, holds.host_locks);
  if (Status s = pages.compare(host_shelf_, leaves, "host"); !s) return s;
  if (mirrors != mirror_shelf_.num_candidates())
    return broken("{} mirrors on the host, their shelf has {}", mirrors,
                  mirror_shelf_.num_candidates());
  return mirror_shelf_.check();
}

Status RadixIndex::check(const Holds& holds) const {
  ShelfCount pages;
  std::size_t own_locks = 0;
  std::size_t live = 0;
  std::size_t candidates = 0;
  std::unordered_set<std::uint32_t> owned;
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    const Node& node = nodes_[i];
    if (!node.live) continue;
    ++live;
    if (Status s = check_node(i, &own_locks); !s) return s;
    candidates += node.in_order ? 1 : 0;
    // Its parent counts it as locked, but not as a child.
    if (node.cut_top && node.locks > 0 && !nodes_[node.parent].is_root()) --own_locks;
    if (!node.on_device()) continue;
    pages.add(node.owner, node.num_pages, node.is_device_evictable());
    for (std::uint32_t p = 0; numbered_ && p < node.num_pages; ++p) {
      if (!owned.insert(node.pages[p]).second)
        return broken("page {} is in the tree twice, second in node {}", node.pages[p], i);
    }
  }
  if (live != nodes_.num_live() || live != children_.size() + num_cut_off_)
    return broken("{} nodes live, slab counts {}, child table {}, {} cut off", live,
                  nodes_.num_live(), children_.size(), num_cut_off_);
  if (own_locks != holds.locks) return broken("{} locks, {} leases", own_locks, holds.locks);
  if (Status s = pages.compare(device_shelf_, candidates, "device"); !s) return s;
  if (window_) {
    if (Status s = check_component(*window_, "window"); !s) return s;
    if (Status s = check_held_windows(); !s) return s;
  }
  if (state_) {
    if (Status s = check_component(*state_, "state"); !s) return s;
    if (Status s = check_snapshots(holds.state_locks); !s) return s;
  }
  if (Status s = check_tiers(holds); !s) return s;
  if (host_window_) {
    if (Status s = check_component(*host_window_, "host window"); !s) return s;
  }
  if (host_state_) {
    if (Status s = check_component(*host_state_, "host state"); !s) return s;
  }
  if (retention_) {
    if (Status s = check_retention(holds); !s) return s;
  }
  return check_segments();
}

}  // namespace pando
