// SPDX-License-Identifier: Apache-2.0
// The tree and the store: which nodes are put, and what of a key that the tree lacks is fetched and
// hung into it, on the host.
//
// With components an end must be valid: the window before it, and a snapshot at it, are asked for
// and fetched too. They fit one end alone, so there a fetch is kept as a whole or not at all.
#include <algorithm>

#include "base/check.h"
#include "base/page_hash.h"
#include "base/tokens.h"
#include "cache/tree_tiers.h"

namespace pando {
namespace {

constexpr std::uint32_t kFull = 0, kWindow = 1, kState = 2;  // as ComponentKind

}  // namespace

/// `asked` has the pages of full attention, then their windows, then the snapshots at their ends.
struct TreeTiers::NodeFetch final : FetchTarget {
  std::string ns;
  std::vector<Token> tokens;    // of the whole key
  NodeId anchor = {};           // ends at page `from`; nothing at the start
  std::size_t from = 0;         // page of the key
  std::size_t num_asked = 0;    // pages
  std::size_t num_pages = 0;    // to fetch
  std::size_t window_from = 0;  // of these, the first whose window is fetched too
};

// ---- Putting -----------------------------------------------------------------------------------

// What was there before goes to the store when it is hit.
void TreeTiers::store_attached() {
  index_.tree().keep_hashes();
  index_.tree().for_each_node([this](NodeIndex i, const Node& node) {
    if (node.on_host) index_.residency().set_unstored(i, true);
  });
}

bool TreeTiers::is_unstored(std::uint64_t entry) const {
  const NodeIndex i = resolve(entry);
  return i != kNoNode && index_.node(i).on_host && index_.node(i).unstored;
}

// From the top of the path, as everything that a fetch can use.
std::optional<Extent> TreeTiers::hold_unstored(std::uint64_t entry, std::vector<NamedPage>& pages) {
  NodeIndex first = kNoNode;
  for (NodeIndex i = resolve(entry); i != kNoNode && !index_.node(i).is_root();
       i = index_.node(i).parent) {
    if (index_.node(i).on_host && index_.node(i).unstored) first = i;
  }
  if (first == kNoNode) return std::nullopt;
  const Node& node = index_.node(first);
  const PageHash* const hashes = index_.tree().edges().hashes(node);
  const auto add = [&](std::uint32_t component, std::span<const HostPageId> of) {
    for (std::size_t p = 0; p < of.size(); ++p) pages.push_back({{component, hashes[p]}, of[p]});
  };
  add(kFull, index_.residency().host_pages(node));
  if (index_.residency().has_host_window(first))
    add(kWindow, index_.residency().host_window_pages(node));
  if (index_.residency().has_host_snapshot(first))
    pages.push_back(
        {{kState, hashes[node.num_pages - 1]}, index_.residency().host_snapshot(first)});
  index_.residency().set_unstored(first, false);
  index_.holds().lock_host(first);
  ++num_host_locks_;
  return Extent{.entry = entry_of(index_.id(first)),
                .begin = node.begin_pages(),
                .num_pages = node.num_pages,
                .num_tokens = static_cast<std::uint32_t>(node.num_pages * index_.page_size())};
}

void TreeTiers::put_ended(const Extent& extent, bool stored) {
  const NodeIndex end = resolve(extent.entry);
  for (NodeIndex i = end; !stored && index_.node(i).end_pages > extent.begin;
       i = index_.node(i).parent)
    index_.residency().set_unstored(i, true);
  index_.unlock_host(end, core_.released);
  --num_host_locks_;
}

// ---- Asking ------------------------------------------------------------------------------------

Result<Prefetch> TreeTiers::prefetch(const Key& key) {
  const std::size_t page_size = index_.page_size();
  const Tree::Cursor walked = index_.tree().descend(key, nullptr);
  const std::size_t total = index_.tree().shape().num_pages(key);
  if (Status s =
          refuse_negative(key.tokens, walked.pages * page_size, key.tokens.size(), "prefetch");
      !s)
    return s.error();
  StoreFetches& fetches = engine.store()->fetches;
  const std::size_t n = total - walked.pages;
  if (const PrefetchOutcome may = fetches.may_fetch(n * page_size); may != PrefetchOutcome::started)
    return Prefetch{may};
  auto fetch = std::make_unique<NodeFetch>();
  fetch->owner = index_.retention().owner(key.ns);
  fetch->num_tokens = n * page_size;
  fetch->ns = key.ns;
  fetch->tokens.assign(key.tokens.begin(), key.tokens.end());
  fetch->from = walked.pages;
  fetch->num_asked = n;
  std::optional<PageHash> parent = chain_start(key.ns);
  if (walked.pages > 0) {
    const NodeIndex anchor = index_.tree().split_at(walked);
    const Node& node = index_.node(anchor);
    parent = index_.tree().edges().hashes(node)[node.num_pages - 1];
    fetch->anchor = index_.id(anchor);
    index_.holds().lock_host(anchor);
    ++num_host_locks_;
  }
  std::vector<PageHash> hashes(n);
  hash_page_chain(parent ? &*parent : nullptr, key.tokens.data() + walked.pages * page_size, n,
                  page_size, core_.options.bigram, hashes.data());
  for (const std::uint32_t component : {kFull, kWindow, kState}) {
    if (component == kWindow && !core_.options.window) continue;
    if (component == kState && !core_.options.state) continue;
    for (const PageHash& hash : hashes) fetch->asked.push_back({component, hash});
  }
  return Prefetch{PrefetchOutcome::started, fetches.begin(std::move(fetch))};
}

// Pages of window within reach that end with the node, unbroken; all of them count as endless.
std::size_t TreeTiers::unbroken_window(NodeIndex node) const {
  std::size_t run = 0;
  NodeIndex i = node;
  for (; !index_.node(i).is_root(); i = index_.node(i).parent) {
    if (!index_.residency().has_window(i) && !index_.residency().has_host_window(i)) return run;
    run += index_.node(i).num_pages;
  }
  return SIZE_MAX / 2;
}

// The most pages, from the first and within the limit, that the store has and on whose end all
// components agree. Windows and the snapshot are read first.
std::size_t TreeTiers::choose(FetchTarget& target, const std::function<bool(std::size_t)>& has,
                              std::size_t limit) {
  auto& fetch = static_cast<NodeFetch&>(target);
  const std::size_t n = fetch.num_asked;
  const bool with_window = core_.options.window.has_value();
  const bool with_state = core_.options.state.has_value();
  const std::size_t states_at = with_window ? 2 * n : n;
  std::size_t best = 0;
  std::size_t run = fetch.anchor ? unbroken_window(index_.resolve(fetch.anchor)) : SIZE_MAX / 2;
  for (std::size_t i = 0; i < std::min(n, limit / index_.page_size()) && has(i); ++i) {
    if (with_window) run = has(n + i) ? run + 1 : 0;
    const bool window_reaches = !with_window || run >= index_.matcher().window_pages();
    if (window_reaches && (!with_state || has(states_at + i))) best = i + 1;
  }
  fetch.num_pages = best;
  fetch.window_from = with_window ? best - std::min(best, index_.matcher().window_pages()) : best;
  fetch.wanted.clear();
  const auto want = [&](std::size_t at) { fetch.wanted.push_back(static_cast<std::uint32_t>(at)); };
  for (std::size_t i = fetch.window_from; i < best; ++i) want(n + i);
  if (with_state && best > 0) want(states_at + best - 1);
  for (std::size_t i = 0; i < best; ++i) want(i);
  return best * index_.page_size();
}

// ---- Into the tree -----------------------------------------------------------------------------

// The tree may have got some of it meanwhile; those pages are not needed any more.
std::size_t TreeTiers::keep(FetchTarget& target, std::span<FetchedPage> pages) {
  auto& fetch = static_cast<NodeFetch&>(target);
  const auto arrived = static_cast<std::size_t>(
      std::find_if(pages.begin(), pages.end(), [](const FetchedPage& p) { return !p.arrived; }) -
      pages.begin());
  const bool hybrid = core_.options.window || core_.options.state;
  if (arrived == 0 || (hybrid && arrived < pages.size())) return 0;
  if (fetch.anchor && index_.node(index_.resolve(fetch.anchor)).cut_off) return 0;
  const std::size_t num_pages = hybrid ? fetch.num_pages : arrived;
  const std::size_t page_size = index_.page_size();
  const std::size_t end = fetch.from + num_pages;
  const std::size_t overlap = core_.options.bigram ? 1 : 0;
  const Key key{std::span<const Token>(fetch.tokens).first(end * page_size + overlap), fetch.ns};
  const Tree::Cursor cursor = index_.tree().descend(key, nullptr);
  if (cursor.pages >= end) return 0;
  NodeIndex node = cursor.node == kNoNode ? index_.root(fetch.ns) : index_.tree().split_at(cursor);
  // Where windows begin, a node begins.
  const std::size_t window_from =
      core_.options.window ? fetch.from + fetch.window_from : cursor.pages;
  const std::size_t first_window = std::max(window_from, cursor.pages);
  if (first_window > cursor.pages) node = hang(fetch, pages, node, cursor.pages, first_window);
  node = hang(fetch, pages, node, first_window, end);
  index_.touch(node);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::size_t page = fetch.wanted[i] % fetch.num_asked + fetch.from;  // of the key
    const std::size_t from = pages[i].component == kWindow ? first_window : cursor.pages;
    pages[i].kept = page >= from && page < end;
  }
  return (end - cursor.pages) * page_size;
}

// Pages [begin, end) of the key, which have arrived, below `parent`.
NodeIndex TreeTiers::hang(const NodeFetch& fetch, std::span<const FetchedPage> pages,
                          NodeIndex parent, std::size_t begin, std::size_t end) {
  std::array<std::vector<HostPageId>, 3> of;  // by component
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::size_t page = fetch.wanted[i] % fetch.num_asked + fetch.from;
    if (page >= begin && page < end) of[pages[i].component].push_back(pages[i].page);
  }
  Residency::HostExtent on_host{.pages = of[kFull], .window_pages = of[kWindow]};
  if (!of[kState].empty()) on_host.snapshot = of[kState][0];
  const NodeIndex node =
      index_.add_host_leaf(parent, fetch.tokens.data() + begin * index_.page_size(), on_host);
  core_.record_stored(Tier::host, node);
  return node;
}

void TreeTiers::fetch_ended(FetchTarget& target) {
  const auto& fetch = static_cast<NodeFetch&>(target);
  if (!fetch.anchor) return;
  index_.unlock_host(index_.resolve(fetch.anchor), core_.released);
  --num_host_locks_;
}

}  // namespace pando
