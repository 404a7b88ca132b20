// SPDX-License-Identifier: Apache-2.0
// From the end of a walk upwards to what of it can be used.
#include "index/matcher.h"

#include <algorithm>
#include <optional>

namespace pando {

// `best` is the deepest end that still may do, and `run` how much window is known to lie unbroken
// before it. A tombstone, or a node without a snapshot, makes the next end above it the one to try.
Tree::Cursor Matcher::valid_end(const Tree::Cursor& cursor, Reach reach, bool with_state) const {
  if (!shared_.shelves.places_path()) return cursor;
  const bool any_state = !shared_.components.state || !with_state;
  std::optional<Tree::Cursor> best;
  std::size_t run = 0;
  NodeIndex i = cursor.node;
  std::uint32_t n = cursor.pages_in_node;
  for (std::size_t end = cursor.pages; end > 0; n = nodes_[i].num_pages) {
    if ((reach == Reach::device && !nodes_[i].on_device()) || !window_in_reach(i, reach)) {
      best.reset();
    } else if (!best && (any_state || (n == nodes_[i].num_pages && snapshot_in_reach(i, reach)))) {
      best = Tree::Cursor{i, n, end};
      run = 0;
    }
    run += n;
    if (best && (!shared_.components.window || run >= window_pages_)) return *best;
    end -= n;
    i = nodes_[i].parent;
  }
  return best.value_or(Tree::Cursor{i, 0, 0});
}

Tree::Cursor Matcher::device_end(Tree::Cursor cursor) const {
  while (cursor.pages > 0 && !nodes_[cursor.node].on_device()) {
    cursor.pages -= cursor.pages_in_node;
    cursor.node = nodes_[cursor.node].parent;
    cursor.pages_in_node = nodes_[cursor.node].num_pages;
  }
  return cursor;
}

Matcher::Partial Matcher::partial(const Key& key, const Tree::Cursor& cursor) const {
  const Tree::NearestPage nearest = shared_.tree.nearest_page(key, cursor);
  if (nearest.node == kNoNode || !shared_.residency.has_window(nearest.node)) return {};
  const Node& node = nodes_[nearest.node];
  if (!node.on_device()) return {};
  return {nearest.node, node.pages[nearest.page_in_node], nearest.length};
}

bool Matcher::has_window(NodeIndex end, std::uint32_t from_page) const {
  NodeIndex i = end;
  while (nodes_[i].end_pages > from_page && shared_.residency.has_window(i)) i = nodes_[i].parent;
  return nodes_[i].end_pages <= from_page;
}

bool Matcher::is_on_host(NodeIndex end) const {
  if (shared_.components.state && !shared_.residency.has_host_snapshot(end)) return false;
  const std::size_t end_pages = nodes_[end].end_pages;
  const std::size_t window_from = end_pages - std::min(end_pages, window_pages_);
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (!nodes_[i].on_host) return false;
    if (shared_.components.window && nodes_[i].end_pages > window_from &&
        !shared_.residency.has_host_window(i))
      return false;
  }
  return true;
}

}  // namespace pando
