// SPDX-License-Identifier: Apache-2.0
// Bookkeeping of one component; see the header.
#include "index/component.h"

#include "base/check.h"

namespace pando {

void Component::add(NodeIndex i, const Node& node, StateSlot snapshot) {
  Side& side = sides_[i];
  side.present = true;
  side.snapshot = snapshot;
  shelf_.add(node.owner, weight(node), /*evictable=*/true);
}

void Component::drop(NodeIndex i, const Node& node) {
  PANDO_CHECK(sides_[i].locks == 0, "node {} loses what {} leases hold", i, sides_[i].locks);
  leave(i, node);
  sides_[i].present = false;
  shelf_.remove(node.owner, weight(node), /*evictable=*/true);
}

void Component::place(NodeIndex i, const Node& node, const EvictionKey& key) {
  Side& side = sides_[i];
  if (side.in_order && side.key == key) return;
  leave(i, node);
  if (!side.present || side.locks > 0) return;
  side.key = key;
  side.in_order = true;
  shelf_.insert(i, node, key);
}

void Component::leave(NodeIndex i, const Node& node) {
  Side& side = sides_[i];
  if (!side.in_order) return;
  shelf_.erase(i, node, side.key);
  side.in_order = false;
}

void Component::copy(NodeIndex upper, NodeIndex lower) {
  sides_[upper] = sides_[lower];
  sides_[upper].in_order = false;
}

void Component::lock(NodeIndex i, const Node& node) {
  Side& side = sides_[i];
  PANDO_CHECK(side.present, "lock of a component that node {} has lost", i);
  if (side.locks++ != 0) return;
  leave(i, node);
  shelf_.hold(node.owner, weight(node));
}

bool Component::unlock(NodeIndex i, const Node& node) {
  Side& side = sides_[i];
  PANDO_CHECK(side.locks > 0, "unlock of a component of node {}, which is not locked", i);
  if (--side.locks != 0) return false;
  shelf_.release(node.owner, weight(node));
  return true;
}

void Component::move(NodeIndex i, const Node& node, OwnerId to) {
  if (!sides_[i].present) return;
  const bool evictable = sides_[i].locks == 0;
  shelf_.remove(node.owner, weight(node), evictable);
  shelf_.add(to, weight(node), evictable);
}

}  // namespace pando
