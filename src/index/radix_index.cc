// SPDX-License-Identifier: Apache-2.0
// Walking, splitting, growing, locking and evicting. Proofs and pictures are in radix_check.cc.
#include "index/radix_index.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bulk.h"
#include "base/check.h"
#include "base/page_hash.h"
#include "base/random.h"
#include "index/compare.h"

namespace pando {
namespace {

std::uint32_t fold(std::uint64_t hash) { return static_cast<std::uint32_t>(hash ^ hash >> 32); }

}  // namespace

RadixIndex::RadixIndex(const Options& options, std::unique_ptr<EvictionPolicy> policy)
    : page_size_(options.page_size),
      overlap_(options.bigram ? 1 : 0),
      with_hashes_(options.hashes),
      policy_(std::move(policy)),
      segments_(page_size_, overlap_),
      branches_(nodes_, page_size_ + overlap_) {
  Random random(options.hash_seed);
  for (std::uint64_t& word : secret_) word = random.next();
}

RadixIndex::~RadixIndex() {
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    if (nodes_[i].live && !nodes_[i].is_root()) segments_.release(nodes_[i].segment);
  }
}

// ---- Walking -----------------------------------------------------------------------------------

// With a secret made once: XXH3 derives one from a seed at every call, which takes longer than
// hashing a page.
std::uint32_t RadixIndex::hash_namespace(std::string_view ns) const {
  return fold(XXH3_64bits_withSecret(ns.data(), ns.size(), secret_.data(), sizeof secret_));
}

std::uint32_t RadixIndex::hash_page(NodeIndex parent, const Token* tokens) const {
  const std::uint64_t page = XXH3_64bits_withSecret(tokens, (page_size_ + overlap_) * sizeof(Token),
                                                    secret_.data(), sizeof secret_);
  return fold((page ^ parent) * 0x9E37'79B9'7F4A'7C15u);
}

NodeIndex RadixIndex::find_root(std::string_view ns, std::uint32_t hash) const {
  return children_.find(
      hash, [&](NodeIndex i) { return nodes_[i].is_root() && nodes_[i].info->name == ns; });
}

std::size_t RadixIndex::agreeing_pages(const Token* a, const Token* b,
                                       std::size_t max_pages) const {
  const std::size_t same = common_prefix(a, b, max_pages * page_size_ + overlap_);
  return same <= overlap_ ? 0 : (same - overlap_) / page_size_;
}

RadixIndex::Cursor RadixIndex::descend(const Key& key, SlotId* out) const {
  Cursor cursor{find_root(key.ns, hash_namespace(key.ns)), 0, 0};
  if (cursor.node == kNoNode) return cursor;
  const std::size_t num_key_pages = num_pages(key);
  while (cursor.pages < num_key_pages && cursor.pages_in_node == nodes_[cursor.node].num_pages) {
    const Token* tokens = key.tokens.data() + cursor.pages * page_size_;
    std::size_t agree = 0;
    const NodeIndex child = children_.find(hash_page(cursor.node, tokens), [&](NodeIndex i) {
      const Node& node = nodes_[i];
      if (node.parent != cursor.node) return false;
      agree = agreeing_pages(node.tokens, tokens,
                             std::min<std::size_t>(node.num_pages, num_key_pages - cursor.pages));
      return agree > 0;
    });
    if (child == kNoNode) break;
    if (out != nullptr)
      expand_pages(nodes_[child].pages, agree, page_size_, out + cursor.pages * page_size_);
    cursor.node = child;
    cursor.pages_in_node = static_cast<std::uint32_t>(agree);
    cursor.pages += agree;
  }
  return cursor;
}

RadixIndex::Partial RadixIndex::partial(const Key& key, const Cursor& cursor) const {
  const std::size_t begin = cursor.pages * page_size_;
  if (cursor.node == kNoNode || begin == num_units(key)) return {};
  const Token* tokens = key.tokens.data() + begin;
  const std::size_t max_tokens = std::min(num_units(key) - begin, page_size_) + overlap_;
  NodeIndex at = cursor.node;
  std::uint32_t page = cursor.pages_in_node;
  std::size_t same = 0;
  if (page < nodes_[at].num_pages) {
    same = common_prefix(nodes_[at].tokens + page * page_size_, tokens, max_tokens);
  } else {
    const BranchIndex::Longest longest = branches_.longest(at, tokens, max_tokens);
    at = longest.child;
    page = 0;
    same = longest.length;
  }
  if (same <= overlap_) return {};
  return {at, nodes_[at].pages[page], same - overlap_};
}

// ---- Growing -----------------------------------------------------------------------------------

NodeIndex RadixIndex::root(std::string_view ns) {
  const std::uint32_t hash = hash_namespace(ns);
  if (const NodeIndex known = find_root(ns, hash)) return known;
  const NodeIndex index = nodes_.alloc();
  Node& node = nodes_[index];
  node.info = std::make_unique<NamespaceInfo>(
      NamespaceInfo{std::string(ns), with_hashes_ ? chain_start(ns) : std::nullopt});
  node.hash = hash;
  children_.insert(node.hash, index);
  return index;
}

void RadixIndex::set_slice(Node& node, Segment* segment, std::uint32_t offset,
                           std::uint32_t num_pages) {
  node.segment = segment;
  node.offset_pages = offset;
  node.num_pages = num_pages;
  node.tokens = segment->tokens() + offset * page_size_;
  node.pages = segment->pages() + offset;
}

NodeIndex RadixIndex::settle(const Cursor& cursor) {
  if (cursor.pages_in_node == nodes_[cursor.node].num_pages) return cursor.node;
  return split(cursor.node, cursor.pages_in_node);
}

NodeIndex RadixIndex::split(NodeIndex lower_index, std::uint32_t at_page) {
  const NodeIndex upper_index = nodes_.alloc();
  Node& upper = nodes_[upper_index];
  Node& lower = nodes_[lower_index];
  const bool in_order = lower.in_order;
  if (in_order) leave_order(lower_index);  // a policy may look at the length
  children_.erase(lower.hash, lower_index);

  upper.hash = lower.hash;
  upper.parent = lower.parent;
  upper.locks = lower.locks > 0 ? 1 : 0;
  upper.last_access = lower.last_access;
  upper.created = lower.created;
  upper.hits = lower.hits;
  upper.priority = lower.priority;
  upper.num_children = 1;
  ++lower.segment->refs;
  set_slice(upper, lower.segment, lower.offset_pages, at_page);
  branches_.replace(lower_index, upper_index);
  upper.children = lower_index;

  set_slice(lower, lower.segment, lower.offset_pages + at_page, lower.num_pages - at_page);
  lower.parent = upper_index;
  lower.hash = hash_page(upper_index, lower.tokens);
  children_.insert(upper.hash, upper_index);
  children_.insert(lower.hash, lower_index);
  if (in_order) enter_order(lower_index);
  return upper_index;
}

NodeIndex RadixIndex::add_leaf(NodeIndex parent_index, const Token* tokens,
                               std::span<const std::uint32_t> pages) {
  const auto num_pages = static_cast<std::uint32_t>(pages.size());
  const NodeIndex index = nodes_.alloc();
  Node& node = nodes_[index];
  Segment* segment = segments_.create(num_pages, with_hashes_);
  std::copy_n(tokens, segments_.num_tokens(num_pages), segment->tokens());
  std::copy(pages.begin(), pages.end(), segment->pages());
  set_slice(node, segment, 0, num_pages);
  node.parent = parent_index;
  node.hash = hash_page(parent_index, tokens);
  if (with_hashes_)
    hash_page_chain(parent_hash(node), tokens, num_pages, page_size_, overlap_ != 0,
                    segment->hashes.get());
  children_.insert(node.hash, index);
  branches_.insert(index);
  Node& parent = nodes_[parent_index];
  if (parent.in_order) leave_order(parent_index);
  ++parent.num_children;
  evictable_pages_ += num_pages;
  return index;
}

void RadixIndex::touch(NodeIndex end) {
  ++now_;
  if (nodes_[end].in_order) leave_order(end);
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) nodes_[i].last_access = now_;
  enter_order(end);
}

void RadixIndex::touch_insert(NodeIndex end, std::int32_t priority, bool chunked) {
  ++now_;
  if (nodes_[end].in_order) leave_order(end);
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    if (node.created == 0) {  // the leaf this insert added
      node.created = now_;
      node.priority = priority;
    }
    node.last_access = now_;
    node.priority = std::max(node.priority, priority);
    node.hits += chunked ? 0 : 1;
  }
  enter_order(end);
}

// ---- Locks and order ---------------------------------------------------------------------------

void RadixIndex::lock(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    if (node.locks++ != 0) return;  // everything above is locked already
    evictable_pages_ -= node.num_pages;
    protected_pages_ += node.num_pages;
    if (node.in_order) leave_order(i);
  }
}

void RadixIndex::unlock(NodeIndex index) {
  for (NodeIndex i = index; !nodes_[i].is_root(); i = nodes_[i].parent) {
    Node& node = nodes_[i];
    PANDO_CHECK(node.locks > 0, "unlock of node {}, which is not locked", i);
    if (--node.locks != 0) return;
    protected_pages_ -= node.num_pages;
    evictable_pages_ += node.num_pages;
    enter_order(i);
  }
}

NodeStats RadixIndex::stats(const Node& node) const {
  return {.last_access = node.last_access,
          .created = node.created,
          .hits = node.hits,
          .priority = node.priority,
          .num_tokens = static_cast<std::uint32_t>(node.num_pages * page_size_)};
}

void RadixIndex::enter_order(NodeIndex index) {
  Node& node = nodes_[index];
  if (!node.is_candidate()) return;
  node.order_key = policy_->key(stats(node));
  node.in_order = true;
  order_.insert(node.order_key, index);
}

void RadixIndex::leave_order(NodeIndex index) {
  Node& node = nodes_[index];
  order_.erase(node.order_key, index);
  node.in_order = false;
}

// ---- Evicting ----------------------------------------------------------------------------------

// A victim is cold by definition: half a dozen cache lines that have not been touched for long. The
// order tells who is next, so they are fetched while earlier victims leave, across calls: first the
// node, then what it points at. (EvictOne at a million leaves: 590 ns without, 330 ns with.)
// Part of evict() by force: gcc drops calls of functions that do nothing but prefetch.
[[gnu::always_inline]] inline void RadixIndex::prefetch_victims() {
  __builtin_prefetch(order_.line_ahead());
  if (const NodeIndex i = order_.peek(12)) {
    const auto* lines = reinterpret_cast<const char*>(&nodes_[i]);
    __builtin_prefetch(lines);
    __builtin_prefetch(lines + kCacheLine);
  }
  if (const NodeIndex i = order_.peek(8)) {
    const Node& node = nodes_[i];
    __builtin_prefetch(node.segment);
    __builtin_prefetch(node.pages);
    __builtin_prefetch(&nodes_[node.parent]);
    __builtin_prefetch(children_.line_of(node.hash));
    __builtin_prefetch(branches_.line_of(node));
  }
  if (const NodeIndex i = order_.peek(4)) __builtin_prefetch(branches_.next_line_of(nodes_[i]));
}

RadixIndex::Evicted RadixIndex::evict(std::size_t num_pages, bool whole_nodes,
                                      std::vector<PageId>& out, const OnRemoved& on_removed) {
  Evicted evicted;
  while (evicted.pages < num_pages && !order_.empty()) {
    const NodeIndex index = order_.front();
    prefetch_victims();
    const Node& node = nodes_[index];
    const std::size_t missing = num_pages - evicted.pages;
    const bool whole = whole_nodes || node.num_pages <= missing;
    const std::uint32_t keep = whole ? 0 : node.num_pages - static_cast<std::uint32_t>(missing);
    const std::uint32_t gone = node.num_pages - keep;
    for (std::uint32_t i = keep; i < node.num_pages; ++i) out.push_back(PageId{node.pages[i]});
    if (on_removed) on_removed(node, keep, gone);
    evictable_pages_ -= gone;
    evicted.pages += gone;
    evicted.nodes += whole ? 1 : 0;
    leave_order(index);
    if (whole) {
      remove_leaf(index);
    } else {
      trim(index, keep);
    }
  }
  return evicted;
}

void RadixIndex::remove_leaf(NodeIndex index) {
  Node& node = nodes_[index];
  const NodeIndex parent = node.parent;
  Segment* segment = node.segment;
  children_.erase(node.hash, index);
  branches_.erase(index);
  --nodes_[parent].num_children;
  segment->live_pages -= node.num_pages;
  if (segment->refs > 1) {  // shared, then the parent holds what is before
    const bool mostly_dead = segment->live_pages * 2 < segment->num_pages;
    segments_.release(segment);
    if (mostly_dead) shrink_segment(parent);
  } else {
    segments_.release(segment);
  }
  nodes_.free(index);
  if (nodes_[parent].is_root()) {
    drop_root_if_empty(parent);
  } else {
    enter_order(parent);
  }
}

void RadixIndex::trim(NodeIndex index, std::uint32_t keep_pages) {
  Node& node = nodes_[index];
  Segment* segment = node.segment;
  segment->live_pages -= node.num_pages - keep_pages;
  node.num_pages = keep_pages;
  if (segment->live_pages * 2 < segment->num_pages) shrink_segment(index);
  nodes_.renew(index);  // a handle names the end of a node, and this end has moved
  enter_order(index);
}

void RadixIndex::shrink_segment(NodeIndex last_holder) {
  Segment* old = nodes_[last_holder].segment;
  Segment* fresh = segments_.create(old->live_pages, old->hashes != nullptr);
  std::copy_n(old->tokens(), segments_.num_tokens(old->live_pages), fresh->tokens());
  std::copy_n(old->pages(), old->live_pages, fresh->pages());
  if (old->hashes) std::copy_n(old->hashes.get(), old->live_pages, fresh->hashes.get());
  fresh->refs = 0;
  bool last = false;
  for (NodeIndex i = last_holder; !last; i = nodes_[i].parent) {
    Node& node = nodes_[i];
    last = node.offset_pages == 0;
    set_slice(node, fresh, node.offset_pages, node.num_pages);
    ++fresh->refs;
    segments_.release(old);
  }
}

void RadixIndex::drop_root_if_empty(NodeIndex root) {
  if (nodes_[root].num_children != 0) return;
  children_.erase(nodes_[root].hash, root);
  nodes_.free(root);
}

const PageHash* RadixIndex::parent_hash(const Node& node) const {
  const Node& parent = nodes_[node.parent];
  if (!parent.is_root()) return hashes(parent) + parent.num_pages - 1;
  return parent.info->chain_start ? &*parent.info->chain_start : nullptr;
}

Sizes RadixIndex::sizes() const {
  return {evictable_pages_ * page_size_, protected_pages_ * page_size_,
          (evictable_pages_ + protected_pages_) * page_size_};
}

std::size_t RadixIndex::memory_bytes() const {
  return sizeof(*this) + nodes_.memory_bytes() + segments_.memory_bytes() +
         children_.memory_bytes() + branches_.memory_bytes() + order_.memory_bytes();
}

}  // namespace pando
