// SPDX-License-Identifier: Apache-2.0
// Walking, splitting, growing and shrinking of the radix tree.
#include "index/tree.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bulk.h"
#include "base/check.h"
#include "base/page_hash.h"
#include "base/random.h"
#include "index/broken.h"
#include "index/compare.h"

namespace pando {
namespace {

std::uint32_t fold(std::uint64_t hash) { return static_cast<std::uint32_t>(hash ^ hash >> 32); }

}  // namespace

Tree::Tree(const Options& options)
    : shape_(options.edges.shape),
      edges_(options.edges, nodes_),
      branches_(nodes_, shape_.page_tokens()) {
  Random random(options.hash_seed);
  for (std::uint64_t& word : secret_) word = random.next();
}

// ---- Walking -----------------------------------------------------------------------------------

// With a secret made once: XXH3 derives one from a seed at every call, which takes longer than
// hashing a page.
std::uint32_t Tree::hash_namespace(std::string_view ns) const {
  return fold(XXH3_64bits_withSecret(ns.data(), ns.size(), secret_.data(), sizeof secret_));
}

std::uint32_t Tree::hash_page(NodeIndex parent, const Token* tokens) const {
  const std::uint64_t page = XXH3_64bits_withSecret(tokens, shape_.page_tokens() * sizeof(Token),
                                                    secret_.data(), sizeof secret_);
  return fold((page ^ parent) * 0x9E37'79B9'7F4A'7C15u);
}

NodeIndex Tree::find_root(std::string_view ns, std::uint32_t hash) const {
  return children_.find(
      hash, [&](NodeIndex i) { return nodes_[i].is_root() && nodes_[i].info->name == ns; });
}

std::size_t Tree::agreeing_pages(const Token* a, const Token* b, std::size_t max_pages) const {
  const std::size_t same = common_prefix(a, b, max_pages * shape_.page_size + shape_.overlap);
  return same <= shape_.overlap ? 0 : (same - shape_.overlap) / shape_.page_size;
}

Tree::Cursor Tree::descend(const Key& key, SlotId* out) const {
  const Cursor root{find_root(key.ns, hash_namespace(key.ns)), 0, 0};
  return root.node == kNoNode ? root : descend(root, key, out);
}

Tree::Cursor Tree::descend_behind(NodeIndex node, const Key& key) const {
  return descend(end_of(node), key, nullptr);
}

Tree::Cursor Tree::descend(Cursor cursor, const Key& key, SlotId* out) const {
  const std::size_t page_size = shape_.page_size;
  const std::size_t num_key_pages = shape_.num_pages(key);
  while (cursor.pages < num_key_pages && cursor.pages_in_node == nodes_[cursor.node].num_pages) {
    const Token* tokens = key.tokens.data() + cursor.pages * page_size;
    std::size_t agree = 0;
    const NodeIndex child = children_.find(hash_page(cursor.node, tokens), [&](NodeIndex i) {
      const Node& node = nodes_[i];
      if (node.parent != cursor.node) return false;
      agree = agreeing_pages(node.tokens, tokens,
                             std::min<std::size_t>(node.num_pages, num_key_pages - cursor.pages));
      return agree > 0;
    });
    if (child == kNoNode) break;
    if (out != nullptr && nodes_[child].on_device())
      expand_pages(nodes_[child].pages, agree, page_size, out + cursor.pages * page_size);
    cursor.node = child;
    cursor.pages_in_node = static_cast<std::uint32_t>(agree);
    cursor.pages += agree;
  }
  return cursor;
}

Tree::NearestPage Tree::nearest_page(const Key& key, const Cursor& cursor) const {
  const std::size_t begin = cursor.pages * shape_.page_size;
  if (cursor.node == kNoNode || begin == shape_.num_units(key)) return {};
  const Token* tokens = key.tokens.data() + begin;
  const std::size_t max_tokens =
      std::min(shape_.num_units(key) - begin, shape_.page_size) + shape_.overlap;
  NearestPage nearest{cursor.node, cursor.pages_in_node, 0};
  const Node& node = nodes_[cursor.node];
  if (nearest.page_in_node < node.num_pages) {
    const Token* page = node.tokens + nearest.page_in_node * shape_.page_size;
    nearest.length = common_prefix(page, tokens, max_tokens);
  } else {
    const BranchIndex::Longest longest = branches_.longest(cursor.node, tokens, max_tokens);
    nearest = {longest.child, 0, longest.length};
  }
  if (nearest.length <= shape_.overlap) return {};
  nearest.length -= shape_.overlap;
  return nearest;
}

bool Tree::is_on_path(NodeIndex node, NodeIndex end) const {
  while (nodes_[end].end_pages > nodes_[node].end_pages) end = nodes_[end].parent;
  return node == end;
}

// ---- Growing -----------------------------------------------------------------------------------

NodeIndex Tree::add_root(std::string_view ns) {
  const NodeIndex index = nodes_.alloc();
  Node& node = nodes_[index];
  node.info = std::make_unique<NamespaceInfo>(
      NamespaceInfo{std::string(ns), edges_.with_hashes() ? chain_start(ns) : std::nullopt});
  node.hash = hash_namespace(ns);
  children_.insert(node.hash, index);
  return index;
}

NodeIndex Tree::split(NodeIndex lower_index, std::uint32_t at_page) {
  const NodeIndex upper_index = nodes_.alloc();
  Node& upper = nodes_[upper_index];
  Node& lower = nodes_[lower_index];
  children_.erase(lower.hash, lower_index);

  upper.hash = lower.hash;
  upper.parent = lower.parent;
  upper.num_children = 1;
  upper.device_children = lower.on_device() ? 1 : 0;
  upper.end_pages = lower.begin_pages() + at_page;
  edges_.split(upper, lower, at_page);
  branches_.replace(lower_index, upper_index);
  upper.children = lower_index;

  lower.parent = upper_index;
  lower.hash = hash_page(upper_index, lower.tokens);
  children_.insert(upper.hash, upper_index);
  children_.insert(lower.hash, lower_index);
  if (on_split) on_split(upper_index, lower_index);
  return upper_index;
}

NodeIndex Tree::add_leaf(NodeIndex parent_index, const Token* tokens, std::uint32_t num_pages,
                         const std::uint32_t* pages) {
  const NodeIndex index = nodes_.alloc();
  Node& node = nodes_[index];
  Node& parent = nodes_[parent_index];
  node.parent = parent_index;
  edges_.create(node, tokens, num_pages, pages);
  node.hash = hash_page(parent_index, tokens);
  node.end_pages = parent.end_pages + num_pages;
  children_.insert(node.hash, index);
  branches_.insert(index);
  ++parent.num_children;
  if (node.on_device()) ++parent.device_children;
  return index;
}

// ---- Shrinking ---------------------------------------------------------------------------------

NodeIndex Tree::remove_leaf(NodeIndex index) {
  const Node& node = nodes_[index];
  const NodeIndex parent = node.parent;
  if (node.cut_top) {
    --num_cut_off_;
    if (nodes_[parent].is_root()) --nodes_[parent].locks;
  } else {
    children_.erase(node.hash, index);
    branches_.erase(index);
    --nodes_[parent].num_children;
    if (node.on_device()) --nodes_[parent].device_children;
  }
  edges_.release(index);
  nodes_.free(index);
  if (!nodes_[parent].is_root()) return parent;
  drop_root_if_empty(parent);
  return kNoNode;
}

void Tree::drop_root_if_empty(NodeIndex root) {
  if (nodes_[root].num_children != 0 || nodes_[root].locks != 0) return;
  children_.erase(nodes_[root].hash, root);
  nodes_.free(root);
}

void Tree::trim(NodeIndex leaf, std::uint32_t keep_pages) {
  nodes_[leaf].end_pages -= nodes_[leaf].num_pages - keep_pages;
  edges_.trim(leaf, keep_pages);
  nodes_.renew(leaf);
}

NodeIndex Tree::join_child(NodeIndex upper_index) {
  const Node& upper = nodes_[upper_index];
  PANDO_CHECK(!edges_.with_hashes() && upper.num_children == 1,
              "node {} with {} children cannot join them", upper_index, upper.num_children);
  const NodeIndex lower_index = upper.children;
  Node& lower = nodes_[lower_index];
  if (!edges_.can_join(upper, lower)) return kNoNode;
  children_.erase(upper.hash, upper_index);
  children_.erase(lower.hash, lower_index);
  branches_.replace(upper_index, lower_index);
  lower.hash = upper.hash;
  lower.parent = upper.parent;
  children_.insert(lower.hash, lower_index);
  edges_.join(upper_index, lower);
  nodes_.free(upper_index);
  return lower_index;
}

void Tree::cut(NodeIndex index) {
  Node& node = nodes_[index];
  Node& parent = nodes_[node.parent];
  children_.erase(node.hash, index);
  branches_.erase(index);
  --parent.num_children;
  if (node.on_device()) --parent.device_children;
  node.cut_top = true;
  ++num_cut_off_;
  if (parent.is_root()) ++parent.locks;
}

// ---- Reading -----------------------------------------------------------------------------------

// By namespace, so that what is printed depends on the tree alone.
std::vector<NodeIndex> Tree::roots() const {
  std::vector<NodeIndex> found;
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    if (nodes_[i].is_root()) found.push_back(i);
  }
  std::sort(found.begin(), found.end(), [this](NodeIndex a, NodeIndex b) {
    return nodes_[a].info->name < nodes_[b].info->name;
  });
  return found;
}

std::vector<std::string_view> Tree::namespaces(std::size_t max) const {
  std::vector<std::string_view> names;
  for (const NodeIndex i : roots()) {
    if (names.size() < max) names.push_back(nodes_[i].info->name);
  }
  return names;
}

const std::string& Tree::namespace_of(NodeIndex node) const {
  while (!nodes_[node].is_root()) node = nodes_[node].parent;
  return nodes_[node].info->name;
}

std::vector<NodeIndex> Tree::below(NodeIndex node) const {
  std::vector<NodeIndex> found;
  const auto add_children = [&](NodeIndex i) {
    branches_.for_each_child(i, [&](NodeIndex child) { found.push_back(child); });
  };
  add_children(node);
  for (std::size_t at = 0; at < found.size(); ++at) add_children(found[at]);
  return found;
}

void Tree::keep_hashes() {
  if (edges_.with_hashes()) return;
  edges_.keep_hashes();
  for_each_in_order([&](NodeIndex i) {
    Node& node = nodes_[i];
    if (node.is_root()) {
      node.info->chain_start = chain_start(node.info->name);
    } else {
      edges_.add_hashes(node);
    }
  });
}

std::size_t Tree::memory_bytes() const {
  return nodes_.memory_bytes() + edges_.memory_bytes() + children_.memory_bytes() +
         branches_.memory_bytes();
}

// ---- Proving -----------------------------------------------------------------------------------

// One node against its parent, its children and the child table.
Status Tree::check_node(NodeIndex index) const {
  const Node& node = nodes_[index];
  std::size_t children = 0;
  std::size_t device_children = 0;
  const Node* previous = nullptr;
  Status status;
  branches_.for_each_child(index, [&](NodeIndex c) {
    const Node& child = nodes_[c];
    ++children;
    device_children += child.on_device() ? 1 : 0;
    if (child.parent != index) status = broken("node {} is not under its parent {}", c, index);
    const std::size_t n = shape_.page_tokens();
    if (previous != nullptr && !std::lexicographical_compare(previous->tokens, previous->tokens + n,
                                                             child.tokens, child.tokens + n))
      status = broken("children of node {} out of order at {}", index, c);
    previous = &child;
  });
  if (!status) return status;
  if (children != node.num_children || device_children != node.device_children)
    return broken("node {} counts {} children, {} on the device; has {} and {}", index,
                  node.num_children, node.device_children, children, device_children);
  if (node.is_root() ? children + node.locks == 0 : node.num_pages == 0)
    return broken("node {} is empty", index);
  if (!node.cut_top && children_.find(node.hash, [&](NodeIndex i) { return i == index; }) != index)
    return broken("node {} is not in the child table", index);
  if (node.is_root()) return {};
  if (node.end_pages != nodes_[node.parent].end_pages + node.num_pages)
    return broken("node {} ends at page {}, its parent at {}", index, node.end_pages,
                  nodes_[node.parent].end_pages);
  if (node.hash != hash_page(node.parent, node.tokens))
    return broken("node {} hash is stale", index);
  return {};
}

Status Tree::check() const {
  std::size_t live = 0;
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    if (!nodes_[i].live) continue;
    ++live;
    if (Status s = check_node(i); !s) return s;
  }
  if (live != nodes_.num_live() || live != children_.size() + num_cut_off_)
    return broken("{} nodes live, slab counts {}, child table {}, {} cut off", live,
                  nodes_.num_live(), children_.size(), num_cut_off_);
  return edges_.check();
}

}  // namespace pando
