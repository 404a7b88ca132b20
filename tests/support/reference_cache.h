// SPDX-License-Identifier: Apache-2.0
// The dumbest correct prefix cache: a map from (namespace, every token up to the end of a page) to
// what is known of that page. No tree, no node sharing, no order: victims are found by looking at
// everything. Model tests compare PrefixCache with it after every operation.
//
// Page by page it says the same as a tree of nodes, because whatever is used together has the same
// stats; where node boundaries show (whole-node eviction, the reach of a partial hold) a flag on
// the first page of a node is enough.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pando/cache.h"

namespace pando::testing {

class ReferenceCache {
 public:
  ReferenceCache(std::size_t page_size, bool bigram, bool whole_nodes, std::string policy);

  using Tokens = std::vector<Token>;
  /// Names a page by all that leads to it.
  using PageKey = std::pair<std::string, Tokens>;

  struct Found {
    std::size_t num_pages = 0;
    MatchEnd end = MatchEnd::no_such_child;
    std::vector<std::uint32_t> pages;
    std::optional<PageKey> last;  // the page at the end
    std::uint64_t last_uid = 0;
    std::size_t partial_length = 0;
    std::set<std::uint32_t> partial_pages;  // any of these may be named
  };

  std::size_t num_pages(const Tokens& tokens) const;
  /// What a match would find; changes nothing.
  Found look(const std::string& ns, const Tokens& tokens) const;
  /// The same as a use: recency, and a node boundary at the end.
  Found match(const std::string& ns, const Tokens& tokens);
  /// Returns the caller's pages that are duplicates. `pages` has one for each whole page.
  std::vector<std::uint32_t> insert(const std::string& ns, const Tokens& tokens,
                                    const std::vector<std::uint32_t>& pages, std::int32_t priority,
                                    bool chunked);
  /// The pages that leave, in the order they do.
  std::vector<std::uint32_t> evict(std::size_t num_pages);
  void clear() { pages_.clear(); }

  /// The last page of the node that holds `page`.
  PageKey node_end(std::uint32_t page) const;
  std::uint64_t uid(const PageKey& key) const { return pages_.at(key).uid; }
  bool exists(const PageKey& key, std::uint64_t uid) const;
  /// Adds to the locks of every page from the start to `end`.
  void lock(const PageKey& end, int by);

  std::size_t total_pages() const { return pages_.size(); }
  std::size_t locked_pages() const;
  std::set<std::uint32_t> owned() const;
  /// Hashes of all pages, computed from scratch.
  std::set<PageHash> hashes() const;

 private:
  struct Page {
    std::uint32_t page = 0;
    std::uint64_t uid = 0;
    std::uint64_t last_access = 0;
    std::uint64_t created = 0;
    std::uint32_t hits = 0;
    std::int32_t priority = 0;
    int locks = 0;
    bool starts_node = false;
  };
  using Pages = std::map<PageKey, Page>;

  PageKey page_key(const std::string& ns, const Tokens& tokens, std::size_t index) const;
  std::size_t depth(const PageKey& key) const;  // pages before it
  bool is_child(const PageKey& parent, const PageKey& child) const;
  std::vector<PageKey> children(const std::string& ns, const Tokens& tokens,
                                std::size_t num_pages) const;
  void boundary(const std::string& ns, const Tokens& tokens, std::size_t num_pages);
  std::optional<PageKey> victim() const;

  std::size_t page_size_;
  std::size_t overlap_;
  bool whole_nodes_;
  std::string policy_;
  Pages pages_;
  std::uint64_t now_ = 0;
  std::uint64_t next_uid_ = 1;
};

}  // namespace pando::testing
