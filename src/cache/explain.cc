// SPDX-License-Identifier: Apache-2.0
// PrefixCache::explain: walks the key, then looks up page by page what the tree does not have.
#include "pando/explain.h"

#include <algorithm>
#include <array>

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

Result<Explanation> PrefixCache::explain(const Key& key) const {
  const RadixIndex& index = impl_->index;
  const CacheOptions& options = impl_->options;
  const std::size_t page_size = index.page_size();
  const std::size_t num_tokens = key.tokens.size();
  if (Status s = refuse_negative(key.tokens, 0, num_tokens, "explain"); !s) return s.error();
  Explanation told;
  if (impl_->record) {
    told.matches = impl_->record->matches();
    told.forgetful = impl_->record->forgetful();
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
  if (impl_->record && total > walked.pages)
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
    if (impl_->record) part.eviction = impl_->record->find(hashes[p]);
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
