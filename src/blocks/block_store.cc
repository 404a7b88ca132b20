// SPDX-License-Identifier: Apache-2.0
// Blocks and the store: what is put, and which blocks that neither device nor host have are fetched
// to the host.
#include <algorithm>

#include "base/check.h"
#include "base/page_hash.h"
#include "blocks/block_tiers.h"

namespace pando {
namespace {

constexpr std::string_view kSaltedPrefix{"pando-salted-block-v1\0", 22};

// In the store only the first hash counts: one that may be another's goes by a name of its own.
PageName name_of(const BlockContent& content) {
  const PageHash& hash = content.hash->value;
  if (!content.alias) return {content.group, hash};
  std::string text(kSaltedPrefix);
  text.append(reinterpret_cast<const char*>(hash.data()), hash.size());
  return {content.group, digest_of(text)};
}

}  // namespace

struct BlockTiers::BlockFetch final : FetchTarget {
  std::vector<Token> tokens;
  std::vector<BlockHash> hashes;
  std::size_t unit = 1;
  std::string ns;
  bool alias = false;
  std::size_t have = 0;                   // tokens that were on device or host when it began
  std::vector<std::size_t> asked_blocks;  // the block of its group, of each of `asked`

  BlockKeys keys() const { return {tokens, hashes, unit, ns, alias}; }
};

// ---- Putting -----------------------------------------------------------------------------------

// A state stands for a block of tokens.
std::size_t BlockTiers::default_fetch_tokens() const {
  const BlockGroup& group = groups_[0];
  return default_prefetch_tokens(group.pools) / group.pools.host->geometry().page_size *
         group.block_size;
}

void BlockTiers::store_attached() {
  host_.set_all_unstored();
  host_.for_each_unused(
      [this](std::uint32_t group, HostPageId page) { engine.put(entry_of(group, page)); });
}

void BlockTiers::put_unstored(std::span<const PageId> blocks) {
  for (const PageId block : blocks) {
    if (block == kNullBlock || !pool_.has_content(block)) continue;
    const BlockContent content = pool_.content(block);
    const std::optional<HostPageId> page = host_.find(content);
    if (page && host_.is_unstored(content.group, *page)) engine.put(entry_of(content.group, *page));
  }
}

bool BlockTiers::is_unstored(std::uint64_t entry) const {
  return host_.is_unstored(group_of(entry), page_of(entry)) &&
         entry_of(group_of(entry), page_of(entry)) == entry;
}

std::optional<Extent> BlockTiers::hold_unstored(std::uint64_t entry,
                                                std::vector<NamedPage>& pages) {
  if (!is_unstored(entry)) return std::nullopt;
  const std::uint32_t group = group_of(entry);
  const HostPageId page = page_of(entry);
  pages.push_back({name_of(host_.content(group, page)), page});
  host_.set_unstored(group, page, false);
  host_.hold(group, page);
  return Extent{.entry = entry,
                .num_pages = 1,
                .num_tokens = static_cast<std::uint32_t>(groups_[group].block_size)};
}

void BlockTiers::put_ended(const Extent& extent, bool stored) {
  if (!stored) host_.set_unstored(group_of(extent.entry), page_of(extent.entry), true);
  host_.release(group_of(extent.entry), page_of(extent.entry));
}

// ---- Fetching ----------------------------------------------------------------------------------

Prefetch BlockTiers::prefetch(const BlockKeys& keys, std::size_t limit) {
  search_.begin(keys);
  const std::size_t have = search_.longest(limit, HitSearch::Reach::host);
  const std::size_t hashed = keys.hashes.size() * keys.unit;
  const std::size_t most = std::min(limit, hashed) / search_.align() * search_.align();
  StoreFetches& fetches = engine.store()->fetches;
  const std::size_t num_tokens = most - std::min(most, have);
  if (const PrefetchOutcome may = fetches.may_fetch(num_tokens); may != PrefetchOutcome::started)
    return {may};
  auto fetch = std::make_unique<BlockFetch>();
  fetch->num_tokens = num_tokens;
  fetch->tokens.assign(keys.tokens.begin(), keys.tokens.end());
  fetch->hashes.assign(keys.hashes.begin(), keys.hashes.end());
  fetch->unit = keys.unit;
  fetch->ns = keys.ns;
  fetch->alias = keys.alias;
  fetch->have = have;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const std::size_t size = groups_[g].block_size;
    for (std::size_t i = needed_from(groups_[g], have); i < most / size; ++i) {
      if (search_.has(g, i, HitSearch::Reach::host)) continue;
      fetch->asked.push_back(name_of(keys.content(g, size, i)));
      fetch->asked_blocks.push_back(i);
    }
  }
  return {PrefetchOutcome::started, fetches.begin(std::move(fetch))};
}

// What the longest hit needs, as far as there is room.
std::size_t BlockTiers::choose(FetchTarget& target, const std::function<bool(std::size_t)>& has,
                               std::size_t limit) {
  auto& fetch = static_cast<BlockFetch&>(target);
  search_.begin(fetch.keys());
  for (std::size_t at = 0; at < fetch.asked.size(); ++at) {
    if (has(at)) search_.add_stored(fetch.asked[at].component, fetch.asked_blocks[at]);
  }
  const std::size_t most = fetch.have + std::min(limit, fetch.num_tokens);
  const std::size_t length = search_.longest(most, HitSearch::Reach::store);
  fetch.wanted.clear();
  if (length <= fetch.have) return 0;
  std::vector<std::size_t> room(groups_.size());
  for (std::size_t g = 0; g < room.size(); ++g) room[g] = engine.room.available(g, fetch.owner);
  for (std::size_t at = 0; at < fetch.asked.size(); ++at) {
    const std::uint32_t g = fetch.asked[at].component;
    const std::size_t i = fetch.asked_blocks[at];
    const bool is_needed =
        i >= needed_from(groups_[g], length) && i < length / groups_[g].block_size;
    if (!is_needed || search_.has(g, i, HitSearch::Reach::host)) continue;
    if (room[g] == 0) break;
    --room[g];
    fetch.wanted.push_back(static_cast<std::uint32_t>(at));
  }
  return length - fetch.have;
}

// Of the tokens that groups have got, the most: a prefix has as many as its longest group.
std::size_t BlockTiers::keep(FetchTarget& target, std::span<FetchedPage> pages) {
  const auto& fetch = static_cast<const BlockFetch&>(target);
  const BlockKeys keys = fetch.keys();
  std::vector<std::size_t> tokens(groups_.size());
  for (std::size_t k = 0; k < pages.size(); ++k) {
    if (!pages[k].arrived) continue;
    const std::uint32_t g = pages[k].component;
    const std::size_t i = fetch.asked_blocks[fetch.wanted[k]];
    const BlockContent content = keys.content(g, groups_[g].block_size, i);
    if (host_.find(content)) continue;
    pages[k].kept = true;
    host_.keep(pages[k].page, content,
               hazard_ != nullptr ? hazard_->new_rank(g, i) : Draw::Candidate{});
    tokens[g] += groups_[g].block_size;
    if (on_fetched) on_fetched(keys, g, i);
  }
  return *std::max_element(tokens.begin(), tokens.end());
}

}  // namespace pando
