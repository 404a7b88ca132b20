// SPDX-License-Identifier: Apache-2.0
// Bookkeeping of components; see the header.
#include "index/component.h"

#include "base/check.h"

namespace pando {

void Component::add(NodeIndex i, const Node& node, StateSlot snapshot) {
  Record& record = records_[i];
  record.present = true;
  record.snapshot = snapshot;
  shelf_.add(node.owner, weight(node), /*evictable=*/true);
}

void Component::drop(NodeIndex i, const Node& node) {
  PANDO_CHECK(records_[i].locks == 0, "node {} loses what {} leases hold", i, records_[i].locks);
  leave(i, node);
  records_[i].present = false;
  shelf_.remove(node.owner, weight(node), /*evictable=*/true);
}

void Component::place(NodeIndex i, const Node& node, const EvictionKey& key) {
  Record& record = records_[i];
  if (record.in_order && record.key == key) return;
  leave(i, node);
  if (!record.present || record.locks > 0) return;
  record.key = key;
  record.in_order = true;
  shelf_.insert(i, node, key);
}

void Component::leave(NodeIndex i, const Node& node) {
  Record& record = records_[i];
  if (!record.in_order) return;
  shelf_.erase(i, node, record.key);
  record.in_order = false;
}

void Component::split(NodeIndex upper, NodeIndex lower) {
  records_[upper] = records_[lower];
  records_[upper].in_order = false;
}

void Component::lock(NodeIndex i, const Node& node) {
  Record& record = records_[i];
  PANDO_CHECK(record.present, "lock of a component that node {} has lost", i);
  if (record.locks++ != 0) return;
  leave(i, node);
  shelf_.hold(node.owner, weight(node));
}

bool Component::unlock(NodeIndex i, const Node& node) {
  Record& record = records_[i];
  PANDO_CHECK(record.locks > 0, "unlock of a component of node {}, which is not locked", i);
  if (--record.locks != 0) return false;
  shelf_.release(node.owner, weight(node));
  return true;
}

void Component::move(NodeIndex i, const Node& node, OwnerId to) {
  if (!records_[i].present) return;
  const bool evictable = records_[i].locks == 0;
  shelf_.remove(node.owner, weight(node), evictable);
  shelf_.add(to, weight(node), evictable);
}

Components::Components(const Options& options, const HazardIndex* hazard) {
  if (options.window) window.emplace(Component::Weight::pages, hazard);
  if (options.state) state.emplace(Component::Weight::one, hazard);
  if (options.host && window) host_window.emplace(Component::Weight::pages, hazard);
  if (options.host && state) host_state.emplace(Component::Weight::one, hazard);
}

}  // namespace pando
