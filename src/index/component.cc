// SPDX-License-Identifier: Apache-2.0
// Bookkeeping of one component; see the header.
#include "index/component.h"

#include "base/check.h"

namespace pando {

void Component::add(NodeIndex i, const Node& node, StateSlot snapshot) {
  Side& side = sides_[i];
  side.present = true;
  side.snapshot = snapshot;
  evictable_ += weight(node);
}

void Component::drop(NodeIndex i, const Node& node) {
  PANDO_CHECK(sides_[i].locks == 0, "node {} loses what {} leases hold", i, sides_[i].locks);
  leave(i, node);
  sides_[i].present = false;
  evictable_ -= weight(node);
}

void Component::place(NodeIndex i, const Node& node, const EvictionKey& key) {
  Side& side = sides_[i];
  if (side.in_order && side.key == key) return;
  leave(i, node);
  if (!side.present || side.locks > 0) return;
  side.key = key;
  side.in_order = true;
  order_.insert(key, i, node.end_pages);
}

void Component::leave(NodeIndex i, const Node& node) {
  Side& side = sides_[i];
  if (!side.in_order) return;
  order_.erase(side.key, i, node.end_pages);
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
  evictable_ -= weight(node);
  held_ += weight(node);
}

bool Component::unlock(NodeIndex i, const Node& node) {
  Side& side = sides_[i];
  PANDO_CHECK(side.locks > 0, "unlock of a component of node {}, which is not locked", i);
  if (--side.locks != 0) return false;
  held_ -= weight(node);
  evictable_ += weight(node);
  return true;
}

}  // namespace pando
