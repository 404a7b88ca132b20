// SPDX-License-Identifier: Apache-2.0
// The radix tree over pages of tokens: keys, nodes, components, locks, eviction order. It decides
// and returns what became free; PrefixCache executes. It touches no KV bytes and frees no slots.
//
// RadixIndex owns the parts and does what needs several of them: growing, using, letting go. Each
// part has its own state, its own invariants and a check() that proves them. A part knows those
// above it in this list and none below:
//
//   Tree           nodes and edges: walks, splits, grows, removes
//   Uses           when nodes were used, and the key that this gives them in an eviction order
//   Components     windows and snapshots of nodes, on the device and on the host
//   Shelves        the rooms of both tiers: who has how much of each, who leaves it first
//   Holds          who holds which path, window and snapshot
//   Residency      which pages, windows and snapshots are on which tier
//   Matcher        how much of a walk can be used; changes nothing
//   TreeRetention  levels, pins, sessions, owners
//   Evictor        takes pages, windows and snapshots, and removes nodes
//
// What they know of a node is in Node and in tables by its index. A call on a key walks first
// (Tree::descend, read-only), so bad input is refused before the first change. A split anywhere is
// told to all parts by Tree::on_split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/component.h"
#include "index/evictor.h"
#include "index/holds.h"
#include "index/matcher.h"
#include "index/node.h"
#include "index/released.h"
#include "index/residency.h"
#include "index/shelves.h"
#include "index/tree.h"
#include "index/tree_retention.h"
#include "index/uses.h"
#include "pando/policy.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class RadixIndex {
 public:
  struct Options {
    std::size_t page_size = 1;
    bool bigram = false;
    bool hashes = false;   // keep the hash of every page
    bool numbered = true;  // pages have numbers; without, only tokens are kept, on one tier
    std::uint64_t hash_seed = 0;
    std::optional<std::size_t> window_pages = {};  // with a window component: what a match needs
    bool state = false;                            // with a state component
    std::size_t snapshot_interval_pages = 0;       // see Evictor::thin_snapshots
    std::size_t max_snapshots_per_path = SIZE_MAX;
    bool host = false;           // nodes may be on the host
    bool mirrors_first = false;  // see Evictor::evict_host
    // Of the device: what a policy that learns remembers goes by it.
    std::size_t capacity_pages = 0;
  };
  RadixIndex(const Options& options, std::unique_ptr<EvictionPolicy> policy);

  // ---- Parts ----

  Tree& tree() { return tree_; }
  const Tree& tree() const { return tree_; }
  Uses& uses() { return uses_; }
  Shelves& shelves() { return shelves_; }
  const Shelves& shelves() const { return shelves_; }
  Holds& holds() { return holds_; }
  Residency& residency() { return residency_; }
  const Residency& residency() const { return residency_; }
  const Matcher& matcher() const { return matcher_; }
  TreeRetention& retention() { return retention_; }
  const TreeRetention& retention() const { return retention_; }
  Evictor& evictor() { return evictor_; }
  const Evictor& evictor() const { return evictor_; }

  // Asked for all the time.
  const Node& node(NodeIndex index) const { return tree_.nodes()[index]; }
  NodeId id(NodeIndex node) const { return tree_.nodes().id(node); }
  NodeIndex resolve(NodeId id) const { return tree_.nodes().resolve(id); }
  std::size_t page_size() const { return tree_.shape().page_size; }

  // ---- Growing ----

  /// The root of a namespace, made if need be. It goes when its last child does.
  NodeIndex root(std::string_view ns);
  /// Hangs pages below `parent`: tokens has pages.size() * page_size (bigram: one more).
  NodeIndex add_leaf(NodeIndex parent, const Token* tokens, std::span<const std::uint32_t> pages);
  /// The same where pages are not numbered.
  NodeIndex add_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages);
  /// The same on the host only.
  NodeIndex add_host_leaf(NodeIndex parent, const Token* tokens, const Residency::HostExtent& copy);
  /// Undoes a split, on one tier and without components: `node`, which nobody holds for itself,
  /// becomes part of its only child; see Tree::join_child.
  NodeIndex join_child(NodeIndex node);

  // ---- Using ----

  /// The path from `node` to the root was used just now.
  void touch(NodeIndex node);
  /// The same by an insert.
  void touch_insert(NodeIndex node, const Uses::Insert& insert);
  /// A request that ended here has finished without inserting more.
  void finish_use(NodeIndex node);

  // ---- Letting go ----

  /// May remove the node: a tombstone without children stays only while it is held.
  void unlock(NodeIndex node, Released& out);
  void unlock_host(NodeIndex node, Released& out);

  // ---- Telling ----

  /// What the device has: pages and windows in tokens, state in snapshots.
  Sizes sizes(ComponentKind kind) const;
  std::size_t num_nodes() const { return tree_.nodes().num_live(); }
  std::size_t memory_bytes() const;
  /// Every device page, path by path in token order; those cut off left out.
  std::vector<PageId> all_pages() const;
  std::string dump() const;
  std::uint64_t digest() const;

  /// How many holds and pins callers have.
  struct HoldCounts {
    std::size_t locks = 0;
    std::size_t state_locks = 0;
    std::size_t host_locks = 0;
    std::size_t pins = 0;
    std::size_t device_pins = 0;
  };
  /// Proves the invariants of all parts. O(tree).
  Status check(const HoldCounts& counts) const;

 private:
  void reach(NodeIndex i);
  NodeIndex hang_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages,
                      const std::uint32_t* pages);
  std::string describe(NodeIndex i) const;

  Tree tree_;
  Uses uses_;
  Components components_;
  Shelves shelves_;
  Holds holds_;
  Residency residency_;
  Matcher matcher_;
  TreeRetention retention_;
  Evictor evictor_;
};

}  // namespace pando
