// SPDX-License-Identifier: Apache-2.0
// Nodes between tiers: getting a host copy, leaving the device for it, coming back, leaving the
// host.
#include "index/residency.h"

#include <algorithm>
#include <unordered_set>

#include "base/append.h"
#include "base/check.h"
#include "index/broken.h"

namespace pando {
namespace {

void store(std::span<const HostPageId> pages, std::uint32_t* to) {
  for (const HostPageId page : pages) *to++ = index_of(page);
}

std::span<const HostPageId> as_pages(const std::uint32_t* pages, std::size_t n) {
  static_assert(sizeof(HostPageId) == sizeof(std::uint32_t));
  return {reinterpret_cast<const HostPageId*>(pages), n};
}

constexpr StateSlot as_slot(HostPageId page) { return {.index = index_of(page), .pool = 1}; }

}  // namespace

std::span<const HostPageId> Residency::host_pages(const Node& node) const {
  return as_pages(tree_.edges().host_pages(node), node.num_pages);
}

std::span<const HostPageId> Residency::host_window_pages(const Node& node) const {
  return as_pages(tree_.edges().host_window_pages(node), node.num_pages);
}

// ---- Coming ------------------------------------------------------------------------------------

void Residency::attach_host(NodeIndex index, const HostExtent& copy) {
  Node& node = nodes_[index];
  Edges& edges = tree_.edges();
  edges.add_host(node);
  if (!copy.pages.empty()) {
    PANDO_CHECK(!node.on_host && copy.pages.size() == node.num_pages,
                "{} host pages for node {} of {} pages", copy.pages.size(), index, node.num_pages);
    store(copy.pages, edges.host_pages(node));
    shelves_.retire(index);
    node.on_host = true;
    shelves_.admit(index);
  }
  const bool held = node.host_locks > 0 || node.backing_up;
  if (!copy.window_pages.empty() && !has_host_window(index)) {
    store(copy.window_pages, edges.host_window_pages(node));
    components_.host_window->add(index, node);
    if (held) components_.host_window->lock(index, node);
  }
  if (copy.snapshot && !has_host_snapshot(index)) {
    components_.host_state->add(index, node, as_slot(*copy.snapshot));
    if (held) components_.host_state->lock(index, node);
  }
  shelves_.place_components(index);
}

void Residency::attach_device(NodeIndex index, std::span<const std::uint32_t> pages,
                              bool with_window) {
  Node& node = nodes_[index];
  PANDO_CHECK(!node.on_device() && pages.size() == node.num_pages,
              "{} device pages for node {} of {} pages", pages.size(), index, node.num_pages);
  shelves_.leave(node.parent);
  ++nodes_[node.parent].device_children;
  shelves_.retire(index);
  node.pages = node.segment->pages() + node.offset_pages;
  std::copy(pages.begin(), pages.end(), node.pages);
  shelves_.admit(index);
  if (components_.window && with_window) attach_window(index);
}

void Residency::attach_window(NodeIndex index, std::uint32_t first,
                              std::span<const std::uint32_t> pages) {
  if (first > 0) tree_.split(index, first);
  const Node& node = nodes_[index];
  std::copy(pages.begin(), pages.end(), node.pages);
  components_.window->add(index, node);
  shelves_.place_components(index);
}

void Residency::bury_head(NodeIndex leaf, std::uint32_t pages) {
  if (pages == 0) return;
  const NodeIndex head = tree_.split(leaf, pages);
  components_.window->drop(head, nodes_[head]);
}

// ---- Leaving the device ------------------------------------------------------------------------

void Residency::detach_device(NodeIndex index, Released& out, Evicted& evicted) {
  Node& node = nodes_[index];
  PANDO_CHECK(node.on_host && node.device_children == 0,
              "node {} leaves the device with {} children there{}", index, node.device_children,
              node.on_host ? "" : ", without a host copy");
  shelves_.retire(index);
  release_device(index, out, evicted);
  evicted.demoted_pages += node.num_pages;
  if (!node.backing_up) append(out.demoted_pages, host_pages(node));
  node.pages = nullptr;
  shelves_.admit(index);
  shelves_.leave(node.parent);
  --nodes_[node.parent].device_children;
  shelves_.enter(node.parent);
}

void Residency::detach_component(Tier tier, ComponentKind kind, NodeIndex index, Released& out,
                                 Evicted& evicted) {
  const Node& node = nodes_[index];
  if (kind == ComponentKind::state) {
    if (tier == Tier::device) return drop_snapshot(index, out, evicted);
    return drop_host_snapshot(index, out, evicted);
  }
  if (tier == Tier::device) {
    for (const PageId page : device_pages(node)) out.window_pages.push_back(page);
    evicted.window_pages += node.num_pages;
    return drop_window(index, out);
  }
  append(out.host_window_pages, host_window_pages(node));
  evicted.host_window_pages += node.num_pages;
  components_.host_window->drop(index, node);
}

void Residency::drop_window(NodeIndex index, Released& out) {
  const Node& node = nodes_[index];
  components_.window->drop(index, node);
  if (has_host_window(index) && !node.backing_up)
    append(out.demoted_window_pages, host_window_pages(node));
}

void Residency::drop_snapshot(NodeIndex index, Released& out, Evicted& evicted) {
  out.snapshots.push_back(snapshot(index));
  components_.state->drop(index, nodes_[index]);
  ++evicted.snapshots;
  if (has_host_snapshot(index) && !nodes_[index].backing_up)
    out.demoted_snapshots.push_back(host_snapshot(index));
}

// All that a node off the shelves has on the device.
void Residency::release_device(NodeIndex index, Released& out, Evicted& evicted) {
  release_device_tail(index, 0, out, evicted);
  if (components_.window && components_.window->has(index)) drop_window(index, out);
  if (has_snapshot(index)) drop_snapshot(index, out, evicted);
}

void Residency::release_device_tail(NodeIndex index, std::uint32_t keep, Released& out,
                                    Evicted& evicted) {
  const Node& node = nodes_[index];
  if (!node.on_device()) return;
  const std::uint32_t gone = node.num_pages - keep;
  const std::uint32_t end = tree_.edges().numbered() ? node.num_pages : keep;
  for (std::uint32_t i = keep; i < end; ++i) out.pages.push_back(PageId{node.pages[i]});
  if (on_removed) on_removed(Tier::device, node, keep, gone);
  evicted.pages += gone;
  if (!components_.window || !components_.window->has(index)) return;
  evicted.window_pages += gone;
  if (keep > 0) components_.window->trim(node, gone);
}

// ---- Leaving the host --------------------------------------------------------------------------

void Residency::detach_host(NodeIndex index, Released& out, Evicted& evicted) {
  shelves_.retire(index);
  release_host(index, out, evicted);
  shelves_.admit(index);
}

void Residency::drop_host_snapshot(NodeIndex index, Released& out, Evicted& evicted) {
  out.host_snapshots.push_back(host_snapshot(index));
  components_.host_state->drop(index, nodes_[index]);
  ++evicted.host_snapshots;
}

// All that a node off the shelves has on the host.
void Residency::release_host(NodeIndex index, Released& out, Evicted& evicted) {
  Node& node = nodes_[index];
  if (node.backing_up)
    components_.for_each_on_host(index, [&](Component& held) { held.unlock(index, node); });
  release_host_tail(index, 0, out, evicted);
  if (has_host_window(index)) components_.host_window->drop(index, node);
  if (has_host_snapshot(index)) drop_host_snapshot(index, out, evicted);
  node.on_host = false;
}

void Residency::release_host_tail(NodeIndex index, std::uint32_t keep, Released& out,
                                  Evicted& evicted) {
  const Node& node = nodes_[index];
  if (!node.on_host) return;
  const auto pages = host_pages(node).subspan(keep);
  append(out.host_pages, pages);
  evicted.host_pages += pages.size();
  if (on_removed) on_removed(Tier::host, node, keep, static_cast<std::uint32_t>(pages.size()));
  if (!has_host_window(index)) return;
  const auto windows = host_window_pages(node).subspan(keep);
  append(out.host_window_pages, windows);
  evicted.host_window_pages += windows.size();
  if (keep > 0) components_.host_window->trim(node, static_cast<std::uint32_t>(windows.size()));
}

void Residency::release(NodeIndex index, Released& out, Evicted& evicted) {
  release_device(index, out, evicted);
  if (nodes_[index].on_host) release_host(index, out, evicted);
}

void Residency::release_tail(NodeIndex index, std::uint32_t keep, Released& out, Evicted& evicted) {
  release_device_tail(index, keep, out, evicted);
  release_host_tail(index, keep, out, evicted);
}

// ---- Proving -----------------------------------------------------------------------------------

Status Residency::check() const {
  std::unordered_set<std::uint32_t> pages, slots;
  Status status;
  tree_.for_each_node([&](NodeIndex i, const Node& node) {
    const Node& parent = nodes_[node.parent];
    if (!node.on_device() && !node.on_host) status = broken("node {} is on no tier", i);
    if (node.on_device() && !parent.is_root() && !parent.on_device() && !node.cut_top)
      status = broken("node {} is on the device, its parent {} is not", i, node.parent);
    if (!shelves_.with_host() && (node.on_host || node.host_locks > 0))
      status = broken("node {} is on a host that is not there", i);
    if (!node.on_device() && (has_snapshot(i) || (components_.window && has_window(i))))
      status = broken("node {} has a component on the device, where it is not", i);
    if (!node.on_host && (has_host_window(i) || has_host_snapshot(i)))
      status = broken("node {} has a component on the host, where it is not", i);
    if (has_snapshot(i) && !slots.insert(snapshot(i).index).second)
      status =
          broken("state slot {} is in the tree twice, second at node {}", snapshot(i).index, i);
    if (!tree_.edges().numbered()) return;
    for (const PageId page : device_pages(node)) {
      if (!pages.insert(index_of(page)).second)
        status = broken("page {} is in the tree twice, second in node {}", index_of(page), i);
    }
  });
  return status;
}

}  // namespace pando
