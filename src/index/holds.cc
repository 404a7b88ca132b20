// SPDX-License-Identifier: Apache-2.0
// Holding and letting go, from a node up as far as something changes.
#include "index/holds.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "index/broken.h"

namespace pando {

void Holds::lock(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (nodes_[i].locks++ != 0) return;  // everything above is locked already
    shelves_.hold(i);
  }
}

void Holds::unlock(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    PANDO_CHECK(node.locks > 0, "unlock of node {}, which is not locked", i);
    if (node.locks != 1) {
      --node.locks;
      break;
    }
    shelves_.retire(i);  // a failed load may have taken it off the device meanwhile
    node.locks = 0;
    shelves_.admit(i);
  }
}

// ---- Windows -----------------------------------------------------------------------------------

std::uint32_t Holds::lock_window(NodeIndex end) {
  Component& window = *components_.window;
  const std::uint32_t end_pages = nodes_[end].end_pages;
  const std::size_t wanted = end_pages - std::min<std::size_t>(end_pages, window_pages_);
  std::uint32_t from = end_pages;
  for (NodeIndex i = end; from > wanted && window.has(i); i = nodes_[i].parent) {
    if (nodes_[i].begin_pages() < wanted)
      tree_.split(i, static_cast<std::uint32_t>(wanted) - nodes_[i].begin_pages());
    window.lock(i, nodes_[i]);
    from = nodes_[i].begin_pages();
  }
  return from;
}

// A node lies wholly before or wholly behind where a hold begins: that is where a node began, and
// splits only add such places.
void Holds::lock_window(NodeIndex end, std::uint32_t from_page) {
  for (NodeIndex i = end; nodes_[i].end_pages > from_page; i = nodes_[i].parent)
    components_.window->lock(i, nodes_[i]);
}

void Holds::unlock_window(NodeIndex end, std::uint32_t from_page) {
  for (NodeIndex i = end; nodes_[i].end_pages > from_page; i = nodes_[i].parent) {
    if (components_.window->unlock(i, nodes_[i])) shelves_.place_components(i);
  }
}

// ---- The host ----------------------------------------------------------------------------------

void Holds::lock_host(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    if (node.host_locks != 0) {
      ++node.host_locks;
      return;
    }
    shelves_.retire(i);
    node.host_locks = 1;
    shelves_.admit(i);
    components_.for_each_on_host(i, [&](Component& component) { component.lock(i, node); });
  }
}

void Holds::unlock_host(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    PANDO_CHECK(node.host_locks > 0, "unlock_host of node {}, which nobody holds", i);
    if (node.host_locks != 1) {
      --node.host_locks;
      break;
    }
    shelves_.retire(i);
    node.host_locks = 0;
    shelves_.admit(i);
    components_.for_each_on_host(i, [&](Component& component) { component.unlock(i, node); });
    shelves_.place_components(i);
  }
}

void Holds::set_backing_up(NodeIndex index, bool yes) {
  Node& node = nodes_[index];
  shelves_.retire(index);
  node.backing_up = yes;
  shelves_.admit(index);
  components_.for_each_on_host(index, [&](Component& component) {
    if (yes) {
      component.lock(index, node);
    } else {
      component.unlock(index, node);
    }
  });
  shelves_.place_components(index);
}

void Holds::split(NodeIndex upper_index, NodeIndex lower_index) {
  Node& upper = nodes_[upper_index];
  const Node& lower = nodes_[lower_index];
  upper.locks = lower.locks > 0 ? 1 : 0;
  upper.host_locks = lower.host_locks > 0 ? 1 : 0;
  upper.backing_up = lower.backing_up;
}

// ---- Proving -----------------------------------------------------------------------------------

// Of what a node counts, that which is not a locked child is held by callers. A node that was cut
// off is no child of its parent, but counted there as before; roots count no locks.
Status Holds::check_locks(const Counts& counts) const {
  struct Locked {
    std::size_t children = 0, host_children = 0;
  };
  std::vector<Locked> locked(nodes_.end());
  tree_.for_each_node([&](NodeIndex, const Node& node) {
    locked[node.parent].children += node.locks > 0 ? 1 : 0;
    locked[node.parent].host_children += node.host_locks > 0 ? 1 : 0;
  });
  std::size_t own = 0, host_own = 0;
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    if (node.locks < locked[i].children || node.host_locks < locked[i].host_children)
      status = broken("node {} has {} locks, {} on the host, and {} and {} held children", i,
                      node.locks, node.host_locks, locked[i].children, locked[i].host_children);
    own += node.locks - locked[i].children;
    host_own += node.host_locks - locked[i].host_children;
  });
  if (!status) return status;
  if (own != counts.locks) return broken("{} locks, {} leases", own, counts.locks);
  if (host_own != counts.host_locks)
    return broken("{} host locks, {} holds", host_own, counts.host_locks);
  return {};
}

Status Holds::check_components(const Counts& counts) const {
  std::size_t state_locks = 0;
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    components_.for_each([&](const Component& component) {
      const Component::Record& record = component[i];
      if (record.locks > 0 && (!record.present || node.locks + node.host_locks == 0))
        status = broken("node {} has {} locks on a component and {} on itself", i, record.locks,
                        node.locks);
    });
    components_.for_each_on_host(i, [&](const Component& component) {
      if ((component[i].locks > 0) != (node.host_locks > 0))
        status = broken("node {} is held on the host, a component of it is not", i);
    });
    if (components_.state) state_locks += (*components_.state)[i].locks;
  });
  if (!status) return status;
  if (state_locks != counts.state_locks)
    return broken("{} locks on snapshots, {} leases hold one", state_locks, counts.state_locks);
  return {};
}

// Whoever holds a window holds the node: counted by leases, not by locked children.
Status Holds::check_windows() const {
  std::vector<NodeIndex> deepest_first;
  std::unordered_map<NodeIndex, std::size_t> leases;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    deepest_first.push_back(i);
    leases[i] += node.locks;
    if (node.locks > 0) --leases[node.parent];  // counted there as a locked child
  });
  std::sort(deepest_first.begin(), deepest_first.end(),
            [this](NodeIndex a, NodeIndex b) { return nodes_[a].end_pages > nodes_[b].end_pages; });
  for (const NodeIndex i : deepest_first) {
    const std::uint32_t locks = (*components_.window)[i].locks;
    if (locks > leases[i])
      return broken("node {}: {} leases hold its window, {} hold it", i, locks, leases[i]);
    leases[nodes_[i].parent] += leases[i];
  }
  return {};
}

Status Holds::check(const Counts& counts) const {
  if (Status s = check_locks(counts); !s) return s;
  if (!components_.any()) return {};
  if (Status s = check_components(counts); !s) return s;
  return components_.window ? check_windows() : Status{};
}

}  // namespace pando
