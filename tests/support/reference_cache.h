// SPDX-License-Identifier: Apache-2.0
// The dumbest correct prefix cache: a map from (namespace, every token up to the end of a page) to
// what is known of that page. No tree, no node sharing, no order: victims are found by looking at
// everything, and whether a prefix can be used is worked out from its pages, for every length.
// Model tests compare PrefixCache with it after every operation.
//
// Page by page it says the same as a tree of nodes, because whatever is used together has the same
// stats; where node boundaries show (whole-node eviction, windows that go node by node, the reach
// of a partial hold) a flag on the first page of a node is enough.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pando/cache.h"

namespace pando::testing {

struct ReferenceOptions {
  std::size_t page_size = 1;
  bool bigram = false;
  bool whole_nodes = false;
  std::string policy = "lru";
  std::optional<std::size_t> window = {};  // tokens
  std::optional<StateOptions> state = {};
};

class ReferenceCache {
 public:
  explicit ReferenceCache(ReferenceOptions options);

  using Tokens = std::vector<Token>;
  /// Names a page by all that leads to it.
  using PageKey = std::pair<std::string, Tokens>;

  struct Found {
    std::size_t num_pages = 0;  // that can be used
    std::size_t agreed = 0;     // that are there
    MatchEnd end = MatchEnd::no_such_child;
    std::vector<std::uint32_t> pages;  // that are there
    std::optional<PageKey> last;       // the page at the end of what can be used
    std::uint32_t snapshot = 0;        // there
    std::size_t partial_length = 0;
    std::set<std::uint32_t> partial_pages;  // any of these may be named
    bool partial_without_window = false;    // or none: one that agrees as long has no window
  };
  /// What an operation lets go of, and whose window it moves.
  struct Freed {
    std::vector<std::uint32_t> pages;         // with the window they may have
    std::vector<std::uint32_t> window_pages;  // only the window
    std::vector<std::uint32_t> snapshots;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> moved;  // window from, to
    std::size_t num_window_pages = 0;  // windows that the tree lost, in either way
  };
  struct InsertSpec {
    std::vector<std::uint32_t> pages;  // one for each whole page
    std::int32_t priority = 0;
    bool chunked = false;
    std::size_t released_pages = 0;
    std::uint32_t snapshot = 0;
  };

  PageKey page_key(const std::string& ns, const Tokens& tokens, std::size_t index) const;
  std::size_t num_pages(const Tokens& tokens) const;
  std::size_t num_units(const Tokens& tokens) const;
  /// What a match would find; changes nothing.
  Found look(const std::string& ns, const Tokens& tokens) const;
  /// The same as a use: recency, and a node boundary at the end.
  Found match(const std::string& ns, const Tokens& tokens);
  Freed insert(const std::string& ns, const Tokens& tokens, const InsertSpec& spec);
  /// In pages, and snapshots.
  Freed evict(std::size_t num_pages, std::size_t num_window_pages, std::size_t num_snapshots);
  void clear() { pages_.clear(); }

  /// The last page of the node that holds `page`.
  PageKey node_end(std::uint32_t page) const;
  std::uint64_t uid(const PageKey& key) const { return pages_.at(key).uid; }
  bool exists(const PageKey& key, std::uint64_t uid) const;
  std::size_t depth(const PageKey& key) const;  // pages before it
  /// Whether the prefix that ends with this page can be used.
  bool is_valid_end(const PageKey& key) const;
  bool has_window(const PageKey& end, std::size_t from_page) const;
  bool has_snapshot(const PageKey& end) const { return pages_.at(end).snapshot != 0; }

  /// Adds to the locks of every page from the start to `end`; taking the last one may free.
  Freed lock(const PageKey& end, int by);
  /// Where a hold on the window before `end` begins; a node boundary from now on.
  std::size_t window_hold(const PageKey& end);
  void lock_window(const PageKey& end, std::size_t from_page, int by);
  void lock_snapshot(const PageKey& end, int by) { pages_.at(end).snapshot_locks += by; }

  struct Count {
    std::size_t total = 0;
    std::size_t locked = 0;
  };
  Count count(ComponentKind kind) const;
  std::set<std::uint32_t> owned() const;
  std::set<std::uint32_t> owned_windows() const;  // pages whose window is here
  std::set<std::uint32_t> owned_snapshots() const;
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
    bool window = true;
    int window_locks = 0;
    std::uint32_t snapshot = 0;  // 0: none
    int snapshot_locks = 0;
  };
  using Pages = std::map<PageKey, Page>;
  using Rank = std::array<std::int64_t, 3>;

  PageKey ancestor(const PageKey& key, std::size_t index) const {
    return page_key(key.first, key.second, index);
  }
  bool is_child(const PageKey& parent, const PageKey& child) const;
  std::vector<PageKey> children(const std::string& ns, const Tokens& tokens,
                                std::size_t num_pages) const;
  bool is_leaf(const PageKey& key) const;
  bool is_node_end(const PageKey& key) const;
  bool is_bare(const PageKey& key) const;
  void boundary(const std::string& ns, const Tokens& tokens, std::size_t num_pages);
  /// The first token that the one at `end` looks back at.
  std::size_t first_seen(std::size_t end) const;
  bool window_reaches(const std::string& ns, const Tokens& tokens, std::size_t num_pages) const;
  bool is_valid(const std::string& ns, const Tokens& tokens, std::size_t num_pages) const;
  void look_inside_page(const std::string& ns, const Tokens& tokens, Found& found) const;
  Rank rank(const PageKey& key) const;
  std::optional<PageKey> victim(const std::function<bool(const PageKey&)>& may_go) const;
  void revive(Page& page, std::uint32_t by, Freed& freed);
  void thin(const PageKey& end, Freed& freed);
  void erase_page(const PageKey& key, Freed& freed);
  void drop_node(PageKey end, Freed& freed);
  void drop_bare(PageKey end, Freed& freed);

  const ReferenceOptions options_;
  const std::size_t page_size_;
  const std::size_t overlap_;
  Pages pages_;
  std::uint64_t now_ = 0;
  std::uint64_t next_uid_ = 1;
};

}  // namespace pando::testing
