// SPDX-License-Identifier: Apache-2.0
// Everything by looking at everything; see the header.
#include "support/reference_cache.h"

#include <algorithm>

namespace pando::testing {

ReferenceCache::ReferenceCache(ReferenceOptions options)
    : options_(std::move(options)),
      page_size_(options_.page_size),
      overlap_(options_.bigram ? 1 : 0) {}

std::size_t ReferenceCache::num_units(const Tokens& tokens) const {
  return tokens.size() <= overlap_ ? 0 : tokens.size() - overlap_;
}

std::size_t ReferenceCache::num_pages(const Tokens& tokens) const {
  return num_units(tokens) / page_size_;
}

ReferenceCache::PageKey ReferenceCache::page_key(const std::string& ns, const Tokens& tokens,
                                                 std::size_t index) const {
  const auto n = static_cast<std::ptrdiff_t>((index + 1) * page_size_ + overlap_);
  return {ns, Tokens(tokens.begin(), tokens.begin() + n)};
}

std::size_t ReferenceCache::depth(const PageKey& key) const {
  return (key.second.size() - overlap_) / page_size_ - 1;
}

// ---- What leads where --------------------------------------------------------------------------

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

bool ReferenceCache::is_leaf(const PageKey& key) const {
  return children(key.first, key.second, depth(key) + 1).empty();
}

bool ReferenceCache::is_node_end(const PageKey& key) const {
  const auto below = children(key.first, key.second, depth(key) + 1);
  return std::all_of(below.begin(), below.end(),
                     [&](const PageKey& child) { return pages_.at(child).starts_node; });
}

bool ReferenceCache::is_bare(const PageKey& key) const {
  const Page& page = pages_.at(key);
  return (options_.window && !page.window) || (options_.state && page.snapshot == 0);
}

// The page after the first n pages begins a node, if the first n end inside one.
void ReferenceCache::boundary(const std::string& ns, const Tokens& tokens, std::size_t n) {
  if (n == 0) return;
  for (const PageKey& child : children(ns, tokens, n)) pages_.at(child).starts_node = true;
}

ReferenceCache::PageKey ReferenceCache::node_end(std::uint32_t page) const {
  const auto start = std::find_if(pages_.begin(), pages_.end(),
                                  [&](const auto& item) { return item.second.page == page; });
  PageKey at = start->first;
  for (bool more = true; more;) {
    more = false;
    for (const PageKey& child : children(at.first, at.second, depth(at) + 1)) {
      if (pages_.at(child).starts_node) continue;
      at = child;
      more = true;
      break;
    }
  }
  return at;
}

// ---- What can be used --------------------------------------------------------------------------

std::size_t ReferenceCache::first_seen(std::size_t end) const {
  return end - std::min(end, *options_.window);
}

bool ReferenceCache::window_reaches(const std::string& ns, const Tokens& tokens,
                                    std::size_t n) const {
  if (!options_.window) return true;
  const std::size_t end = n * page_size_;
  for (std::size_t t = first_seen(end); t < end; ++t) {
    if (!pages_.at(page_key(ns, tokens, t / page_size_)).window) return false;
  }
  return true;
}

bool ReferenceCache::is_valid(const std::string& ns, const Tokens& tokens, std::size_t n) const {
  if (n == 0) return true;
  if (options_.state && pages_.at(page_key(ns, tokens, n - 1)).snapshot == 0) return false;
  return window_reaches(ns, tokens, n);
}

bool ReferenceCache::is_valid_end(const PageKey& key) const {
  return is_valid(key.first, key.second, depth(key) + 1);
}

bool ReferenceCache::has_window(const PageKey& end, std::size_t from_page) const {
  for (std::size_t i = from_page; i <= depth(end); ++i) {
    if (!pages_.at(ancestor(end, i)).window) return false;
  }
  return true;
}

ReferenceCache::Found ReferenceCache::look(const std::string& ns, const Tokens& tokens) const {
  Found found;
  const std::size_t whole = num_pages(tokens);
  while (found.agreed < whole && pages_.contains(page_key(ns, tokens, found.agreed)))
    ++found.agreed;
  found.num_pages = found.agreed;
  while (!is_valid(ns, tokens, found.num_pages)) --found.num_pages;
  for (std::size_t i = 0; i < found.agreed; ++i)
    found.pages.push_back(pages_.at(page_key(ns, tokens, i)).page);
  if (found.num_pages > 0) {
    found.last = page_key(ns, tokens, found.num_pages - 1);
    found.snapshot = pages_.at(*found.last).snapshot;
  }
  const bool known = std::any_of(pages_.begin(), pages_.end(),
                                 [&](const auto& item) { return item.first.first == ns; });
  if (!known) {
    found.end = MatchEnd::namespace_unknown;
  } else if (found.num_pages < found.agreed) {
    found.end =
        window_reaches(ns, tokens, found.agreed) ? MatchEnd::no_snapshot : MatchEnd::window_gone;
  } else if (found.agreed < whole) {
    found.end = MatchEnd::no_such_child;
  } else {
    found.end = found.agreed * page_size_ < num_units(tokens) || whole == 0
                    ? MatchEnd::page_boundary
                    : MatchEnd::whole_key;
  }
  if (!options_.state && found.num_pages == found.agreed) look_inside_page(ns, tokens, found);
  return found;
}

void ReferenceCache::look_inside_page(const std::string& ns, const Tokens& tokens,
                                      Found& found) const {
  for (const PageKey& child : children(ns, tokens, found.num_pages)) {
    const std::size_t from = found.num_pages * page_size_;
    std::size_t same = 0;
    while (from + same < std::min(tokens.size(), child.second.size()) &&
           tokens[from + same] == child.second[from + same])
      ++same;
    const std::size_t agree = same <= overlap_ ? 0 : same - overlap_;
    if (agree == 0 || agree < found.partial_length) continue;
    if (agree > found.partial_length) {
      found.partial_pages.clear();
      found.partial_without_window = false;
    }
    found.partial_length = agree;
    const Page& page = pages_.at(child);
    if (page.window) {
      found.partial_pages.insert(page.page);
    } else {
      found.partial_without_window = true;
    }
  }
  if (found.partial_pages.empty()) found.partial_length = 0;
}

// ---- Using and growing -------------------------------------------------------------------------

ReferenceCache::Found ReferenceCache::match(const std::string& ns, const Tokens& tokens) {
  Found found = look(ns, tokens);
  ++now_;
  for (std::size_t i = 0; i < found.num_pages; ++i)
    pages_.at(page_key(ns, tokens, i)).last_access = now_;
  boundary(ns, tokens, found.num_pages);
  return found;
}

void ReferenceCache::revive(Page& page, std::uint32_t by, Freed& freed) {
  page.window = true;
  if (page.locks == 0) {
    freed.pages.push_back(std::exchange(page.page, by));
  } else {
    freed.moved.emplace_back(by, page.page);
    freed.pages.push_back(by);
  }
}

ReferenceCache::Freed ReferenceCache::insert(const std::string& ns, const Tokens& tokens,
                                             const InsertSpec& spec) {
  Freed freed;
  const std::size_t existing = look(ns, tokens).agreed;
  boundary(ns, tokens, existing);
  ++now_;
  bool revived = false;  // the page before
  for (std::size_t i = 0; i < spec.pages.size(); ++i) {
    Page& page = pages_[page_key(ns, tokens, i)];
    if (i >= existing) {
      page = {
          .page = spec.pages[i], .uid = next_uid_++, .created = now_, .priority = spec.priority};
      page.starts_node = i == existing || i == spec.released_pages;
      page.window = i >= spec.released_pages;
      if (!page.window) freed.window_pages.push_back(page.page);
    } else if (page.page != spec.pages[i] && !page.window && i >= spec.released_pages) {
      page.starts_node = page.starts_node || !revived;
      revive(page, spec.pages[i], freed);
      revived = true;
    } else {
      if (page.page != spec.pages[i]) freed.pages.push_back(spec.pages[i]);
      revived = false;
    }
    page.last_access = now_;
    page.priority = std::max(page.priority, spec.priority);
    page.hits += spec.chunked ? 0 : 1;
  }
  if (options_.state) {
    const PageKey end = page_key(ns, tokens, spec.pages.size() - 1);
    if (pages_.at(end).snapshot != 0) {
      freed.snapshots.push_back(spec.snapshot);
    } else {
      pages_.at(end).snapshot = spec.snapshot;
      thin(end, freed);
    }
  }
  return freed;
}

// Snapshots before `end` that are too close to the one before, then too many.
void ReferenceCache::thin(const PageKey& end, Freed& freed) {
  std::size_t previous = 0;
  const auto drop = [&](Page& page) { freed.snapshots.push_back(std::exchange(page.snapshot, 0)); };
  std::vector<PageKey> left;
  for (std::size_t i = 0; i < depth(end); ++i) {
    const PageKey key = ancestor(end, i);
    Page& page = pages_.at(key);
    if (page.snapshot == 0) continue;
    const bool branches = children(key.first, key.second, i + 1).size() > 1;
    const std::size_t at = (i + 1) * page_size_;
    if (at - previous < options_.state->snapshot_interval && page.snapshot_locks == 0 &&
        !branches) {
      drop(page);
    } else {
      left.push_back(key);
      previous = at;
    }
  }
  for (const bool also_branches : {false, true}) {
    for (const PageKey& key : left) {
      std::size_t count = 1;
      for (const PageKey& other : left) count += pages_.at(other).snapshot != 0 ? 1 : 0;
      Page& page = pages_.at(key);
      const bool branches = children(key.first, key.second, depth(key) + 1).size() > 1;
      if (count <= options_.state->max_per_path || page.snapshot == 0 || page.snapshot_locks > 0 ||
          (branches && !also_branches))
        continue;
      drop(page);
    }
  }
}

// ---- Losing ------------------------------------------------------------------------------------

ReferenceCache::Rank ReferenceCache::rank(const PageKey& key) const {
  const Page& page = pages_.at(key);
  const auto used = static_cast<std::int64_t>(page.last_access);
  const auto made = static_cast<std::int64_t>(page.created);
  const auto deep = static_cast<std::int64_t>(depth(key));
  const std::string& policy = options_.policy;
  if (policy == "lfu") return {page.hits, used, deep};
  if (policy == "fifo") return {made, 0, deep};
  if (policy == "filo") return {-made, 0, deep};
  if (policy == "mru") return {-used, 0, deep};
  if (policy == "priority") return {page.priority, used, deep};
  if (policy == "slru") return {page.hits >= 2 ? 1 : 0, used, deep};
  return {used, 0, deep};
}

std::optional<ReferenceCache::PageKey> ReferenceCache::victim(
    const std::function<bool(const PageKey&)>& may_go) const {
  std::optional<PageKey> best;
  for (const auto& [key, page] : pages_) {
    if (may_go(key) && (!best || rank(key) < rank(*best))) best = key;
  }
  return best;
}

void ReferenceCache::erase_page(const PageKey& key, Freed& freed) {
  const Page& page = pages_.at(key);
  freed.pages.push_back(page.page);
  freed.num_window_pages += options_.window && page.window ? 1 : 0;
  if (page.snapshot != 0) freed.snapshots.push_back(page.snapshot);
  pages_.erase(key);
}

// The whole node that ends here, from its tail, and then what is left bare above it.
void ReferenceCache::drop_node(PageKey end, Freed& freed) {
  for (bool first = false; !first;) {
    first = pages_.at(end).starts_node;
    erase_page(end, freed);
    end.second.resize(end.second.size() - page_size_);
  }
  drop_bare(end, freed);
}

void ReferenceCache::drop_bare(PageKey end, Freed& freed) {
  if (end.second.size() <= overlap_) return;
  if (is_leaf(end) && pages_.at(end).locks == 0 && is_bare(end)) drop_node(end, freed);
}

ReferenceCache::Freed ReferenceCache::evict(std::size_t num_pages, std::size_t num_window_pages,
                                            std::size_t num_snapshots) {
  Freed freed;
  const auto may_go = [&](const PageKey& key) { return is_leaf(key) && pages_.at(key).locks == 0; };
  while (freed.pages.size() < num_pages) {
    std::optional<PageKey> at = victim(may_go);
    if (!at) break;
    const bool starts_node = pages_.at(*at).starts_node;
    if (options_.whole_nodes || options_.state) {
      drop_node(*at, freed);
    } else {
      erase_page(*at, freed);
      at->second.resize(at->second.size() - page_size_);
      if (starts_node) drop_bare(*at, freed);
    }
  }
  while (options_.window && freed.num_window_pages < num_window_pages) {
    std::optional<PageKey> at = victim([&](const PageKey& key) {
      const Page& page = pages_.at(key);
      return page.window && page.window_locks == 0 && is_node_end(key);
    });
    if (!at) break;
    if (may_go(*at)) {
      drop_node(*at, freed);
      continue;
    }
    for (bool first = false; !first; at->second.resize(at->second.size() - page_size_)) {
      Page& page = pages_.at(*at);
      first = page.starts_node;
      page.window = false;
      freed.window_pages.push_back(page.page);
      ++freed.num_window_pages;
    }
  }
  while (options_.state && freed.snapshots.size() < num_snapshots) {
    std::optional<PageKey> at = victim([&](const PageKey& key) {
      return pages_.at(key).snapshot != 0 && pages_.at(key).snapshot_locks == 0;
    });
    if (!at) break;
    if (may_go(*at)) {
      drop_node(*at, freed);
    } else {
      freed.snapshots.push_back(std::exchange(pages_.at(*at).snapshot, 0));
    }
  }
  return freed;
}

// ---- Holding -----------------------------------------------------------------------------------

bool ReferenceCache::exists(const PageKey& key, std::uint64_t uid) const {
  const auto it = pages_.find(key);
  return it != pages_.end() && it->second.uid == uid;
}

ReferenceCache::Freed ReferenceCache::lock(const PageKey& end, int by) {
  Freed freed;
  for (std::size_t i = 0; i <= depth(end); ++i) pages_.at(ancestor(end, i)).locks += by;
  drop_bare(end, freed);
  return freed;
}

std::size_t ReferenceCache::window_hold(const PageKey& end) {
  std::size_t from = depth(end) + 1;
  const std::size_t first_page = first_seen(from * page_size_) / page_size_;
  while (from > first_page && pages_.at(ancestor(end, from - 1)).window) --from;
  boundary(end.first, end.second, from);
  return from;
}

void ReferenceCache::lock_window(const PageKey& end, std::size_t from_page, int by) {
  for (std::size_t i = from_page; i <= depth(end); ++i)
    pages_.at(ancestor(end, i)).window_locks += by;
}

// ---- Counting ----------------------------------------------------------------------------------

ReferenceCache::Count ReferenceCache::count(ComponentKind kind) const {
  Count count;
  for (const auto& [key, page] : pages_) {
    const bool there = kind == ComponentKind::full     ? true
                       : kind == ComponentKind::window ? options_.window && page.window
                                                       : page.snapshot != 0;
    const int locks = kind == ComponentKind::full     ? page.locks
                      : kind == ComponentKind::window ? page.window_locks
                                                      : page.snapshot_locks;
    count.total += there ? 1 : 0;
    count.locked += there && locks > 0 ? 1 : 0;
  }
  return count;
}

std::set<std::uint32_t> ReferenceCache::owned() const {
  std::set<std::uint32_t> out;
  for (const auto& [key, page] : pages_) out.insert(page.page);
  return out;
}

std::set<std::uint32_t> ReferenceCache::owned_windows() const {
  std::set<std::uint32_t> out;
  for (const auto& [key, page] : pages_) {
    if (options_.window && page.window) out.insert(page.page);
  }
  return out;
}

std::set<std::uint32_t> ReferenceCache::owned_snapshots() const {
  std::set<std::uint32_t> out;
  for (const auto& [key, page] : pages_) {
    if (page.snapshot != 0) out.insert(page.snapshot);
  }
  return out;
}

std::set<PageHash> ReferenceCache::hashes() const {
  std::set<PageHash> out;
  for (const auto& [key, page] : pages_)
    out.insert(hash_pages(key.second, page_size_, overlap_ != 0, chain_start(key.first))->back());
  return out;
}

}  // namespace pando::testing
