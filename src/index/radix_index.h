// SPDX-License-Identifier: Apache-2.0
// The radix tree over pages of tokens: keys, nodes, components, locks, eviction order. It decides
// and returns what became free; PrefixCache executes. It touches no KV bytes and frees no slots.
//
// A walk is read-only: descend() follows a key and returns a Cursor; settle(), add_leaf() and the
// touch calls then change the tree at that place. So bad input is refused after the walk and before
// the first change, and probe() is descend() alone.
//
// Invariants (check() proves them):
// - an edge holds whole pages; siblings differ in their first page;
// - locks of a node = leases on it + children that are locked; evictable are the tokens of nodes
//   without locks; candidates of the device's shelf are exactly the unlocked nodes with no child on
//   the device; each shelf counts what the nodes of each owner weigh;
// - a node was used at least as recently as its children;
// - with a window or state component, a node that lacks one (a tombstone) has children or is held:
//   nothing could ever match the end of another, so it goes, and what is left bare above it too;
// - whoever holds the window or the snapshot of a node holds the node;
// - with a host tier, a node is on the device or on the host or on both, and the parent of one that
//   is on the device is too: what is on the device is the top of the tree. A node on the device
//   without a host copy that leaves takes along what hangs below it on the host.
// Costs: descend compares each token once and looks up one child per edge; lock and unlock touch
// the nodes whose state changes; evict and evict_host are O(log nodes) per victim. With components
// or a host tier a use places each node of its path anew, O(log nodes) each.
//
// radix_index.cc walks and grows, radix_evict.cc holds and evicts, radix_host.cc moves nodes
// between tiers, radix_hazard.cc tells a policy that learns, radix_retention.cc keeps what is to be
// kept longer, radix_check.cc proves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/branch_index.h"
#include "index/child_table.h"
#include "index/component.h"
#include "index/hazard_nodes.h"
#include "index/node.h"
#include "index/node_retention.h"
#include "index/segment.h"
#include "index/shelf.h"
#include "pando/host_page.h"
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
    std::size_t snapshot_interval_pages = 0;       // see thin_snapshots
    std::size_t max_snapshots_per_path = SIZE_MAX;
    bool host = false;           // nodes may have a host side
    bool mirrors_first = false;  // see evict_host
    std::size_t capacity_pages =
        0;  // of the device: what a policy that learns remembers goes by it
  };
  RadixIndex(const Options& options, std::unique_ptr<EvictionPolicy> policy);
  ~RadixIndex();

  /// Where a key leaves the tree: after `pages` whole pages, `pages_in_node` into `node`.
  struct Cursor {
    NodeIndex node = kNoNode;  // kNoNode: the namespace is unknown
    std::uint32_t pages_in_node = 0;
    std::size_t pages = 0;
  };
  /// Follows the key as far as the tree agrees. Writes the slots of what agrees and is on the
  /// device to `out` unless it is nullptr.
  Cursor descend(const Key& key, SlotId* out) const;
  /// The same from the end of this node on, which ends a part of the key.
  Cursor descend_behind(NodeIndex node, const Key& key) const;

  /// What a walk may count on: the device alone, or the host too.
  enum class Reach { device, host };
  /// The longest part of a walk within reach on whose end all components agree: the window is there
  /// unbroken for long enough or back to the start, and there is a snapshot.
  Cursor valid_end(const Cursor& cursor, Reach reach, bool with_state = true) const;
  bool is_valid_end(NodeIndex node, Reach reach) const;

  /// Beyond the cursor, inside the next page: which node agrees longest, and for how many tokens.
  struct Partial {
    NodeIndex node = kNoNode;  // the page is its first one once the cursor is settled
    std::uint32_t page = 0;
    std::size_t length = 0;
  };
  Partial partial(const Key& key, const Cursor& cursor) const;

  /// Calls fn(node, first, n) for the nodes along the cursor's path, from its end to the root:
  /// pages [first, first + n) of the key lie in the first n pages of the node.
  template <typename Fn>
  void for_each_on_path(const Cursor& cursor, Fn&& fn) const;

  /// Splits so that the cursor is at the end of a node, and returns that node (the namespace's root
  /// for 0 pages). The lower half keeps the identity: leases and handles stay with the end they
  /// were made for.
  NodeIndex settle(const Cursor& cursor);

  /// Names of those that have anything, `max` at most.
  std::vector<std::string_view> namespaces(std::size_t max) const;
  std::vector<std::string> all_namespaces() const;
  /// The root of a namespace, made if need be. It goes when its last child does.
  NodeIndex root(std::string_view ns);

  /// Splits off the first `pages` of a new leaf, if any, as a node without a window.
  void bury_head(NodeIndex leaf, std::uint32_t pages);
  /// `node` has lost its window; from its page `first` on it is whole again, with the pages given
  /// unless there are none. Splits off what stays without.
  void revive(NodeIndex node, std::uint32_t first, std::span<const std::uint32_t> pages);

  /// Hangs pages below `parent`: tokens has pages.size() * page_size (bigram: one more).
  NodeIndex add_leaf(NodeIndex parent, const Token* tokens, std::span<const std::uint32_t> pages);
  /// The same where pages are not numbered.
  NodeIndex add_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages);

  /// The path from `node` to the root was used just now.
  void touch(NodeIndex node);
  struct Use {
    std::int32_t priority = 0;  // raises that of the path
    bool chunked = false;       // does not count as a hit
    bool unfinished = false;    // the same request will insert more
  };
  /// The same by an insert.
  void touch_insert(NodeIndex node, const Use& use);
  /// A request that ended here has finished without inserting more.
  void finish_use(NodeIndex node);

  /// What the tree let go of, for the cache to give back.
  struct Released {
    std::vector<PageId> pages;         // with the window side they may have
    std::vector<PageId> window_pages;  // only the window side
    std::vector<StateSlot> snapshots;
    std::vector<HostPageId> host_pages;
    std::vector<HostPageId> host_window_pages;
    std::vector<HostPageId> host_snapshots;
    // Host pages whose copy on the device has gone; not of nodes that are being backed up.
    std::vector<HostPageId> demoted_pages;
    std::vector<HostPageId> demoted_window_pages;
    std::vector<HostPageId> demoted_snapshots;
    void clear();
  };

  void lock(NodeIndex node);
  /// May remove the node: a tombstone without children stays only while it is locked.
  void unlock(NodeIndex node, Released& out);
  /// Holds the window of the last pages up to the end of `node`, as many as a match needs, or fewer
  /// where it is gone. Returns where the held part begins, in pages from the root; splits there.
  std::uint32_t lock_window(NodeIndex node);
  /// Holds all of the window from `from_page`, where a node begins, to the end of `node`.
  void lock_window(NodeIndex node, std::uint32_t from_page);
  bool has_window(NodeIndex node, std::uint32_t from_page) const;
  void unlock_window(NodeIndex node, std::uint32_t from_page);
  void lock_state(NodeIndex node) { state_->lock(node, nodes_[node]); }
  void unlock_state(NodeIndex node);

  bool has_window(NodeIndex node) const { return !window_ || window_->has(node); }
  bool has_snapshot(NodeIndex node) const { return state_ && state_->has(node); }
  bool has_host_window(NodeIndex node) const { return host_window_ && host_window_->has(node); }
  bool has_host_snapshot(NodeIndex node) const { return host_state_ && host_state_->has(node); }
  HostPageId host_snapshot(NodeIndex node) const {
    return HostPageId{(*host_state_)[node].snapshot.index};
  }
  StateSlot snapshot(NodeIndex node) const { return (*state_)[node].snapshot; }
  /// Gives `node`, which has none, a snapshot.
  void add_snapshot(NodeIndex node, StateSlot slot);
  /// Drops snapshots above `node` that nobody holds: those less than the interval behind the one
  /// before them, branching points excepted, then the shallowest beyond the most a path may have.
  void thin_snapshots(NodeIndex node, Released& out);

  /// Called for pages about to leave a tier: n pages of `node` from its page `first` on.
  using OnRemoved =
      std::function<void(Medium from, const Node& node, std::uint32_t first, std::uint32_t n)>;
  OnRemoved on_removed;
  /// Called for a node about to leave the device without a host copy: true if it has been given one
  /// (attach_host). May evict from the host. Empty: such nodes leave the tree.
  std::function<bool(NodeIndex)> save_to_host;

  struct Goal {
    std::size_t pages = 0;
    std::size_t window_pages = 0;
    std::size_t snapshots = 0;
    OwnerId by = kSharedOwner;       // for whom
    bool only_own = false;           // from what it has itself
    std::size_t incoming_pages = 0;  // that it is going to have more
    std::size_t request_pages = 0;   // of the request that wants room, cached ones included
    bool any() const { return pages + window_pages + snapshots > 0; }
  };
  struct Evicted {
    std::size_t pages = 0;
    std::size_t window_pages = 0;
    std::size_t snapshots = 0;
    std::size_t nodes = 0;          // that left the tree
    std::size_t demoted_pages = 0;  // of `pages`, stay on the host
    std::size_t host_pages = 0;
    std::size_t host_window_pages = 0;
    std::size_t host_snapshots = 0;
  };
  /// Takes pages from the least valuable leaves of the device until the goal is met, trimming the
  /// last one unless `whole_nodes`; with a host copy they stay in the tree. Then windows and
  /// snapshots, from any node: a leaf that nobody holds goes with them, another stays as a
  /// tombstone. Owners other than the goal's keep what they have up to their floors.
  Evicted evict(const Goal& goal, bool whole_nodes, Released& out);
  /// The rooms of the device and of the host, of one component each; nullptr where it is not on.
  Shelf* shelf(Medium tier, ComponentKind kind);
  const Shelf* shelf(Medium tier, ComponentKind kind) const {
    return const_cast<RadixIndex*>(this)->shelf(tier, kind);
  }

  /// So many tokens into a prompt, attention costs as much as all the rest: for a policy that
  /// weighs hits by what they save.
  void set_attention_tokens(double tokens);

  /// For an owner that decides itself what is worth a node, on one tier and without components.
  /// The node that would be evicted next; kNoNode when somebody holds each.
  NodeIndex victim() { return device_shelf_.next({}).node; }
  bool has_victim() const { return !device_shelf_.empty(); }
  /// Removes a leaf that nobody holds; pages that had numbers are released.
  void remove(NodeIndex leaf, Released& out);
  /// Undoes a split: `node`, which nobody holds for itself, becomes part of its only child, which
  /// keeps its identity and is returned. O(1) where the two share a block. kNoNode, and nothing
  /// changes, where that child's block goes on below it and `node` has another.
  NodeIndex join_child(NodeIndex node);

  // Tiers (radix_host.cc).
  /// Host pages of one node: all its pages; their windows, or none; the snapshot at its end.
  struct HostSides {
    std::span<const HostPageId> pages = {};
    std::span<const HostPageId> window_pages = {};
    std::optional<HostPageId> snapshot = {};
  };
  /// `node`, on the device, has a host copy from now on, or more of one.
  void attach_host(NodeIndex node, const HostSides& sides);
  /// `node`, on the host only, is on the device too. Its parent is.
  void attach_device(NodeIndex node, std::span<const std::uint32_t> pages, bool with_window);
  /// `node`, on the device without a window, has one again.
  void attach_window(NodeIndex node);
  /// `node`, with a host copy, leaves the device; what is below is on the host only.
  void detach_device(NodeIndex node, Released& out, Evicted& evicted);
  /// As add_leaf, on the host only.
  NodeIndex add_host_leaf(NodeIndex parent, const Token* tokens, const HostSides& sides);
  /// Removes `node`, which is not on the device, and all below. Nobody holds any of it.
  void drop_subtree(NodeIndex node, Released& out, Evicted& evicted);
  /// Removes a tombstone without children that nobody holds.
  void drop_if_bare(NodeIndex node, Released& out, Evicted& evicted);
  /// A copy of `node` to the host is under way: it does not leave the host meanwhile.
  void set_backing_up(NodeIndex node, bool yes);
  void set_unstored(NodeIndex node, bool yes) { nodes_[node].unstored = yes; }
  /// The bytes of `node` on the device are not to be trusted, and so are those computed from them:
  /// nothing at or below it is ever found again. What somebody holds stays until it is let go.
  void cut_off(NodeIndex node, Released& out);
  /// Whether `node` is at or below one that was cut off.
  bool is_cut_off(NodeIndex node) const { return nodes_[node].cut_off; }

  /// Keeps the path to `node` on the host, or on whichever tier it is.
  void lock_host(NodeIndex node);
  void unlock_host(NodeIndex node, Released& out);

  /// Takes pages from the least valuable leaves that are on the host only, with `mirrors_first`
  /// after the host copies of nodes that the device will keep longest. Then windows and snapshots.
  Evicted evict_host(const Goal& goal, Released& out);

  // What is kept longer than the policy would (radix_retention.cc).
  struct PageRange {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  /// Pages of the path to `end` have at least this level until then. Splits at the range's ends.
  void grant(NodeIndex end, const PageRange& range, Level level, Ticks until);
  /// Grants that end by `now` do not count any more.
  void expire_grants(Ticks now);
  bool has_timed_grants() const { return retention_ && retention_->has_timed_grants(); }

  /// Pins are counted here, apart from the holds that make them good: in pages of all pinned paths
  /// together, `on_device` of those held there.
  void count_pin(NodeIndex end, bool on_device);
  void uncount_pin(NodeIndex end, bool on_device);
  std::size_t pages_to_pin(NodeIndex end, bool on_device);  // that one more would add
  std::size_t pinned_pages(bool on_device) const {
    return on_device ? device_pinned_pages_ : pinned_pages_;
  }
  /// Whether the path could leave the device and lose nothing that its end needs.
  bool is_on_host(NodeIndex end) const;

  /// The level of paths to the ends of sessions in use.
  void set_session_level(Level level) { session_level_ = level; }
  /// From now on it is known what only sessions have used.
  void keep_sessions() { retention(); }
  /// Whether `node` is on the path to `end`, which it may be.
  bool is_on_path(NodeIndex node, NodeIndex end) const;
  /// A session's prefix ends here from now on; it is in use.
  EndIndex add_end(NodeIndex node);
  void attach_end(EndIndex end, NodeIndex node);
  void detach_end(EndIndex end);
  void remove_end(EndIndex end);
  void set_active(EndIndex end, bool active);
  /// kNoNode if nothing of it is left.
  NodeIndex node_of(EndIndex end) const { return retention_->end(end).node; }
  /// The path was used by somebody who is no session.
  void note_common_use(NodeIndex end) {
    if (retention_) mark_common(end);
  }
  /// Removes `node` and what is above it, on all tiers, as far as no session, no pin and nobody
  /// without a session has use for it. False: somebody holds it still.
  bool release_private(NodeIndex node, Released& out, Evicted& evicted);

  void set_limits(Medium tier, ComponentKind kind, OwnerId owner, const Shelf::Limits& limits);
  /// What is in a namespace, and will be while its root lasts, takes this owner's room. O(subtree).
  void set_owner(std::string_view ns, OwnerId owner);
  /// The owner of a namespace that gets a root; kSharedOwner unless set.
  std::function<OwnerId(std::string_view ns)> owner_of;
  OwnerId owner(std::string_view ns) const { return owner_of ? owner_of(ns) : kSharedOwner; }

  std::span<const PageId> device_pages(const Node& node) const;
  std::span<const HostPageId> host_pages(const Node& node) const;
  std::span<const HostPageId> host_window_pages(const Node& node) const;
  /// In pages of each component; evictable is what is on the host only and not held.
  Sizes host_sizes(ComponentKind kind) const;
  /// From now on every page has its hash; computes those that are missing. O(tree) once.
  void keep_hashes();
  bool with_hashes() const { return with_hashes_; }

  /// The part of a walk that is on the device, whatever its components.
  Cursor device_end(Cursor cursor) const;

  NodeId id(NodeIndex node) const { return nodes_.id(node); }
  NodeIndex resolve(NodeId id) const { return nodes_.resolve(id); }
  const Node& node(NodeIndex index) const { return nodes_[index]; }
  const PageHash* hashes(const Node& node) const {
    return node.segment->hashes.get() + node.offset_pages;
  }
  /// The name of the root above a node.
  const std::string& namespace_of(NodeIndex node) const;
  /// The hash of the page before `node`'s first; nullptr at a chain's start.
  const PageHash* parent_hash(const Node& node) const;

  std::size_t page_size() const { return page_size_; }
  std::size_t window_pages() const { return window_pages_; }
  /// Whole pages of a key; 0 for one shorter than a page.
  std::size_t num_pages(const Key& key) const {
    return key.tokens.size() <= overlap_ ? 0 : (key.tokens.size() - overlap_) / page_size_;
  }
  std::size_t num_units(const Key& key) const {
    return key.tokens.size() <= overlap_ ? 0 : key.tokens.size() - overlap_;
  }
  /// Full and window in tokens, state in snapshots.
  Sizes sizes(ComponentKind kind) const;
  std::size_t num_nodes() const { return nodes_.num_live(); }
  std::size_t memory_bytes() const;
  /// Every device page, path by path in token order; those cut off left out.
  std::vector<PageId> all_pages() const;
  /// Calls fn(index, node) for every node but roots.
  template <typename Fn>
  void for_each_node(Fn&& fn) const;
  std::string dump() const;
  std::uint64_t digest() const;
  /// How many holds callers have.
  struct Holds {
    std::size_t locks = 0;
    std::size_t state_locks = 0;
    std::size_t host_locks = 0;
    std::size_t pins = 0;
    std::size_t device_pins = 0;
  };
  /// O(tree).
  Status check(const Holds& holds) const;

 private:
  Cursor descend(Cursor from, const Key& key, SlotId* out) const;
  NodeIndex find_root(std::string_view ns, std::uint32_t hash) const;
  std::uint32_t hash_namespace(std::string_view ns) const;
  std::uint32_t hash_page(NodeIndex parent, const Token* tokens) const;
  std::size_t agreeing_pages(const Token* a, const Token* b, std::size_t max_pages) const;

  NodeIndex new_node();
  NodeIndex split(NodeIndex node, std::uint32_t at_page);
  void set_slice(Node& node, Segment* segment, std::uint32_t offset, std::uint32_t num_pages,
                 bool on_device);
  NodeIndex hang_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages,
                      const std::uint32_t* pages);
  void prefetch_victims(const Shelf& shelf);
  void evict_leaves(const Goal& goal, bool whole_nodes, Released& out, Evicted& evicted);
  void evict_window(const Goal& goal, Released& out, Evicted& evicted);
  void evict_snapshots(const Goal& goal, Released& out, Evicted& evicted);
  void release_tail(NodeIndex node, std::uint32_t keep, Released& out, Evicted& evicted);
  void drop_leaf(NodeIndex leaf, Released& out, Evicted& evicted);
  NodeIndex drop_one(NodeIndex leaf, Released& out, Evicted& evicted);
  void drop_from_device(NodeIndex node, Released& out, Evicted& evicted);
  void leave_device(NodeIndex node, Released& out, Evicted& evicted);
  bool leave_device_for(OwnerId by, NodeIndex node, Released& out, Evicted& evicted);
  void drop_children(NodeIndex node, Released& out, Evicted& evicted);
  void drop_host_side(NodeIndex node, Released& out, Evicted& evicted);
  bool leave_to_host(NodeIndex node, std::uint32_t keep, Released& out, Evicted& evicted);
  void release_host_tail(NodeIndex node, std::uint32_t keep, Released& out, Evicted& evicted);
  void drop_host_copy(NodeIndex node, Released& out, Evicted& evicted);
  void evict_host_window(const Goal& goal, Released& out, Evicted& evicted);
  void evict_host_snapshots(const Goal& goal, Released& out, Evicted& evicted);
  void drop_snapshot(NodeIndex node, Released& out);
  void drop_window(NodeIndex node, Released& out);
  NodeIndex remove_leaf(NodeIndex leaf);
  void release_slice(NodeIndex node);
  void join_blocks(NodeIndex upper, NodeIndex lower);
  void trim(NodeIndex leaf, std::uint32_t keep_pages, Released& out, Evicted& evicted);
  void shrink_segment(NodeIndex last_holder);
  void drop_root_if_empty(NodeIndex root);

  NodeStats stats(const Node& node) const;
  EvictionKey key_of(NodeIndex i) const {
    return hazard_ ? hazard_->key(i) : policy_->key(stats(nodes_[i]));
  }
  /// So many pages at a node's end go by its key; those before them may be worth more.
  std::size_t rank_pages(NodeIndex i) const { return hazard_ ? hazard_->rank_pages(i) : SIZE_MAX; }
  const HazardIndex* hazard_index() const { return hazard_ ? &hazard_->index() : nullptr; }
  std::span<const std::uint64_t> names(const Node& node) const {
    return {segments_.names(node.segment) + node.offset_pages, node.num_pages};
  }
  NodeRetention& retention();  // made when first needed
  Level level_of(NodeIndex i) const;
  void relevel(NodeIndex i);
  void leave_components(NodeIndex i);
  template <typename Count, typename OnFirst>
  void count_up(NodeIndex from, Count count, OnFirst on_first);
  template <typename Count, typename OnLast>
  void count_down(NodeIndex from, Count count, OnLast on_last);
  void mark_common(NodeIndex end);
  Status check_retention(const Holds& holds) const;
  void name_pages(NodeIndex leaf);
  void tell_new(NodeIndex end);
  void observe(NodeIndex end, bool finished);
  static Shelf::Demand demand_of(const Goal& goal) {
    return {goal.by, goal.incoming_pages, goal.only_own};
  }
  std::uint32_t pages_to_keep(const Shelf::Turn& turn, std::size_t missing) const;
  // Out of the orders before anything changes that they go by, and back in after it.
  void enter_order(NodeIndex node);
  void leave_order(NodeIndex node) {
    if (nodes_[node].is_in_an_order()) leave_orders(node);  // few are
  }
  void leave_orders(NodeIndex node);
  // The same, and out of the tallies of pages and into them.
  void retire(NodeIndex node);
  void admit(NodeIndex node);
  bool has_components() const { return window_ || state_; }
  bool places_path() const { return has_components() || host_; }
  bool window_in_reach(NodeIndex node, Reach reach) const {
    return has_window(node) || (reach == Reach::host && has_host_window(node));
  }
  bool snapshot_in_reach(NodeIndex node, Reach reach) const {
    return has_snapshot(node) || (reach == Reach::host && has_host_snapshot(node));
  }
  void place_components(NodeIndex node);
  void place_path(NodeIndex node);
  /// A tombstone without children that nobody holds: nothing can ever match its end.
  bool is_bare_leaf(NodeIndex node) const;

  std::size_t component_bytes() const;
  std::vector<NodeIndex> roots() const;
  Status check_node(NodeIndex index, std::size_t* extra_locks) const;
  Status check_segments() const;
  Status check_component(const Component& component, const char* name) const;
  Status check_tiers(const Holds& holds) const;
  Status check_held_windows() const;
  Status check_snapshots(std::size_t num_state_locks) const;

  const std::size_t page_size_;
  const bool numbered_;
  const std::size_t overlap_;  // raw tokens a page reads beyond its units: 1 for bigram keys
  bool with_hashes_;
  const bool host_;
  const bool mirrors_first_;
  const std::size_t window_pages_;
  const std::size_t snapshot_interval_pages_;
  const std::size_t max_snapshots_per_path_;
  std::array<std::uint64_t, 24> secret_;  // of the hash that finds children
  std::unique_ptr<EvictionPolicy> policy_;
  NodeSlab nodes_;
  SegmentStore segments_;
  std::unique_ptr<HazardNodes> hazard_;  // if that is the policy
  std::unique_ptr<NodeRetention> retention_;
  Level session_level_ = 0;
  std::size_t pinned_pages_ = 0;
  std::size_t device_pinned_pages_ = 0;
  ChildTable children_;
  BranchIndex branches_;
  Shelf device_shelf_;  // candidates: leaves of the device that nobody holds
  Shelf host_shelf_;    // leaves that are on the host only and that nobody holds
  // Of the device's candidates, leaves with a host copy, the last one first; kept if they go first.
  // Counts what the host's counts.
  Shelf mirror_shelf_;
  std::optional<Component> window_;
  std::optional<Component> state_;
  std::optional<Component> host_window_;
  std::optional<Component> host_state_;
  std::uint64_t now_ = 0;
  std::size_t num_cut_off_ = 0;  // subtrees
  std::vector<NodeIndex> path_;  // scratch
};

template <typename Fn>
void RadixIndex::for_each_node(Fn&& fn) const {
  for (NodeIndex i = 1; i < nodes_.end(); ++i) {
    if (nodes_[i].live && !nodes_[i].is_root()) fn(i, nodes_[i]);
  }
}

template <typename Fn>
void RadixIndex::for_each_on_path(const Cursor& cursor, Fn&& fn) const {
  std::size_t end = cursor.pages;
  std::uint32_t n = cursor.pages_in_node;
  for (NodeIndex i = cursor.node; end > 0; i = nodes_[i].parent, n = nodes_[i].num_pages) {
    end -= n;
    fn(i, end, n);
  }
}

}  // namespace pando
