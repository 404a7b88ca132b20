// SPDX-License-Identifier: Apache-2.0
// The parts of the radix tree put together, and what needs several of them. Pictures of the tree
// are in radix_dump.cc.
#include "index/radix_index.h"

#include "base/check.h"

namespace pando {

RadixIndex::RadixIndex(const Options& o, std::unique_ptr<EvictionPolicy> policy)
    : tree_({.edges = {.shape = {o.page_size, o.bigram ? std::size_t{1} : 0},
                       .numbered = o.numbered,
                       .named = policy->hazard().has_value(),
                       .window = o.window_pages.has_value(),
                       .hashes = o.hashes},
             .hash_seed = o.hash_seed}),
      uses_(tree_, std::move(policy), o.capacity_pages),
      components_({.window = o.window_pages.has_value(), .state = o.state, .host = o.host},
                  uses_.hazard_index()),
      shelves_(tree_, uses_, components_, {.host = o.host, .mirrors_first = o.mirrors_first}),
      holds_(tree_, shelves_, components_, o.window_pages.value_or(0)),
      residency_(tree_, shelves_, components_),
      matcher_({tree_, components_, shelves_, residency_}, o.window_pages.value_or(0)),
      retention_(tree_, shelves_),
      evictor_({tree_, uses_, components_, shelves_, residency_, retention_},
               {o.snapshot_interval_pages, o.max_snapshots_per_path}) {
  PANDO_CHECK(o.numbered || (!o.window_pages && !o.state && !o.host),
              "pages without numbers, but with components or a host tier");
  tree_.on_split = [this](NodeIndex upper, NodeIndex lower) {
    reach(upper);
    uses_.split(upper, lower);
    holds_.split(upper, lower);
    residency_.split(upper, lower);
    retention_.split(upper, lower);
    shelves_.split(upper, lower);
  };
}

// ---- Growing -----------------------------------------------------------------------------------

// The tables that parts have by node index go as far as this one.
void RadixIndex::reach(NodeIndex i) {
  uses_.reach(i);
  shelves_.reach(i);
  retention_.reach(i);
}

NodeIndex RadixIndex::root(std::string_view ns) {
  if (const NodeIndex known = tree_.find_root(ns)) return known;
  const NodeIndex index = tree_.add_root(ns);
  reach(index);
  retention_.add_root(index);
  return index;
}

NodeIndex RadixIndex::hang_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages,
                                const std::uint32_t* pages) {
  const NodeIndex leaf = tree_.add_leaf(parent, tokens, num_pages, pages);
  reach(leaf);
  shelves_.add_leaf(leaf);
  return leaf;
}

NodeIndex RadixIndex::add_leaf(NodeIndex parent, const Token* tokens,
                               std::span<const std::uint32_t> pages) {
  const NodeIndex leaf =
      hang_leaf(parent, tokens, static_cast<std::uint32_t>(pages.size()), pages.data());
  uses_.add(leaf);
  residency_.add_leaf(leaf);
  return leaf;
}

NodeIndex RadixIndex::add_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages) {
  const NodeIndex leaf = hang_leaf(parent, tokens, num_pages, nullptr);
  uses_.add(leaf);
  return leaf;
}

NodeIndex RadixIndex::add_host_leaf(NodeIndex parent, const Token* tokens,
                                    const Residency::HostExtent& copy) {
  const auto num_pages = static_cast<std::uint32_t>(copy.pages.size());
  const NodeIndex leaf = hang_leaf(parent, tokens, num_pages, nullptr);
  uses_.add_known(leaf);
  residency_.attach_host(leaf, copy);
  return leaf;
}

NodeIndex RadixIndex::join_child(NodeIndex upper) {
  PANDO_CHECK(!shelves_.places_path(), "node {} has components or tiers", upper);
  const NodeIndex lower = tree_.join_child(upper);
  if (lower != kNoNode) shelves_.reenter(lower);  // a policy may look at the length
  return lower;
}

// ---- Using -------------------------------------------------------------------------------------

void RadixIndex::touch(NodeIndex end) {
  shelves_.leave_path(end);
  uses_.touch(end);
  shelves_.enter_path(end);
}

void RadixIndex::touch_insert(NodeIndex end, const Uses::Insert& insert) {
  uses_.tell_new(end);
  shelves_.leave_path(end);
  uses_.touch_insert(end, insert);
  shelves_.enter_path(end);
}

void RadixIndex::finish_use(NodeIndex end) {
  if (!uses_.learns()) return;
  shelves_.leave_path(end);
  uses_.finish(end);
  shelves_.enter_path(end);
}

// ---- Letting go --------------------------------------------------------------------------------

void RadixIndex::unlock(NodeIndex node, Released& out) {
  holds_.unlock(node);
  Evicted ignored;
  evictor_.drop_if_bare(node, out, ignored);
}

void RadixIndex::unlock_host(NodeIndex node, Released& out) {
  holds_.unlock_host(node);
  Evicted ignored;
  evictor_.drop_if_bare(node, out, ignored);
}

// ---- Telling -----------------------------------------------------------------------------------

Sizes RadixIndex::sizes(ComponentKind kind) const {
  const Sizes pages = shelves_.sizes(Tier::device, kind);
  const std::size_t each = kind == ComponentKind::state ? 1 : page_size();
  return {pages.evictable * each, pages.protected_tokens * each, pages.total * each};
}

std::size_t RadixIndex::memory_bytes() const {
  return sizeof(*this) + tree_.memory_bytes() + uses_.memory_bytes() + shelves_.memory_bytes() +
         retention_.memory_bytes();
}

Status RadixIndex::check(const HoldCounts& counts) const {
  if (Status s = tree_.check(); !s) return s;
  if (Status s = uses_.check(); !s) return s;
  if (Status s = shelves_.check(); !s) return s;
  if (Status s = holds_.check({counts.locks, counts.state_locks, counts.host_locks}); !s) return s;
  if (Status s = residency_.check(); !s) return s;
  if (Status s = retention_.check({counts.pins, counts.device_pins}); !s) return s;
  return evictor_.check();
}

}  // namespace pando
