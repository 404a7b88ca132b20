// SPDX-License-Identifier: Apache-2.0
// Slices of segments: cut in two without a copy, joined, shrunk when more than half is dead.
#include "index/edges.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/page_hash.h"
#include "index/broken.h"

namespace pando {

Edges::Edges(const Options& options, NodeSlab& nodes)
    : nodes_(nodes),
      shape_(options.shape),
      numbered_(options.numbered),
      named_(options.named),
      window_(options.window),
      with_hashes_(options.hashes),
      segments_(shape_.page_size, shape_.overlap, options.window ? 2 : 1, options.numbered,
                options.named) {}

Edges::~Edges() {
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    if (nodes_[i].live && !nodes_[i].is_root()) segments_.release(nodes_[i].segment);
  }
}

void Edges::set_slice(Node& node, Segment* segment, std::uint32_t offset, std::uint32_t num_pages,
                      bool on_device) {
  node.segment = segment;
  node.offset_pages = offset;
  node.num_pages = num_pages;
  node.tokens = segment->tokens() + offset * shape_.page_size;
  node.pages = on_device ? segment->pages() + offset : nullptr;
}

void Edges::create(Node& node, const Token* tokens, std::uint32_t num_pages,
                   const std::uint32_t* pages) {
  Segment* segment = segments_.create(num_pages, with_hashes_);
  std::copy_n(tokens, segments_.num_tokens(num_pages), segment->tokens());
  if (pages != nullptr) std::copy_n(pages, num_pages, segment->pages());
  set_slice(node, segment, 0, num_pages, pages != nullptr || !numbered_);
  if (with_hashes_) add_hashes(node);
}

void Edges::split(Node& upper, Node& lower, std::uint32_t at_page) {
  ++lower.segment->refs;
  set_slice(upper, lower.segment, lower.offset_pages, at_page, lower.on_device());
  set_slice(lower, lower.segment, lower.offset_pages + at_page, lower.num_pages - at_page,
            lower.on_device());
}

// What is before the child in its segment is the upper node, or has to be put there.
void Edges::join(NodeIndex upper_index, Node& lower) {
  const Node& upper = nodes_[upper_index];
  const std::uint32_t num_pages = upper.num_pages + lower.num_pages;
  if (upper.segment == lower.segment) {
    set_slice(lower, upper.segment, upper.offset_pages, num_pages, true);
    segments_.release(upper.segment);
    return;
  }
  Segment* joined = concatenate(upper, lower);
  segments_.release(lower.segment);
  set_slice(lower, joined, 0, num_pages, true);
  release(upper_index);
}

Segment* Edges::concatenate(const Node& upper, const Node& lower) {
  Segment* joined = segments_.create(upper.num_pages + lower.num_pages, false);
  const std::size_t upper_tokens = upper.num_pages * shape_.page_size;
  std::copy_n(upper.tokens, upper_tokens, joined->tokens());
  std::copy_n(lower.tokens, segments_.num_tokens(lower.num_pages), joined->tokens() + upper_tokens);
  if (numbered_) {
    std::copy_n(upper.pages, upper.num_pages, joined->pages());
    std::copy_n(lower.pages, lower.num_pages, joined->pages() + upper.num_pages);
  }
  return joined;
}

void Edges::trim(NodeIndex leaf, std::uint32_t keep_pages) {
  Node& node = nodes_[leaf];
  Segment* segment = node.segment;
  segment->live_pages -= node.num_pages - keep_pages;
  node.num_pages = keep_pages;
  if (segment->live_pages * 2 < segment->num_pages) shrink_segment(leaf);
}

void Edges::shrink_segment(NodeIndex last_holder) {
  Segment* old = nodes_[last_holder].segment;
  Segment* fresh = segments_.create(old->live_pages, old->hashes != nullptr);
  std::copy_n(old->tokens(), segments_.num_tokens(old->live_pages), fresh->tokens());
  if (numbered_) std::copy_n(old->pages(), old->live_pages, fresh->pages());
  if (named_) std::copy_n(segments_.names(old), old->live_pages, segments_.names(fresh));
  if (old->hashes) std::copy_n(old->hashes.get(), old->live_pages, fresh->hashes.get());
  if (old->host) {
    segments_.add_host(fresh);
    std::copy_n(old->host.get(), old->live_pages, fresh->host.get());
    if (window_)
      std::copy_n(old->host.get() + old->num_pages, old->live_pages,
                  fresh->host.get() + fresh->num_pages);
  }
  fresh->refs = 0;
  bool last = false;
  for (NodeIndex i = last_holder; !last; i = nodes_[i].parent) {
    Node& node = nodes_[i];
    last = node.offset_pages == 0;
    set_slice(node, fresh, node.offset_pages, node.num_pages, node.on_device());
    ++fresh->refs;
    segments_.release(old);
  }
}

// ---- Hashes ------------------------------------------------------------------------------------

void Edges::add_hashes(const Node& node) {
  segments_.add_hashes(node.segment);
  hash_page_chain(parent_hash(node), node.tokens, node.num_pages, shape_.page_size,
                  shape_.overlap != 0, node.segment->hashes.get() + node.offset_pages);
}

const PageHash* Edges::parent_hash(const Node& node) const {
  const Node& parent = nodes_[node.parent];
  if (!parent.is_root()) return hashes(parent) + parent.num_pages - 1;
  return parent.info->chain_start ? &*parent.info->chain_start : nullptr;
}

// ---- Proving -----------------------------------------------------------------------------------

Status Edges::check() const {
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
    if (!with_hashes_) continue;
    std::vector<PageHash> expected(node.num_pages);
    hash_page_chain(parent_hash(node), node.tokens, node.num_pages, shape_.page_size,
                    shape_.overlap != 0, expected.data());
    if (!std::equal(expected.begin(), expected.end(), hashes(node)))
      return broken("node {} page hashes are wrong", i);
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

}  // namespace pando
