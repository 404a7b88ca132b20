// SPDX-License-Identifier: Apache-2.0
// One edge of the radix tree with the state at its end, and the slab that names nodes by index.
// Tree owns both. All parts of RadixIndex have what they know of a node here, so that a walk
// touches one cache line per node; the header of each part says which fields it writes.
//
// Invariant: a node other than a root covers num_pages >= 1 pages of its segment; a root covers
// none and stands for a namespace. It is on the device, on the host, or on both. Index 0 is no
// node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "pando/events.h"
#include "pando/policy.h"
#include "pando/types.h"

namespace pando {

struct Segment;

using NodeIndex = std::uint32_t;
inline constexpr NodeIndex kNoNode = 0;

/// Whose room a node takes: a tenant's, or that of what all share.
using OwnerId = std::uint16_t;
inline constexpr OwnerId kSharedOwner = 0;
/// Nodes of a lower level go before those of a higher one.
using Level = std::int8_t;

/// What a root knows beyond an ordinary node.
struct NamespaceInfo {
  std::string name;
  std::optional<PageHash> chain_start;
};

struct alignas(kCacheLine) Node {
  // First line: all that a walk down needs.
  std::uint32_t hash = 0;      // of (parent, first page), or of the namespace for a root
  NodeIndex parent = kNoNode;  // kNoNode for a root; for a free node, the next free one
  std::uint32_t num_pages = 0;
  std::uint32_t num_children = 0;
  const Token* tokens = nullptr;   // first token of the edge, inside the segment
  std::uint32_t* pages = nullptr;  // first device page, inside the segment; nullptr: host only
  Segment* segment = nullptr;      // counted; nullptr for a root
  std::uint32_t offset_pages = 0;  // where in the segment
  std::uint32_t locks = 0;         // own leases + children with locks > 0; root: cut-off children
  std::uint32_t branch_up = 0;     // the branch above it in its parent's branch index
  std::uint32_t generation = 1;
  std::uint64_t last_access = 0;

  // Second line: what changes hands less often.
  EvictionKey order_key;  // under which it is a candidate, if it is
  std::uint64_t created = 0;
  std::uint32_t hits = 0;
  std::int32_t priority = 0;
  std::uint32_t children = 0;   // branch link: the root of the branch index over its children
  std::uint32_t end_pages = 0;  // pages from the root to its end
  std::unique_ptr<NamespaceInfo> info;  // roots only
  std::uint32_t device_children = 0;    // children that are on the device
  std::uint32_t host_locks = 0;         // own holds + children with host_locks > 0
  OwnerId owner = kSharedOwner;
  Level level = 0;
  bool in_order : 1 = false;       // a candidate of the device shelf
  bool in_host_order : 1 = false;  // of the host's
  bool in_mirrors : 1 = false;
  bool on_host : 1 = false;     // has a host copy
  bool backing_up : 1 = false;  // a copy to the host is under way
  bool live : 1 = false;
  bool cut_off : 1 = false;   // not to be found any more; goes when nobody holds it
  bool cut_top : 1 = false;   // of what was cut off: its parent does not count it as a child
  bool unstored : 1 = false;  // the store does not have all of its host copy

  bool is_root() const { return info != nullptr; }
  bool on_device() const { return pages != nullptr; }
  bool is_in_an_order() const { return in_order || in_host_order || in_mirrors; }
  std::uint32_t begin_pages() const { return end_pages - num_pages; }
  /// May leave the device: nothing below is on it, nobody holds it there. Without a host copy, what
  /// is below on the host would go too, so nobody may hold that.
  bool is_candidate() const { return device_children == 0 && on_device() && is_device_evictable(); }
  /// May leave the host, and with it the tree.
  bool is_host_candidate() const { return num_children == 0 && is_host_evictable(); }
  bool is_held() const { return locks > 0 || cut_off; }
  /// Counts as room on the device, though something below may have to leave it first.
  bool is_device_evictable() const { return !is_held() && (on_host || host_locks == 0); }
  /// Counts as room on the host: not elsewhere, not held.
  bool is_host_evictable() const {
    return on_host && !on_device() && !is_held() && host_locks == 0 && !backing_up;
  }
  /// May lose its host copy and stay on the device.
  bool is_mirror() const {
    return is_candidate() && on_host && num_children == 0 && host_locks == 0;
  }
  /// Nobody holds it on any tier, and nothing is below it.
  bool is_free_leaf() const {
    return num_children == 0 && locks == 0 && host_locks == 0 && !backing_up && !is_root();
  }
};
static_assert(sizeof(Node) == 2 * kCacheLine);

/// Things by node index, in chunks. T is made by construct_at when first used. The first chunk
/// begins small and moves as it grows, so that a small tree is small: reach() may invalidate
/// references; later chunks never move.
template <typename T>
class NodeTable {
 public:
  NodeTable() = default;
  ~NodeTable() {
    for (NodeIndex i = 1; i < end_; ++i) std::destroy_at(&(*this)[i]);
  }
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;

  T& operator[](NodeIndex i) { return chunks_[i / kChunk][i % kChunk]; }
  const T& operator[](NodeIndex i) const { return chunks_[i / kChunk][i % kChunk]; }

  /// Makes everything up to and with index i.
  void reach(NodeIndex i) {
    for (; end_ <= i; ++end_) {
      if (end_ >= room_) grow();
      std::construct_at(&(*this)[end_]);
    }
  }
  NodeIndex end() const { return end_; }  // indices in [1, end()) have been used
  std::size_t memory_bytes() const { return room_ * sizeof(T); }

 private:
  static constexpr std::size_t kFirstRoom = 64;
  static constexpr NodeIndex kChunk = 16384;  // of nodes: two mebibytes, a huge page
  static_assert(kFirstRoom * 4 * 4 * 4 * 4 == kChunk);

  void grow() {
    if (room_ >= kChunk) {
      chunks_.push_back(make_table<T>(kChunk));
      room_ += kChunk;
      return;
    }
    const std::size_t room = room_ == 0 ? kFirstRoom : 4 * room_;
    Table<T> larger = make_table<T>(room);
    for (NodeIndex i = 1; i < end_; ++i) {
      std::construct_at(&larger[i], std::move((*this)[i]));
      std::destroy_at(&(*this)[i]);
    }
    chunks_.clear();
    chunks_.push_back(std::move(larger));
    room_ = room;
  }

  std::vector<Table<T>> chunks_;
  std::size_t room_ = 0;  // in all chunks
  NodeIndex end_ = 1;
};

/// Nodes, of which freed ones are reused last in, first out. O(1).
class NodeSlab {
 public:
  Node& operator[](NodeIndex i) { return nodes_[i]; }
  const Node& operator[](NodeIndex i) const { return nodes_[i]; }

  NodeIndex alloc() {
    NodeIndex i = free_list_;
    if (i == kNoNode) {
      i = nodes_.end();
      nodes_.reach(i);
    } else {
      free_list_ = (*this)[i].parent;
    }
    Node& node = (*this)[i];
    node.parent = kNoNode;
    node.live = true;
    ++num_live_;
    return i;
  }

  void free(NodeIndex i) {
    Node& node = (*this)[i];
    const std::uint32_t generation = next_generation(node.generation);
    node = Node{};
    node.generation = generation;
    node.parent = free_list_;
    free_list_ = i;
    --num_live_;
  }

  /// Makes every handle to this node stale.
  void renew(NodeIndex i) { (*this)[i].generation = next_generation((*this)[i].generation); }

  NodeId id(NodeIndex i) const { return {i, (*this)[i].generation}; }
  /// kNoNode for a handle that is stale or was never given out.
  NodeIndex resolve(NodeId id) const {
    if (id.index == kNoNode || id.index >= nodes_.end()) return kNoNode;
    const Node& node = (*this)[id.index];
    return node.live && node.generation == id.generation ? id.index : kNoNode;
  }

  NodeIndex end() const { return nodes_.end(); }
  std::size_t num_live() const { return num_live_; }
  std::size_t memory_bytes() const { return nodes_.memory_bytes(); }

 private:
  static std::uint32_t next_generation(std::uint32_t g) { return g + 1 == 0 ? 1 : g + 1; }

  NodeTable<Node> nodes_;
  NodeIndex free_list_ = kNoNode;
  std::size_t num_live_ = 0;
};

}  // namespace pando
