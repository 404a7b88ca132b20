// SPDX-License-Identifier: Apache-2.0
// What is written along the edges of the radix tree: tokens, device pages, and, where wanted, page
// hashes, names and host pages. Nodes are slices of counted segments; Edges makes, cuts, joins and
// shrinks them. Tree is the only one who calls what changes an edge's length.
//
// Invariants (check() proves them): a segment counts the nodes on it and the pages that they cover;
// a slice that does not begin its segment continues its parent's; at least half of a segment is
// covered; with hashes, every page has that of its chain.
// Writes of a node: segment, offset_pages, num_pages, tokens, pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "index/node.h"
#include "index/page_shape.h"
#include "index/segment.h"
#include "pando/result.h"

namespace pando {

class Edges {
 public:
  struct Options {
    PageShape shape = {};
    bool numbered = true;  // pages have numbers; without, only tokens are kept
    bool named = false;    // and names of 64 bits, for a policy that learns
    bool window = false;   // host pages are two each: the page and its window
    bool hashes = false;
  };
  /// `nodes` must outlive it.
  Edges(const Options& options, NodeSlab& nodes);
  ~Edges();
  Edges(const Edges&) = delete;
  Edges& operator=(const Edges&) = delete;

  /// Writes the edge of a node that has its parent: on the device with `pages`, or where pages have
  /// no numbers; otherwise not on the device.
  void create(Node& node, const Token* tokens, std::uint32_t num_pages, const std::uint32_t* pages);
  /// `upper`, which has no edge yet, gets the first pages of `lower`.
  void split(Node& upper, Node& lower, std::uint32_t at_page);
  /// Whether join() can: not where the child's segment goes on below it and `upper` has another.
  bool can_join(const Node& upper, const Node& lower) const {
    return upper.segment == lower.segment || lower.segment->refs == 1;
  }
  /// `lower`, the only child, gets the edge of `upper` in front of its own. O(1) in one segment.
  void join(NodeIndex upper, Node& lower);
  /// A leaf keeps its first pages.
  void trim(NodeIndex leaf, std::uint32_t keep_pages);
  /// A leaf gives up its edge.
  void release(NodeIndex leaf);

  bool numbered() const { return numbered_; }
  bool with_hashes() const { return with_hashes_; }
  /// From now on new edges have hashes; the caller adds those of the others, from the root down.
  void keep_hashes() { with_hashes_ = true; }
  void add_hashes(const Node& node);
  const PageHash* hashes(const Node& node) const {
    return node.segment->hashes.get() + node.offset_pages;
  }
  /// The hash of the page before `node`'s first; nullptr at a chain's start.
  const PageHash* parent_hash(const Node& node) const;

  std::span<std::uint64_t> names(const Node& node) const {
    return {segments_.names(node.segment) + node.offset_pages, node.num_pages};
  }

  /// Makes room for the host pages of all that is on the node's segment.
  void add_host(const Node& node) { segments_.add_host(node.segment); }
  std::uint32_t* host_pages(const Node& node) const {
    return node.segment->host.get() + node.offset_pages;
  }
  std::uint32_t* host_window_pages(const Node& node) const {
    return host_pages(node) + node.segment->num_pages;
  }

  std::size_t num_tokens(const Node& node) const { return segments_.num_tokens(node.num_pages); }
  std::size_t memory_bytes() const { return segments_.memory_bytes(); }
  Status check() const;

 private:
  void set_slice(Node& node, Segment* segment, std::uint32_t offset, std::uint32_t num_pages,
                 bool on_device);
  Segment* concatenate(const Node& upper, const Node& lower);
  void shrink_segment(NodeIndex last_holder);

  NodeSlab& nodes_;
  const PageShape shape_;
  const bool numbered_;
  const bool named_;
  const bool window_;
  bool with_hashes_;
  SegmentStore segments_;
};

// The last slice of its segment: nobody is behind it.
inline void Edges::release(NodeIndex leaf) {
  const Node& node = nodes_[leaf];
  Segment* segment = node.segment;
  segment->live_pages -= node.num_pages;
  const bool shared = segment->refs > 1;  // then the parent holds what is before
  const bool mostly_dead = segment->live_pages * 2 < segment->num_pages;
  segments_.release(segment);
  if (shared && mostly_dead) shrink_segment(node.parent);
}

}  // namespace pando
