// SPDX-License-Identifier: Apache-2.0
// Walking, splitting and growing. Locks and eviction are in radix_evict.cc, proofs and pictures in
// radix_check.cc.
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
      numbered_(options.numbered),
      overlap_(options.bigram ? 1 : 0),
      with_hashes_(options.hashes),
      host_(options.host),
      mirrors_first_(options.host && options.mirrors_first),
      window_pages_(options.window_pages.value_or(0)),
      snapshot_interval_pages_(options.snapshot_interval_pages),
      max_snapshots_per_path_(options.max_snapshots_per_path),
      policy_(std::move(policy)),
      segments_(page_size_, overlap_, options.window_pages ? 2 : 1, options.numbered,
                policy_->hazard().has_value()),
      hazard_(policy_->hazard() ? std::make_unique<HazardNodes>(options.capacity_pages, page_size_)
                                : nullptr),
      branches_(nodes_, page_size_ + overlap_),
      device_shelf_(Shelf::Kind::leaves, hazard_index()),
      host_shelf_(Shelf::Kind::leaves, hazard_index()),
      mirror_shelf_(Shelf::Kind::mirrors, hazard_index()) {
  PANDO_CHECK(numbered_ || (!options.window_pages && !options.state && !options.host),
              "pages without numbers, but with components or a host tier");
  Random random(options.hash_seed);
  for (std::uint64_t& word : secret_) word = random.next();
  if (options.window_pages) window_.emplace(Component::Weight::pages, hazard_index());
  if (options.state) state_.emplace(Component::Weight::one, hazard_index());
  if (options.host && window_) host_window_.emplace(Component::Weight::pages, hazard_index());
  if (options.host && state_) host_state_.emplace(Component::Weight::one, hazard_index());
  const std::optional<HazardOptions> hazard = policy_->hazard();
  if (hazard && hazard->cost_aware && hazard->attention_tokens)
    set_attention_tokens(*hazard->attention_tokens);
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
  const Cursor root{find_root(key.ns, hash_namespace(key.ns)), 0, 0};
  return root.node == kNoNode ? root : descend(root, key, out);
}

RadixIndex::Cursor RadixIndex::descend_behind(NodeIndex node, const Key& key) const {
  return descend({node, nodes_[node].num_pages, nodes_[node].end_pages}, key, nullptr);
}

RadixIndex::Cursor RadixIndex::descend(Cursor cursor, const Key& key, SlotId* out) const {
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
    if (out != nullptr && nodes_[child].on_device())
      expand_pages(nodes_[child].pages, agree, page_size_, out + cursor.pages * page_size_);
    cursor.node = child;
    cursor.pages_in_node = static_cast<std::uint32_t>(agree);
    cursor.pages += agree;
  }
  return cursor;
}

// From the walk's end upwards: `best` is the deepest end that still may do, and `run` how much
// window is known to lie unbroken before it. A tombstone, or a node without a snapshot, makes the
// next end above it the one to try.
RadixIndex::Cursor RadixIndex::valid_end(const Cursor& cursor, Reach reach, bool with_state) const {
  if (!places_path()) return cursor;
  const bool any_state = !state_ || !with_state;
  std::optional<Cursor> best;
  std::size_t run = 0;
  NodeIndex i = cursor.node;
  std::uint32_t n = cursor.pages_in_node;
  for (std::size_t end = cursor.pages; end > 0; n = nodes_[i].num_pages) {
    if ((reach == Reach::device && !nodes_[i].on_device()) || !window_in_reach(i, reach)) {
      best.reset();
    } else if (!best && (any_state || (n == nodes_[i].num_pages && snapshot_in_reach(i, reach)))) {
      best = Cursor{i, n, end};
      run = 0;
    }
    run += n;
    if (best && (!window_ || run >= window_pages_)) return *best;
    end -= n;
    i = nodes_[i].parent;
  }
  return best.value_or(Cursor{i, 0, 0});
}

bool RadixIndex::is_valid_end(NodeIndex node, Reach reach) const {
  const Cursor cursor{node, nodes_[node].num_pages, nodes_[node].end_pages};
  return valid_end(cursor, reach).pages == cursor.pages;
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
  if (same <= overlap_ || !has_window(at) || !nodes_[at].on_device()) return {};
  return {at, nodes_[at].pages[page], same - overlap_};
}

// ---- Growing -----------------------------------------------------------------------------------

NodeIndex RadixIndex::new_node() {
  const NodeIndex index = nodes_.alloc();
  if (window_) window_->reach(index);
  if (state_) state_->reach(index);
  if (host_window_) host_window_->reach(index);
  if (host_state_) host_state_->reach(index);
  if (hazard_) hazard_->reach(index);
  if (retention_) retention_->reach(index);
  return index;
}

std::vector<std::string_view> RadixIndex::namespaces(std::size_t max) const {
  std::vector<std::string_view> names;
  for (const NodeIndex i : roots()) {
    if (names.size() < max) names.push_back(nodes_[i].info->name);
  }
  return names;
}

std::vector<std::string> RadixIndex::all_namespaces() const {
  std::vector<std::string> names;
  for (const NodeIndex i : roots()) names.push_back(nodes_[i].info->name);
  return names;
}

NodeIndex RadixIndex::root(std::string_view ns) {
  const std::uint32_t hash = hash_namespace(ns);
  if (const NodeIndex known = find_root(ns, hash)) return known;
  const NodeIndex index = new_node();
  Node& node = nodes_[index];
  node.info = std::make_unique<NamespaceInfo>(
      NamespaceInfo{std::string(ns), with_hashes_ ? chain_start(ns) : std::nullopt});
  node.hash = hash;
  node.owner = owner(ns);
  children_.insert(node.hash, index);
  return index;
}

void RadixIndex::set_slice(Node& node, Segment* segment, std::uint32_t offset,
                           std::uint32_t num_pages, bool on_device) {
  node.segment = segment;
  node.offset_pages = offset;
  node.num_pages = num_pages;
  node.tokens = segment->tokens() + offset * page_size_;
  node.pages = on_device ? segment->pages() + offset : nullptr;
}

NodeIndex RadixIndex::settle(const Cursor& cursor) {
  if (cursor.pages_in_node == nodes_[cursor.node].num_pages) return cursor.node;
  return split(cursor.node, cursor.pages_in_node);
}

NodeIndex RadixIndex::split(NodeIndex lower_index, std::uint32_t at_page) {
  const NodeIndex upper_index = new_node();
  Node& upper = nodes_[upper_index];
  Node& lower = nodes_[lower_index];
  leave_order(lower_index);  // a policy may look at the length
  children_.erase(lower.hash, lower_index);

  upper.hash = lower.hash;
  upper.parent = lower.parent;
  upper.locks = lower.locks > 0 ? 1 : 0;
  upper.last_access = lower.last_access;
  upper.created = lower.created;
  upper.hits = lower.hits;
  upper.priority = lower.priority;
  upper.num_children = 1;
  upper.device_children = lower.on_device() ? 1 : 0;
  upper.host_locks = lower.host_locks > 0 ? 1 : 0;
  upper.on_host = lower.on_host;
  upper.backing_up = lower.backing_up;
  upper.unstored = lower.unstored;
  upper.owner = lower.owner;
  upper.level = lower.level;
  upper.end_pages = lower.begin_pages() + at_page;
  ++lower.segment->refs;
  set_slice(upper, lower.segment, lower.offset_pages, at_page, lower.on_device());
  branches_.replace(lower_index, upper_index);
  upper.children = lower_index;

  set_slice(lower, lower.segment, lower.offset_pages + at_page, lower.num_pages - at_page,
            lower.on_device());
  lower.parent = upper_index;
  lower.hash = hash_page(upper_index, lower.tokens);
  children_.insert(upper.hash, upper_index);
  children_.insert(lower.hash, lower_index);
  if (hazard_) hazard_->split(upper_index, lower_index);
  if (retention_) retention_->split(upper_index, lower_index);
  enter_order(lower_index);
  if (window_) window_->copy(upper_index, lower_index);  // a snapshot stays at the end
  if (host_window_) host_window_->copy(upper_index, lower_index);
  if (has_components()) {
    place_components(upper_index);
    place_components(lower_index);
  }
  return upper_index;
}

// On the device with `pages`, on the host only without.
NodeIndex RadixIndex::hang_leaf(NodeIndex parent_index, const Token* tokens,
                                std::uint32_t num_pages, const std::uint32_t* pages) {
  const NodeIndex index = new_node();
  Node& node = nodes_[index];
  Segment* segment = segments_.create(num_pages, with_hashes_);
  std::copy_n(tokens, segments_.num_tokens(num_pages), segment->tokens());
  if (pages != nullptr) std::copy_n(pages, num_pages, segment->pages());
  const bool on_device = pages != nullptr || !numbered_;
  set_slice(node, segment, 0, num_pages, on_device);
  node.parent = parent_index;
  node.owner = nodes_[parent_index].owner;
  node.hash = hash_page(parent_index, tokens);
  if (with_hashes_)
    hash_page_chain(parent_hash(node), tokens, num_pages, page_size_, overlap_ != 0,
                    segment->hashes.get());
  if (hazard_) name_pages(index);
  children_.insert(node.hash, index);
  branches_.insert(index);
  leave_order(parent_index);
  Node& parent = nodes_[parent_index];
  ++parent.num_children;
  if (on_device) ++parent.device_children;
  if (host_) enter_order(parent_index);  // may still leave the device above a leaf on the host
  node.end_pages = parent.end_pages + num_pages;
  return index;
}

NodeIndex RadixIndex::add_leaf(NodeIndex parent, const Token* tokens,
                               std::span<const std::uint32_t> pages) {
  const NodeIndex index =
      hang_leaf(parent, tokens, static_cast<std::uint32_t>(pages.size()), pages.data());
  device_shelf_.add(nodes_[index].owner, pages.size(), /*evictable=*/true);
  if (window_) window_->add(index, nodes_[index]);
  return index;
}

NodeIndex RadixIndex::add_leaf(NodeIndex parent, const Token* tokens, std::uint32_t num_pages) {
  const NodeIndex index = hang_leaf(parent, tokens, num_pages, nullptr);
  device_shelf_.add(nodes_[index].owner, num_pages, /*evictable=*/true);
  return index;
}

// What is before the child in its block is the node, or has to be put there.
NodeIndex RadixIndex::join_child(NodeIndex upper_index) {
  PANDO_CHECK(!places_path() && !with_hashes_ && nodes_[upper_index].num_children == 1,
              "node {} with {} children cannot join them", upper_index,
              nodes_[upper_index].num_children);
  Node& upper = nodes_[upper_index];
  const NodeIndex lower_index = upper.children;
  Node& lower = nodes_[lower_index];
  const std::uint32_t num_pages = upper.num_pages + lower.num_pages;
  Segment* const above = upper.segment;
  if (above != lower.segment && lower.segment->refs > 1) return kNoNode;
  leave_order(lower_index);  // a policy may look at the length
  children_.erase(upper.hash, upper_index);
  children_.erase(lower.hash, lower_index);
  branches_.replace(upper_index, lower_index);
  lower.hash = upper.hash;
  lower.parent = upper.parent;
  children_.insert(lower.hash, lower_index);
  if (above == lower.segment) {
    set_slice(lower, above, upper.offset_pages, num_pages, true);
    segments_.release(above);
  } else {
    join_blocks(upper_index, lower_index);
  }
  nodes_.free(upper_index);
  enter_order(lower_index);
  return lower_index;
}

// The tokens of both in a new block; the upper one's was the end of what its own block holds.
void RadixIndex::join_blocks(NodeIndex upper_index, NodeIndex lower_index) {
  const Node& upper = nodes_[upper_index];
  Node& lower = nodes_[lower_index];
  const std::uint32_t num_pages = upper.num_pages + lower.num_pages;
  Segment* joined = segments_.create(num_pages, false);
  const std::size_t upper_tokens = upper.num_pages * page_size_;
  std::copy_n(upper.tokens, upper_tokens, joined->tokens());
  std::copy_n(lower.tokens, segments_.num_tokens(lower.num_pages), joined->tokens() + upper_tokens);
  if (numbered_) {
    std::copy_n(upper.pages, upper.num_pages, joined->pages());
    std::copy_n(lower.pages, lower.num_pages, joined->pages() + upper.num_pages);
  }
  segments_.release(lower.segment);
  set_slice(lower, joined, 0, num_pages, true);
  release_slice(upper_index);
}

void RadixIndex::bury_head(NodeIndex leaf, std::uint32_t pages) {
  if (pages == 0) return;
  const NodeIndex head = split(leaf, pages);
  window_->drop(head, nodes_[head]);
}

void RadixIndex::revive(NodeIndex index, std::uint32_t first,
                        std::span<const std::uint32_t> pages) {
  if (first > 0) split(index, first);
  Node& node = nodes_[index];
  std::copy(pages.begin(), pages.end(), node.pages);
  window_->add(index, node);
}

void RadixIndex::add_snapshot(NodeIndex node, StateSlot slot) {
  state_->add(node, nodes_[node], slot);
}

// Without tiers only the end of a path can be in an order; with them also where the device part
// ends.
void RadixIndex::touch(NodeIndex end) {
  ++now_;
  leave_order(end);
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (host_) leave_order(i);
    nodes_[i].last_access = now_;
  }
  enter_order(end);
  if (places_path()) place_path(end);
}

// Its path has new keys: out of all orders first.
void RadixIndex::finish_use(NodeIndex end) {
  if (!hazard_) return;
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) leave_order(i);
  observe(end, /*finished=*/true);
  enter_order(end);
  if (places_path()) place_path(end);
}

void RadixIndex::touch_insert(NodeIndex end, const Use& use) {
  ++now_;
  if (hazard_) tell_new(end);
  leave_order(end);
  for (NodeIndex i = end; !nodes_[i].is_root(); i = nodes_[i].parent) {
    if (host_) leave_order(i);
    Node& node = nodes_[i];
    if (node.created == 0) {  // the leaf this insert added
      node.created = now_;
      node.priority = use.priority;
    }
    node.last_access = now_;
    node.priority = std::max(node.priority, use.priority);
    node.hits += use.chunked ? 0 : 1;
  }
  if (hazard_) observe(end, !use.unfinished);
  enter_order(end);
  if (places_path()) place_path(end);
}

// ---- Telling -----------------------------------------------------------------------------------

RadixIndex::Cursor RadixIndex::device_end(Cursor cursor) const {
  while (cursor.pages > 0 && !nodes_[cursor.node].on_device()) {
    cursor.pages -= cursor.pages_in_node;
    cursor.node = nodes_[cursor.node].parent;
    cursor.pages_in_node = nodes_[cursor.node].num_pages;
  }
  return cursor;
}

const std::string& RadixIndex::namespace_of(NodeIndex node) const {
  while (!nodes_[node].is_root()) node = nodes_[node].parent;
  return nodes_[node].info->name;
}

const PageHash* RadixIndex::parent_hash(const Node& node) const {
  const Node& parent = nodes_[node.parent];
  if (!parent.is_root()) return hashes(parent) + parent.num_pages - 1;
  return parent.info->chain_start ? &*parent.info->chain_start : nullptr;
}

Sizes RadixIndex::sizes(ComponentKind kind) const {
  const auto scaled = [](const Shelf::Tally& tally, std::size_t by) {
    return Sizes{tally.evictable * by, (tally.total - tally.evictable) * by, tally.total * by};
  };
  const Shelf* const of = shelf(Medium::device, kind);
  if (of == nullptr) return {};
  return scaled(of->sum(), kind == ComponentKind::state ? 1 : page_size_);
}

Shelf* RadixIndex::shelf(Medium tier, ComponentKind kind) {
  const bool device = tier == Medium::device;
  if (!device && !host_) return nullptr;
  if (kind == ComponentKind::full) return device ? &device_shelf_ : &host_shelf_;
  auto& component = kind == ComponentKind::window ? (device ? window_ : host_window_)
                                                  : (device ? state_ : host_state_);
  return component ? &component->shelf() : nullptr;
}

std::size_t RadixIndex::component_bytes() const {
  std::size_t total = 0;
  for (const auto* component : {&window_, &state_, &host_window_, &host_state_})
    total += *component ? (*component)->memory_bytes() : 0;
  return total;
}

std::size_t RadixIndex::memory_bytes() const {
  return sizeof(*this) + nodes_.memory_bytes() + segments_.memory_bytes() +
         children_.memory_bytes() + branches_.memory_bytes() + device_shelf_.memory_bytes() +
         host_shelf_.memory_bytes() + mirror_shelf_.memory_bytes() + component_bytes() +
         (hazard_ ? hazard_->memory_bytes() : 0) + (retention_ ? retention_->memory_bytes() : 0);
}

}  // namespace pando
