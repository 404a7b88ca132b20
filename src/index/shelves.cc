// SPDX-License-Identifier: Apache-2.0
// Places of nodes on shelves as nodes change.
#include "index/shelves.h"

#include <algorithm>
#include <vector>

#include "index/broken.h"

namespace pando {
namespace {

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

Shelves::Shelves(Tree& tree, const Uses& uses, Components& components, const Options& options)
    : tree_(tree),
      nodes_(tree.nodes()),
      uses_(uses),
      components_(components),
      host_on_(options.host),
      mirrors_first_(options.host && options.mirrors_first),
      device_(Shelf::Kind::leaves, uses.hazard_index()),
      host_(Shelf::Kind::leaves, uses.hazard_index()),
      mirrors_(Shelf::Kind::mirrors, uses.hazard_index()) {}

// ---- Told of changes ---------------------------------------------------------------------------

// Without tiers only the end of a path can be in an order; with them also where the device part
// ends.
void Shelves::leave_path(NodeIndex end) {
  leave(end);
  for (NodeIndex i = end; host_on_ && !nodes_[i].is_root(); i = nodes_[i].parent) leave(i);
}

void Shelves::enter_path(NodeIndex end) {
  enter(end);
  if (!places_path()) return;
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (host_on_ && i != end) enter(i);
    place_components(i);
  }
}

void Shelves::place_components(NodeIndex i) {
  if (!components_.any()) return;
  const Node& node = nodes_[i];
  const EvictionKey key = uses_.key(i);
  components_.for_each([&](Component& component) { component.place(i, node, key); });
}

void Shelves::add_leaf(NodeIndex leaf) {
  Node& node = nodes_[leaf];
  node.owner = nodes_[node.parent].owner;
  leave(node.parent);
  if (host_on_) enter(node.parent);  // may still leave the device above a leaf on the host
  if (node.on_device()) device_.add(node.owner, node.num_pages, /*evictable=*/true);
}

void Shelves::set_level(NodeIndex i, Level level) {
  if (level == nodes_[i].level) return;
  leave(i);
  leave_components(i);
  nodes_[i].level = level;
  enter(i);
  place_components(i);
}

void Shelves::set_owner(NodeIndex i, OwnerId owner) {
  retire(i);
  leave_components(i);
  components_.for_each([&](Component& component) { component.move(i, nodes_[i], owner); });
  nodes_[i].owner = owner;
  admit(i);
  place_components(i);
}

// A snapshot stays at the end. Weights do not change.
void Shelves::split(NodeIndex upper, NodeIndex lower) {
  nodes_[upper].owner = nodes_[lower].owner;
  nodes_[upper].level = nodes_[lower].level;
  reenter(lower);  // a policy may look at the length
  if (components_.window) components_.window->split(upper, lower);
  if (components_.host_window) components_.host_window->split(upper, lower);
  place_components(upper);
  place_components(lower);
}

// ---- Asked -------------------------------------------------------------------------------------

Shelf* Shelves::shelf(Tier tier, ComponentKind kind) {
  const bool device = tier == Tier::device;
  if (!device && !host_on_) return nullptr;
  if (kind == ComponentKind::full) return device ? &device_ : &host_;
  auto& component = kind == ComponentKind::window
                        ? (device ? components_.window : components_.host_window)
                        : (device ? components_.state : components_.host_state);
  return component ? &component->shelf() : nullptr;
}

void Shelves::set_limits(Tier tier, ComponentKind kind, OwnerId owner,
                         const Shelf::Limits& limits) {
  if (Shelf* const of = shelf(tier, kind)) of->set_limits(owner, limits);
  if (mirrors_first_ && tier == Tier::host && kind == ComponentKind::full)
    mirrors_.set_limits(owner, limits);
}

Sizes Shelves::sizes(Tier tier, ComponentKind kind) const {
  const Shelf* const of = shelf(tier, kind);
  if (of == nullptr) return {};
  const Shelf::Tally& tally = of->sum();
  return {tally.evictable, tally.total - tally.evictable, tally.total};
}

std::size_t Shelves::memory_bytes() const {
  std::size_t sum = device_.memory_bytes() + host_.memory_bytes() + mirrors_.memory_bytes();
  components_.for_each([&](const Component& component) { sum += component.memory_bytes(); });
  return sum;
}

// ---- Proving -----------------------------------------------------------------------------------

Status Shelves::check_pages() const {
  ShelfCount device, host;
  std::size_t device_leaves = 0, host_leaves = 0, mirrors = 0;
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    if (node.in_order != node.is_candidate())
      status = broken("node {} is {}in the eviction order", i, node.in_order ? "" : "not ");
    if ((node.in_order || node.in_host_order) && node.order_key != uses_.key(i))
      status = broken("node {} has an old eviction key", i);
    if (node.in_host_order != node.is_host_candidate() ||
        node.in_mirrors != (mirrors_first_ && node.is_mirror()))
      status = broken("node {} is {}in the host order and {}among the mirrors", i,
                      node.in_host_order ? "" : "not ", node.in_mirrors ? "" : "not ");
    if (node.on_device()) device.add(node.owner, node.num_pages, node.is_device_evictable());
    if (node.on_host) host.add(node.owner, node.num_pages, node.is_host_evictable());
    device_leaves += node.in_order ? 1 : 0;
    host_leaves += node.in_host_order ? 1 : 0;
    mirrors += node.in_mirrors ? 1 : 0;
  });
  if (!status) return status;
  if (Status s = device.compare(device_, device_leaves, "device"); !s) return s;
  if (Status s = host.compare(host_, host_leaves, "host"); !s) return s;
  if (mirrors != mirrors_.num_candidates())
    return broken("{} mirrors on the host, their shelf has {}", mirrors, mirrors_.num_candidates());
  return mirrors_.check();
}

Status Shelves::check_component(const Component& component, const char* name) const {
  ShelfCount count;
  std::size_t in_order = 0;
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    const Component::Record& record = component[i];
    if (record.present) count.add(node.owner, component.weight(node), record.locks == 0);
    in_order += record.in_order ? 1 : 0;
    if (record.in_order != (record.present && record.locks == 0))
      status = broken("node {} is {}in the {} order", i, record.in_order ? "" : "not ", name);
    if (record.in_order && record.key != uses_.key(i))
      status = broken("node {} has an old key in the {} order", i, name);
  });
  if (!status) return status;
  return count.compare(component.shelf(), in_order, name);
}

Status Shelves::check() const {
  if (Status s = check_pages(); !s) return s;
  const auto proved = [&](const std::optional<Component>& component, const char* name) {
    return component ? check_component(*component, name) : Status{};
  };
  if (Status s = proved(components_.window, "window"); !s) return s;
  if (Status s = proved(components_.state, "state"); !s) return s;
  if (Status s = proved(components_.host_window, "host window"); !s) return s;
  return proved(components_.host_state, "host state");
}

}  // namespace pando
