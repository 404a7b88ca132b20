// SPDX-License-Identifier: Apache-2.0
// What a cache with priorities, pins, sessions and tenants should hold, found by looking at every
// page: a map from (namespace, tokens up to the end of a page) to what is known of that page. One
// tier, lru. The retention model compares PrefixCache with it after every operation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pando/types.h"

namespace pando::testing {

class RetentionReference {
 public:
  static constexpr std::size_t kPage = 2;
  static constexpr int kSessionLevel = 3;
  static constexpr std::int64_t kForever = INT64_MAX;

  using Tokens = std::vector<Token>;
  using PageKey = std::pair<std::string, Tokens>;
  struct Page {
    std::uint64_t used = 0;
    int pins = 0;
    bool common = false;
    std::vector<std::pair<int, std::int64_t>> grants;  // level, until
  };
  struct Session {
    bool active = true;
    std::int64_t idle_after = 0;
    std::int64_t idle_at = 0;
    std::vector<PageKey> ends;
  };
  struct Tenant {
    std::size_t floor = 0;
    std::size_t cap = SIZE_MAX;
  };

  std::map<PageKey, Page> pages;
  std::map<std::uint64_t, Session> sessions;
  std::map<std::uint64_t, std::pair<PageKey, std::int64_t>> pins;  // end, until
  std::vector<Tenant> tenants = std::vector<Tenant>(1);            // by owner, in pages
  std::map<std::string, std::size_t> owners;                       // of namespaces
  std::int64_t now = 0;

  static PageKey parent(PageKey key) {
    key.second.resize(key.second.size() - kPage);
    return key;
  }
  static PageKey page_of(const std::string& ns, const Tokens& tokens, std::size_t i) {
    return {ns,
            Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * kPage))};
  }
  static bool is_on_path(const PageKey& above, const PageKey& end) {
    return above.first == end.first && above.second.size() <= end.second.size() &&
           std::equal(above.second.begin(), above.second.end(), end.second.begin());
  }
  static std::vector<PageKey> path(const PageKey& end) {
    std::vector<PageKey> all;
    for (std::size_t i = 0; i < end.second.size() / kPage; ++i)
      all.push_back(page_of(end.first, end.second, i));
    return all;
  }

  std::size_t found(const std::string& ns, const Tokens& tokens) const {
    std::size_t n = 0;
    while (n < tokens.size() / kPage && pages.contains(page_of(ns, tokens, n))) ++n;
    return n;
  }
  std::size_t owner(const std::string& ns) const {
    const auto at = owners.find(ns);
    return at == owners.end() ? 0 : at->second;
  }
  std::size_t has(std::size_t who) const {
    return static_cast<std::size_t>(std::count_if(
        pages.begin(), pages.end(), [&](const auto& p) { return owner(p.first.first) == who; }));
  }
  std::size_t num_pinned() const {
    return static_cast<std::size_t>(
        std::count_if(pages.begin(), pages.end(), [](const auto& p) { return p.second.pins > 0; }));
  }

  // ---- Using ----

  void match(const std::string& ns, const Tokens& tokens) {
    const std::size_t n = found(ns, tokens);
    ++used_;
    for (std::size_t i = 0; i < n; ++i) {
      pages.at(page_of(ns, tokens, i)).used = used_;
      pages.at(page_of(ns, tokens, i)).common = true;
    }
  }

  void insert(const std::string& ns, const Tokens& tokens, std::uint64_t session) {
    ++used_;
    const std::size_t n = tokens.size() / kPage;
    for (std::size_t i = 0; i < n; ++i) {
      Page& page = pages[page_of(ns, tokens, i)];
      page.used = used_;
      page.common = page.common || session == 0;
    }
    if (session != 0) use_session(session, page_of(ns, tokens, n - 1));
  }

  void grant(const PageKey& end, std::size_t from, std::size_t to, int level, std::int64_t until) {
    const auto all = path(end);
    for (std::size_t i = from / kPage; i < std::min((to + kPage - 1) / kPage, all.size()); ++i)
      pages.at(all[i]).grants.emplace_back(level, until);
  }

  // ---- Sessions ----

  void use_session(std::uint64_t id, std::optional<PageKey> end) {
    Session& session = sessions.at(id);
    session.active = true;
    session.idle_at = now + session.idle_after;
    if (!end) return;
    std::erase_if(session.ends, [&](const PageKey& known) { return is_on_path(known, *end); });
    session.ends.push_back(*end);
  }

  void close_session(std::uint64_t id) {
    const std::vector<PageKey> ends = sessions.at(id).ends;
    sessions.erase(id);
    for (PageKey at : ends) {
      while (pages.contains(at) && is_leaf(at) && pages.at(at).pins == 0 && !pages.at(at).common &&
             !is_used_by_session(at, false)) {
        erase(at);
        at = parent(at);
      }
    }
  }

  // ---- Time ----

  void pass(std::int64_t to) {
    now = to;
    for (auto& [key, page] : pages)
      std::erase_if(page.grants, [&](const auto& grant) { return grant.second <= now; });
    for (auto& [id, session] : sessions) session.active = session.active && session.idle_at > now;
    for (auto at = pins.begin(); at != pins.end();) {
      const auto next = std::next(at);
      if (at->second.second <= now) unpin(at->first);
      at = next;
    }
  }

  void pin(std::uint64_t id, const PageKey& end, std::int64_t until) {
    pins[id] = {end, until};
    for (const PageKey& key : path(end)) ++pages.at(key).pins;
  }
  void unpin(std::uint64_t id) {
    for (const PageKey& key : path(pins.at(id).first)) --pages.at(key).pins;
    pins.erase(id);
  }

  // ---- Going ----

  /// Pages freed for `by`.
  std::size_t evict(std::size_t n, std::size_t by) {
    std::size_t freed = 0;
    for (; freed < n; ++freed) {
      const std::optional<PageKey> victim = next(by);
      if (!victim) break;
      erase(*victim);
    }
    return freed;
  }

  void enforce_cap(std::size_t who, const std::optional<PageKey>& end = {}) {
    while (has(who) > tenants[who].cap) {
      const auto victim = best([&](const PageKey& key) {
        return owner(key.first) == who && !(end && is_on_path(key, *end));
      });
      if (!victim) return;
      erase(*victim);
    }
  }

 private:
  bool is_leaf(const PageKey& key) const {
    const auto after = pages.upper_bound(key);
    return after == pages.end() || !is_on_path(key, after->first);
  }
  bool is_used_by_session(const PageKey& key, bool only_active) const {
    for (const auto& [id, session] : sessions) {
      if (only_active && !session.active) continue;
      for (const PageKey& end : session.ends) {
        if (is_on_path(key, end)) return true;
      }
    }
    return false;
  }
  int level(const PageKey& key) const {
    const Page& page = pages.at(key);
    int highest = page.grants.empty() ? 0 : INT32_MIN;
    for (const auto& [level, until] : page.grants) highest = std::max(highest, level);
    return is_used_by_session(key, true) ? std::max(highest, kSessionLevel) : highest;
  }
  std::optional<PageKey> best(const std::function<bool(const PageKey&)>& may_go) const {
    std::optional<PageKey> found;
    std::pair<int, std::uint64_t> rank;
    for (const auto& [key, page] : pages) {
      if (page.pins > 0 || !is_leaf(key) || !may_go(key)) continue;
      const std::pair here{level(key), page.used};
      if (found && rank <= here) continue;
      found = key;
      rank = here;
    }
    return found;
  }
  std::optional<PageKey> next(std::size_t by) const {
    const auto of = [&](std::size_t who) {
      return best([&, who](const PageKey& key) { return owner(key.first) == who; });
    };
    if (has(by) > tenants[by].cap) {
      if (const auto own = of(by)) return own;
    }
    for (std::size_t who = 0; who < tenants.size(); ++who) {
      if (has(who) <= tenants[who].cap || has(who) <= tenants[who].floor) continue;
      if (const auto theirs = of(who)) return theirs;
    }
    const auto any = best([&](const PageKey& key) {
      const std::size_t who = owner(key.first);
      return has(who) > tenants[who].floor;
    });
    return any ? any : of(by);
  }
  void erase(const PageKey& key) {
    pages.erase(key);
    for (auto& [id, session] : sessions) {
      for (PageKey& end : session.ends) {
        if (end == key) end = parent(end);
      }
      std::erase_if(session.ends, [](const PageKey& end) { return end.second.empty(); });
    }
  }

  std::uint64_t used_ = 0;
};

}  // namespace pando::testing
