// SPDX-License-Identifier: Apache-2.0
// How much of a walk can be used: where all components agree, where the device's part ends, which
// page agrees in part. Reads Tree and Residency and changes nothing.
//
// Costs: O(nodes of the path); valid_end() looks no further up than the window reaches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/node.h"
#include "index/residency.h"
#include "index/tree.h"
#include "pando/types.h"

namespace pando {

class Matcher {
 public:
  /// What it reads; all must outlive it.
  struct Shared {
    const Tree& tree;
    const Components& components;
    const Shelves& shelves;
    const Residency& residency;
  };
  /// `window_pages`: as much of a window as a match needs.
  Matcher(const Shared& shared, std::size_t window_pages)
      : shared_(shared), nodes_(shared.tree.nodes()), window_pages_(window_pages) {}

  /// What a walk may count on: the device alone, or the host too.
  enum class Reach { device, host };
  /// The longest part of a walk within reach on whose end all components agree: the window is there
  /// unbroken for long enough or back to the start, and there is a snapshot.
  Tree::Cursor valid_end(const Tree::Cursor& cursor, Reach reach, bool with_state = true) const;
  bool is_valid_end(NodeIndex node, Reach reach) const {
    return valid_end(shared_.tree.end_of(node), reach).pages == nodes_[node].end_pages;
  }
  /// The part of a walk that is on the device, whatever its components.
  Tree::Cursor device_end(Tree::Cursor cursor) const;

  /// Beyond the cursor, inside the next page: which node of the device agrees longest, and for how
  /// many tokens.
  struct Partial {
    NodeIndex node = kNoNode;  // the page is its first one once the tree is split at the cursor
    std::uint32_t page = 0;
    std::size_t length = 0;
  };
  Partial partial(const Key& key, const Tree::Cursor& cursor) const;

  /// Whether the window is there from `from_page` to the end of a node.
  bool has_window(NodeIndex end, std::uint32_t from_page) const;
  /// Whether the path could leave the device and lose nothing that its end needs.
  bool is_on_host(NodeIndex end) const;
  std::size_t window_pages() const { return window_pages_; }

 private:
  bool window_in_reach(NodeIndex i, Reach reach) const {
    return shared_.residency.has_window(i) ||
           (reach == Reach::host && shared_.residency.has_host_window(i));
  }
  bool snapshot_in_reach(NodeIndex i, Reach reach) const {
    return shared_.residency.has_snapshot(i) ||
           (reach == Reach::host && shared_.residency.has_host_snapshot(i));
  }

  const Shared shared_;
  const NodeSlab& nodes_;
  const std::size_t window_pages_;
};

}  // namespace pando
