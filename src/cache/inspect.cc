// SPDX-License-Identifier: Apache-2.0
// Inspector: sizes and totals, the tree as text; and explain(), which walks the key, then looks up
// page by page what the tree does not have.
#include "pando/inspect.h"

#include <algorithm>
#include <array>

#include "base/bulk.h"
#include "base/check.h"
#include "base/named.h"
#include "base/page_hash.h"
#include "base/tokens.h"
#include "cache/prefix_cache_impl.h"

namespace pando {
namespace {

constexpr Named<Finding> kFindings[] = {
    {Finding::on_device, "on the device"}, {Finding::on_host, "on the host"},
    {Finding::window_gone, "window gone"}, {Finding::no_snapshot, "no snapshot"},
    {Finding::evicted, "evicted"},         {Finding::other_namespace, "other namespace"},
    {Finding::never_seen, "never seen"},   {Finding::shorter_than_a_page, "shorter than a page"},
    {Finding::disabled, "disabled"},
};
constexpr Named<Pressure> kPressures[] = {
    {Pressure::allocate, "room for new tokens"},
    {Pressure::evict_call, "the engine's evict call"},
    {Pressure::load_back, "room for what came back from the host"},
    {Pressure::host_room, "room on the host"},
    {Pressure::tenant_cap, "tenant cap"},
    {Pressure::session_closed, "session closed"},
    {Pressure::failed_load, "a load that failed"},
};

/// Enough to tell a tenant that its prompt is known to others; not a full search.
constexpr std::size_t kMaxOtherNamespaces = 64;

bool same_cause(const KeyPart& a, const KeyPart& b) {
  if (a.finding != b.finding || a.ns != b.ns) return false;
  if (!a.eviction) return true;
  return a.eviction->from == b.eviction->from && a.eviction->at_match == b.eviction->at_match &&
         a.eviction->pressure == b.eviction->pressure;
}

/// Appends, or lengthens the last part where nothing but the length is new.
void add(std::vector<KeyPart>& parts, KeyPart part) {
  if (part.from == part.to) return;
  if (!parts.empty() && same_cause(parts.back(), part)) {
    parts.back().to = part.to;
  } else {
    parts.push_back(std::move(part));
  }
}

/// What another namespace has of the same tokens.
struct Elsewhere {
  std::string ns;
  std::size_t num_pages = 0;
};

}  // namespace

std::string_view to_string(Finding finding) { return name_of(kFindings, finding); }
std::string_view to_string(Pressure pressure) { return name_of(kPressures, pressure); }

Sizes Inspector::sizes(ComponentKind kind) const { return cache_.index.sizes(kind); }
CacheStats Inspector::stats() const { return cache_.stats; }
std::size_t Inspector::num_nodes() const { return cache_.index.num_nodes(); }
std::string Inspector::dump() const { return cache_.index.dump(); }
std::uint64_t Inspector::digest() const { return cache_.index.digest(); }

Sizes Inspector::host_sizes(ComponentKind kind) const {
  const Sizes pages = cache_.index.shelves().sizes(Tier::host, kind);
  const std::size_t by = kind == ComponentKind::state ? 1 : cache_.index.page_size();
  return {pages.evictable * by, pages.protected_tokens * by, pages.total * by};
}

std::size_t Inspector::capacity_tokens(Tier tier) const {
  if (tier == Tier::host && cache_.tier)
    return cache_.tier->pools(ComponentKind::full).host->num_pages() * cache_.index.page_size();
  const PagedAllocator* const full = cache_.ledger.full_side();
  return tier == Tier::device && full != nullptr ? full->capacity() : 0;
}

std::size_t Inspector::memory_bytes() const {
  return sizeof(PrefixCacheImpl) - sizeof(RadixIndex) + cache_.index.memory_bytes() +
         cache_.ledger.memory_bytes() + cache_.states.memory_bytes();
}

std::vector<SlotId> Inspector::all_slots() const {
  const std::vector<PageId> pages = cache_.index.all_pages();
  std::vector<SlotId> slots(pages.size() * cache_.index.page_size());
  expand_pages(pages, cache_.index.page_size(), slots.data());
  return slots;
}

std::vector<KvEvent> Inspector::events_of_all() const {
  if (!cache_.events) return {};
  const RadixIndex& index = cache_.index;
  std::vector<NodeIndex> nodes;
  index.tree().for_each_node([&](NodeIndex i, const Node& node) {
    if (!node.cut_off) nodes.push_back(i);
  });
  std::sort(nodes.begin(), nodes.end(), [&](NodeIndex a, NodeIndex b) {
    return std::pair(index.node(a).end_pages, a) < std::pair(index.node(b).end_pages, b);
  });
  EventLog log(index.page_size(), cache_.options.bigram ? 1 : 0);
  for (const Tier tier : {Tier::device, Tier::host}) {
    for (const NodeIndex i : nodes) {
      const Node& node = index.node(i);
      if (tier == Tier::device ? node.on_device() : node.on_host)
        cache_.record_stored(log, tier, i);
    }
  }
  return log.take();
}

Result<Explanation> Inspector::explain(const Key& key) const {
  const RadixIndex& index = cache_.index;
  const CacheOptions& options = cache_.options;
  const std::size_t page_size = index.page_size();
  const std::size_t num_tokens = key.tokens.size();
  if (Status s = refuse_negative(key.tokens, 0, num_tokens, "explain"); !s) return s.error();
  Explanation told;
  if (cache_.record) {
    told.matches = cache_.record->matches();
    told.forgetful = cache_.record->forgetful();
  }
  if (options.disabled) {
    add(told.parts, {0, num_tokens, Finding::disabled, {}, {}});
    return told;
  }
  const Tree::Cursor walked = index.tree().descend(key, nullptr);
  const std::size_t device = index.matcher().valid_end(walked, Matcher::Reach::device).pages;
  const std::size_t host = index.matcher().valid_end(walked, Matcher::Reach::host).pages;
  const std::size_t with_window =
      index.matcher().valid_end(walked, Matcher::Reach::host, /*with_state=*/false).pages;
  const auto pages = [&](std::size_t from, std::size_t to, Finding finding) {
    add(told.parts, {from * page_size, to * page_size, finding, {}, {}});
  };
  pages(0, device, Finding::on_device);
  pages(device, std::max(device, host), Finding::on_host);
  pages(std::max(device, host), walked.pages,
        with_window == walked.pages ? Finding::no_snapshot : Finding::window_gone);

  const std::size_t total = index.tree().shape().num_pages(key);
  std::vector<PageHash> hashes;
  if (cache_.record && total > walked.pages)
    hashes = *hash_pages(key.tokens, page_size, options.bigram, chain_start(key.ns));
  std::vector<Elsewhere> others;
  if (total > walked.pages) {
    for (const std::string_view ns : index.tree().namespaces(kMaxOtherNamespaces)) {
      const std::size_t found = index.tree().descend({key.tokens, ns}, nullptr).pages;
      if (ns != key.ns && found > walked.pages) others.push_back({std::string(ns), found});
    }
  }
  for (std::size_t p = walked.pages; p < total; ++p) {
    KeyPart part{p * page_size, (p + 1) * page_size, Finding::never_seen, {}, {}};
    if (cache_.record) part.eviction = cache_.record->find(hashes[p]);
    if (part.eviction) part.finding = Finding::evicted;
    for (const Elsewhere& other : others) {
      if (part.finding != Finding::never_seen || p >= other.num_pages) continue;
      part.finding = Finding::other_namespace;
      part.ns = other.ns;
    }
    add(told.parts, std::move(part));
  }
  add(told.parts, {total * page_size, num_tokens, Finding::shorter_than_a_page, {}, {}});
  return told;
}

}  // namespace pando
