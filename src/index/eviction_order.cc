// SPDX-License-Identifier: Apache-2.0
// The B+ tree behind EvictionOrder. Level 0 are leaves; a descent records the inner blocks it
// passes, so that splits and merges climb without parent pointers.
#include "index/eviction_order.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace pando {

namespace {
constexpr std::uint32_t kLeafRoom = 64;
constexpr std::uint32_t kInnerRoom = 32;

// The left one of two neighbours, of which `at` is one, that fit together; of n children.
template <typename Fits>
std::optional<std::uint32_t> neighbours(std::uint32_t at, std::uint32_t n, Fits fits) {
  if (at + 1 < n && fits(at)) return at;
  if (at > 0 && fits(at - 1)) return at - 1;
  return {};
}

}  // namespace

// Entries sit in [begin, end): taking the smallest moves nothing.
struct EvictionOrder::Leaf {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  Leaf* previous = nullptr;
  Leaf* next = nullptr;
  Entry entries[kLeafRoom];

  std::uint32_t size() const { return end - begin; }

  void to_front() {
    std::move(entries + begin, entries + end, entries);
    end -= begin;
    begin = 0;
  }
};

// Every entry below kids[i] is >= lows[i] and < lows[i + 1]; lows[0] is not looked at.
struct EvictionOrder::Inner {
  std::uint32_t size = 0;
  Block kids[kInnerRoom];
  Entry lows[kInnerRoom];

  std::uint32_t find(const Entry& entry) const {
    const Entry* it = std::upper_bound(lows + 1, lows + size, entry);
    return static_cast<std::uint32_t>(it - lows) - 1;
  }
  void insert(std::uint32_t at, const Entry& low, Block kid) {
    std::move_backward(kids + at, kids + size, kids + size + 1);
    std::move_backward(lows + at, lows + size, lows + size + 1);
    kids[at] = kid;
    lows[at] = low;
    ++size;
  }
  void erase(std::uint32_t at) {
    std::move(kids + at + 1, kids + size, kids + at);
    std::move(lows + at + 1, lows + size, lows + at);
    --size;
  }
};

EvictionOrder::EvictionOrder() : first_(new Leaf) { root_.leaf = first_; }
EvictionOrder::~EvictionOrder() { destroy(root_, height_); }

void EvictionOrder::destroy(Block block, int height) {
  if (height == 0) {
    delete block.leaf;
    return;
  }
  for (std::uint32_t i = 0; i < block.inner->size; ++i) destroy(block.inner->kids[i], height - 1);
  delete block.inner;
}

NodeIndex EvictionOrder::front() const {
  return size_ == 0 ? kNoNode : first_->entries[first_->begin].node;
}

const EvictionOrder::Entry& EvictionOrder::front_entry() const {
  return first_->entries[first_->begin];
}

NodeIndex EvictionOrder::peek(std::size_t ahead) const {
  const Leaf* leaf = first_;
  if (ahead >= leaf->size()) {
    ahead -= leaf->size();
    leaf = leaf->next;
  }
  return leaf == nullptr || ahead >= leaf->size() ? kNoNode
                                                  : leaf->entries[leaf->begin + ahead].node;
}

const void* EvictionOrder::line_ahead() const {
  constexpr std::size_t kLines = (sizeof(Leaf) + kCacheLine - 1) / kCacheLine;
  const auto* next = reinterpret_cast<const char*>(first_->next);
  return next == nullptr ? nullptr : next + kCacheLine * (first_->size() % kLines);
}

// path[level] is the step taken at that level; path[height_] is the root's.
EvictionOrder::Leaf* EvictionOrder::descend(const Entry& entry, Step* path) const {
  Block block = root_;
  for (int level = height_; level > 0; --level) {
    const std::uint32_t at = block.inner->find(entry);
    path[level] = {block.inner, at};
    block = block.inner->kids[at];
  }
  return block.leaf;
}

void EvictionOrder::insert(const EvictionKey& key, NodeIndex node, std::uint32_t depth) {
  const Entry entry{key, depth, node};
  Step path[kMaxHeight];
  Leaf* leaf = descend(entry, path);
  ++size_;
  if (leaf->size() == kLeafRoom) {
    split_leaf(leaf, entry, path);
    return;
  }
  if (leaf->end == kLeafRoom) leaf->to_front();
  Entry* const end = leaf->entries + leaf->end;
  Entry* const place = std::upper_bound(leaf->entries + leaf->begin, end, entry);
  std::move_backward(place, end, end + 1);
  *place = entry;
  ++leaf->end;
}

// `leaf` is full. A new largest entry starts a leaf of its own, so that appending fills leaves to
// the brim; otherwise the upper half moves out.
void EvictionOrder::split_leaf(Leaf* leaf, const Entry& entry, Step* path) {
  Leaf* right = new Leaf;
  ++num_leaves_;
  right->previous = leaf;
  right->next = leaf->next;
  if (right->next != nullptr) right->next->previous = right;
  leaf->next = right;

  Entry* const end = leaf->entries + kLeafRoom;
  Entry* const place = std::upper_bound(leaf->entries, end, entry);
  if (place == end) {
    right->entries[right->end++] = entry;
  } else {
    Entry* const middle = leaf->entries + kLeafRoom / 2;
    std::move(middle, end, right->entries);
    right->end = kLeafRoom / 2;
    leaf->end = kLeafRoom / 2;
    Leaf* const target = place <= middle ? leaf : right;
    Entry* const at = place <= middle ? place : right->entries + (place - middle);
    std::move_backward(at, target->entries + target->end, target->entries + target->end + 1);
    *at = entry;
    ++target->end;
  }
  Block block;
  block.leaf = right;
  add_child(path, 1, right->entries[0], block);
}

// Puts `child` behind the one that path[level] went through, splitting upwards as needed.
void EvictionOrder::add_child(Step* path, int level, const Entry& low, Block child) {
  if (level > height_) {
    PANDO_CHECK(height_ + 1 < kMaxHeight, "eviction order higher than {} levels", kMaxHeight);
    auto* top = new Inner;
    ++num_inners_;
    top->size = 1;
    top->kids[0] = root_;
    top->insert(1, low, child);
    root_.inner = top;
    ++height_;
    return;
  }
  auto [inner, at] = path[level];
  if (inner->size < kInnerRoom) {
    inner->insert(at + 1, low, child);
    return;
  }
  auto* right = new Inner;
  ++num_inners_;
  // Same bias as for leaves: an append leaves the left block full.
  const std::uint32_t keep = at + 1 == kInnerRoom ? kInnerRoom : kInnerRoom / 2;
  std::move(inner->kids + keep, inner->kids + kInnerRoom, right->kids);
  std::move(inner->lows + keep, inner->lows + kInnerRoom, right->lows);
  right->size = kInnerRoom - keep;
  inner->size = keep;
  if (at + 1 <= keep && keep != kInnerRoom) {
    inner->insert(at + 1, low, child);
  } else {
    right->insert(at + 1 - keep, low, child);
  }
  Block block;
  block.inner = right;
  const Entry right_low = right->lows[0];
  add_child(path, level + 1, right_low, block);
}

void EvictionOrder::erase(const EvictionKey& key, NodeIndex node, std::uint32_t depth) {
  const Entry entry{key, depth, node};
  if (first_->size() > kLeafRoom / 4 && first_->entries[first_->begin] == entry) {
    ++first_->begin;  // a victim: no need to search
    --size_;
    return;
  }
  Step path[kMaxHeight];
  Leaf* leaf = descend(entry, path);
  Entry* const begin = leaf->entries + leaf->begin;
  Entry* const end = leaf->entries + leaf->end;
  Entry* const place = std::lower_bound(begin, end, entry);
  PANDO_CHECK(place != end && *place == entry, "node {} is not in the eviction order", node);
  if (place == begin) {
    ++leaf->begin;
  } else {
    std::move(place + 1, end, place);
    --leaf->end;
  }
  --size_;
  if (height_ > 0 && leaf->size() < kLeafRoom / 4) shrink_leaf(leaf, path);
}

// A leaf below a quarter goes when empty, or joins a neighbour under the same block when both then
// fill at most three quarters of one.
void EvictionOrder::shrink_leaf(Leaf* leaf, Step* path) {
  const auto [inner, at] = path[1];
  if (leaf->size() == 0) {
    unlink(leaf);
    remove_child(path, 1, at);
    return;
  }
  const auto fits = [&inner = inner](std::uint32_t i) {
    return inner->kids[i].leaf->size() + inner->kids[i + 1].leaf->size() <= kLeafRoom * 3 / 4;
  };
  const std::optional<std::uint32_t> pair = neighbours(at, inner->size, fits);
  if (!pair) return;
  Leaf* left = inner->kids[*pair].leaf;
  Leaf* right = inner->kids[*pair + 1].leaf;
  left->to_front();
  std::copy(right->entries + right->begin, right->entries + right->end, left->entries + left->end);
  left->end += right->size();
  unlink(right);
  remove_child(path, 1, *pair + 1);
}

void EvictionOrder::unlink(Leaf* leaf) {
  if (leaf->previous != nullptr) leaf->previous->next = leaf->next;
  if (leaf->next != nullptr) leaf->next->previous = leaf->previous;
  if (first_ == leaf) first_ = leaf->next;
  delete leaf;
  --num_leaves_;
}

// The child at `at` of path[level] is gone; the block may follow it or join a neighbour.
void EvictionOrder::remove_child(Step* path, int level, std::uint32_t at) {
  Inner* inner = path[level].inner;
  inner->erase(at);
  if (level == height_) {
    if (inner->size == 1) {  // a root with one child is no use
      root_ = inner->kids[0];
      delete inner;
      --num_inners_;
      --height_;
    }
    return;
  }
  const auto [parent, place] = path[level + 1];
  if (inner->size == 0) {
    delete inner;
    --num_inners_;
    remove_child(path, level + 1, place);
    return;
  }
  if (inner->size >= kInnerRoom / 4) return;
  const auto fits = [&parent = parent](std::uint32_t i) {
    return parent->kids[i].inner->size + parent->kids[i + 1].inner->size <= kInnerRoom * 3 / 4;
  };
  const std::optional<std::uint32_t> pair = neighbours(place, parent->size, fits);
  if (!pair) return;
  Inner* left = parent->kids[*pair].inner;
  Inner* right = parent->kids[*pair + 1].inner;
  right->lows[0] = parent->lows[*pair + 1];
  std::copy(right->kids, right->kids + right->size, left->kids + left->size);
  std::copy(right->lows, right->lows + right->size, left->lows + left->size);
  left->size += right->size;
  delete right;
  --num_inners_;
  remove_child(path, level + 1, *pair + 1);
}

std::vector<NodeIndex> EvictionOrder::nodes() const {
  std::vector<NodeIndex> out;
  out.reserve(size_);
  for (const Leaf* leaf = first_; leaf != nullptr; leaf = leaf->next) {
    for (std::uint32_t i = leaf->begin; i < leaf->end; ++i) out.push_back(leaf->entries[i].node);
  }
  return out;
}

std::size_t EvictionOrder::memory_bytes() const {
  return num_leaves_ * sizeof(Leaf) + num_inners_ * sizeof(Inner);
}

Status EvictionOrder::check_block(Block block, int height, const Entry* low, const Entry* high,
                                  std::size_t* entries, Leaf** previous) const {
  if (height > 0) {
    const Inner& inner = *block.inner;
    if (inner.size == 0) return make_error(ErrorCode::corrupt, "eviction order: empty block");
    for (std::uint32_t i = 0; i < inner.size; ++i) {
      const Entry* from = i == 0 ? low : &inner.lows[i];
      const Entry* to = i + 1 == inner.size ? high : &inner.lows[i + 1];
      if (Status s = check_block(inner.kids[i], height - 1, from, to, entries, previous); !s)
        return s;
    }
    return {};
  }
  Leaf& leaf = *block.leaf;
  if (leaf.previous != *previous || (*previous != nullptr && (*previous)->next != &leaf) ||
      (*previous == nullptr && first_ != &leaf))
    return make_error(ErrorCode::corrupt, "eviction order: leaf chain broken");
  *previous = &leaf;
  for (std::uint32_t i = leaf.begin; i < leaf.end; ++i) {
    const Entry& entry = leaf.entries[i];
    if ((low != nullptr && entry < *low) || (high != nullptr && !(entry < *high)) ||
        (i > leaf.begin && !(leaf.entries[i - 1] < entry)))
      return make_error(ErrorCode::corrupt, "eviction order: node {} out of place", entry.node);
  }
  *entries += leaf.size();
  return {};
}

Status EvictionOrder::check() const {
  std::size_t entries = 0;
  Leaf* previous = nullptr;
  if (Status s = check_block(root_, height_, nullptr, nullptr, &entries, &previous); !s) return s;
  if (previous->next != nullptr || entries != size_)
    return make_error(ErrorCode::corrupt, "eviction order: counts {} entries, holds {}", size_,
                      entries);
  return {};
}

}  // namespace pando
