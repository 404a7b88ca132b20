// SPDX-License-Identifier: Apache-2.0
// Everything by looking at everything; see the header.
#include "support/reference_cache.h"

#include <algorithm>
#include <tuple>

namespace pando::testing {

ReferenceCache::ReferenceCache(std::size_t page_size, bool bigram, bool whole_nodes,
                               std::string policy)
    : page_size_(page_size),
      overlap_(bigram ? 1 : 0),
      whole_nodes_(whole_nodes),
      policy_(std::move(policy)) {}

std::size_t ReferenceCache::num_pages(const Tokens& tokens) const {
  return tokens.size() <= overlap_ ? 0 : (tokens.size() - overlap_) / page_size_;
}

ReferenceCache::PageKey ReferenceCache::page_key(const std::string& ns, const Tokens& tokens,
                                                 std::size_t index) const {
  const auto n = static_cast<std::ptrdiff_t>((index + 1) * page_size_ + overlap_);
  return {ns, Tokens(tokens.begin(), tokens.begin() + n)};
}

std::size_t ReferenceCache::depth(const PageKey& key) const {
  return (key.second.size() - overlap_) / page_size_ - 1;
}

bool ReferenceCache::is_child(const PageKey& parent, const PageKey& child) const {
  return parent.first == child.first && child.second.size() == parent.second.size() + page_size_ &&
         std::equal(parent.second.begin(), parent.second.end(), child.second.begin());
}

// Pages that follow the first `n` pages of tokens.
std::vector<ReferenceCache::PageKey> ReferenceCache::children(const std::string& ns,
                                                              const Tokens& tokens,
                                                              std::size_t n) const {
  std::vector<PageKey> found;
  for (const auto& [key, page] : pages_) {
    if (key.first != ns || depth(key) != n) continue;
    if (n == 0 || is_child(page_key(ns, tokens, n - 1), key)) found.push_back(key);
  }
  return found;
}

ReferenceCache::Found ReferenceCache::look(const std::string& ns, const Tokens& tokens) const {
  Found found;
  const std::size_t whole = num_pages(tokens);
  while (found.num_pages < whole) {
    const auto it = pages_.find(page_key(ns, tokens, found.num_pages));
    if (it == pages_.end()) break;
    found.pages.push_back(it->second.page);
    found.last = it->first;
    found.last_uid = it->second.uid;
    ++found.num_pages;
  }
  const bool known = std::any_of(pages_.begin(), pages_.end(),
                                 [&](const auto& item) { return item.first.first == ns; });
  const std::size_t units = tokens.size() <= overlap_ ? 0 : tokens.size() - overlap_;
  found.end = !known                                               ? MatchEnd::namespace_unknown
              : found.num_pages < whole                            ? MatchEnd::no_such_child
              : found.num_pages * page_size_ < units || whole == 0 ? MatchEnd::page_boundary
                                                                   : MatchEnd::whole_key;
  for (const PageKey& child : children(ns, tokens, found.num_pages)) {
    const std::size_t from = found.num_pages * page_size_;
    std::size_t same = 0;
    while (from + same < std::min(tokens.size(), child.second.size()) &&
           tokens[from + same] == child.second[from + same])
      ++same;
    const std::size_t agree = same <= overlap_ ? 0 : same - overlap_;
    if (agree == 0 || agree < found.partial_length) continue;
    if (agree > found.partial_length) found.partial_pages.clear();
    found.partial_length = agree;
    found.partial_pages.insert(pages_.at(child).page);
  }
  return found;
}

// The page after the first n pages begins a node, if the first n end inside one.
void ReferenceCache::boundary(const std::string& ns, const Tokens& tokens, std::size_t n) {
  if (n == 0) return;
  for (const PageKey& child : children(ns, tokens, n)) pages_.at(child).starts_node = true;
}

ReferenceCache::Found ReferenceCache::match(const std::string& ns, const Tokens& tokens) {
  Found found = look(ns, tokens);
  ++now_;
  for (std::size_t i = 0; i < found.num_pages; ++i)
    pages_.at(page_key(ns, tokens, i)).last_access = now_;
  boundary(ns, tokens, found.num_pages);
  return found;
}

std::vector<std::uint32_t> ReferenceCache::insert(const std::string& ns, const Tokens& tokens,
                                                  const std::vector<std::uint32_t>& pages,
                                                  std::int32_t priority, bool chunked) {
  std::vector<std::uint32_t> duplicates;
  const Found found = look(ns, tokens);
  boundary(ns, tokens, found.num_pages);
  ++now_;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const bool is_new = i >= found.num_pages;
    Page& page = pages_[page_key(ns, tokens, i)];
    if (is_new) {
      page = {.page = pages[i], .uid = next_uid_++, .created = now_, .priority = priority};
      page.starts_node = i == found.num_pages;
    } else if (page.page != pages[i]) {
      duplicates.push_back(pages[i]);
    }
    page.last_access = now_;
    page.priority = std::max(page.priority, priority);
    page.hits += chunked ? 0 : 1;
  }
  return duplicates;
}

std::optional<ReferenceCache::PageKey> ReferenceCache::victim() const {
  using Rank = std::tuple<std::int64_t, std::int64_t>;
  std::optional<std::pair<Rank, PageKey>> best;
  for (const auto& [key, page] : pages_) {
    if (page.locks > 0) continue;
    const bool leaf = std::none_of(pages_.begin(), pages_.end(), [&, &k = key](const auto& item) {
      return is_child(k, item.first);
    });
    if (!leaf) continue;
    const auto used = static_cast<std::int64_t>(page.last_access);
    const auto made = static_cast<std::int64_t>(page.created);
    const Rank rank = policy_ == "lfu"        ? Rank{page.hits, used}
                      : policy_ == "fifo"     ? Rank{made, 0}
                      : policy_ == "filo"     ? Rank{-made, 0}
                      : policy_ == "mru"      ? Rank{-used, 0}
                      : policy_ == "priority" ? Rank{page.priority, used}
                      : policy_ == "slru"     ? Rank{page.hits >= 2 ? 1 : 0, used}
                                              : Rank{used, 0};
    if (!best || rank < best->first) best = {rank, key};
  }
  if (!best) return {};
  return best->second;
}

std::vector<std::uint32_t> ReferenceCache::evict(std::size_t num_pages) {
  std::vector<std::uint32_t> gone;
  while (gone.size() < num_pages) {
    std::optional<PageKey> at = victim();
    if (!at) break;
    bool more = true;
    while (more) {  // the whole node, from its tail, or just the tail
      const Page page = pages_.at(*at);
      pages_.erase(*at);
      gone.push_back(page.page);
      more = whole_nodes_ && !page.starts_node;
      if (more) at->second.resize(at->second.size() - page_size_);
    }
  }
  return gone;
}

ReferenceCache::PageKey ReferenceCache::node_end(std::uint32_t page) const {
  const auto start = std::find_if(pages_.begin(), pages_.end(),
                                  [&](const auto& item) { return item.second.page == page; });
  PageKey at = start->first;
  for (bool more = true; more;) {
    more = false;
    for (const auto& [key, next] : pages_) {
      if (next.starts_node || !is_child(at, key)) continue;
      at = key;
      more = true;
      break;
    }
  }
  return at;
}

bool ReferenceCache::exists(const PageKey& key, std::uint64_t uid) const {
  const auto it = pages_.find(key);
  return it != pages_.end() && it->second.uid == uid;
}

void ReferenceCache::lock(const PageKey& end, int by) {
  for (std::size_t i = 0; i <= depth(end); ++i)
    pages_.at(page_key(end.first, end.second, i)).locks += by;
}

std::size_t ReferenceCache::locked_pages() const {
  return static_cast<std::size_t>(std::count_if(
      pages_.begin(), pages_.end(), [](const auto& item) { return item.second.locks > 0; }));
}

std::set<std::uint32_t> ReferenceCache::owned() const {
  std::set<std::uint32_t> out;
  for (const auto& [key, page] : pages_) out.insert(page.page);
  return out;
}

std::set<PageHash> ReferenceCache::hashes() const {
  std::set<PageHash> out;
  for (const auto& [key, page] : pages_)
    out.insert(hash_pages(key.second, page_size_, overlap_ != 0, chain_start(key.first))->back());
  return out;
}

}  // namespace pando::testing
