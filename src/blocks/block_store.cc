// SPDX-License-Identifier: Apache-2.0
// Blocks on their way to the store and back; see the header.
#include "blocks/block_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/page_hash.h"

namespace pando {
namespace {

constexpr std::string_view kSaltedPrefix{"pando-salted-block-v1\0", 22};

ComponentKind component_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::full:
      break;
    case GroupKind::sliding_window:
    case GroupKind::chunked_local:
      return ComponentKind::window;
    case GroupKind::recurrent:
      return ComponentKind::state;
  }
  return ComponentKind::full;
}

}  // namespace

bool BlockStore::Fetch::is_quiet() const {
  return (!question || question->finished()) &&
         std::all_of(calls.begin(), calls.end(), [](const StoreCall& c) { return c.finished(); });
}

BlockStore::BlockStore(std::span<const BlockGroup> groups, const BlockPool& pool, BlockHost& host,
                       OpenedStorage opened)
    : groups_(groups), host_(host), opened_(std::move(opened)), search_(groups, pool, &host) {
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    const HostPool& pages = host.pages(g);
    spaces_.emplace_back(opened_.scope, pages.geometry(), pages.layout(),
                         component_of(groups[g].kind), g);
  }
  // A state stands for a block of tokens.
  const std::size_t rows = default_prefetch_tokens(groups[0].pools);
  const std::size_t tokens = rows / host.pages(0).geometry().page_size * groups[0].block_size;
  max_tokens_ = opened_.prefetch.max_tokens.value_or(tokens);
  host.for_each([this](std::uint32_t group, HostPageId page) { put(group, page); });
}

BlockStore::~BlockStore() { abandon(); }

void BlockStore::abandon() {
  for (const Put& put : puts_) put.call.cancel();
  for (const Put& put : puts_) {
    (void)put.call.wait();
    for (const auto& [group, page] : put.pages) host_.release(group, page);
  }
  puts_.clear();
  for (const auto& [group, page] : waiting_) host_.release(group, page);
  waiting_.clear();
  for (Fetch& fetch : fetches_) {
    if (fetch.question) fetch.question->cancel();
    for (const StoreCall& call : fetch.calls) call.cancel();
  }
  for (Fetch& fetch : fetches_) {
    if (fetch.question) (void)fetch.question->wait();
    for (const StoreCall& call : fetch.calls) (void)call.wait();
    settle(fetch);
    occupied_tokens_ -= fetch.occupied;
  }
  fetches_.clear();
}

// In the store only the first hash counts: one that may be another's goes by a name of its own.
std::string BlockStore::key_of(const BlockContent& content) const {
  const PageHash& hash = content.hash->value;
  if (!content.alias) return spaces_[content.group].key(hash);
  std::string text(kSaltedPrefix);
  text.append(reinterpret_cast<const char*>(hash.data()), hash.size());
  return spaces_[content.group].key(digest_of(text));
}

StorePage BlockStore::page_of(HostPageId page, const BlockContent& content) const {
  StorePage out{.key = key_of(content)};
  const std::vector<MemoryRegion> regions = *host_.pages(content.group).page_regions(page);
  for (const MemoryRegion& region : regions)
    out.pieces.emplace_back(region.address, region.size_bytes);
  return out;
}

// ---- Putting -----------------------------------------------------------------------------------

void BlockStore::put(std::uint32_t group, HostPageId page) {
  if (!spaces_[group].writes()) return;
  host_.hold(group, page);
  waiting_.emplace_back(group, page);
}

// A queue without room is asked again at the next poll().
void BlockStore::start_puts() {
  while (!waiting_.empty()) {
    const std::size_t n = std::min(waiting_.size(), kBatchPages);
    std::vector<std::pair<std::uint32_t, HostPageId>> pages(
        waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n));
    std::vector<StorePage> batch;
    for (const auto& [group, page] : pages)
      batch.push_back(page_of(page, host_.content(group, page)));
    Result<StoreCall> call = store().put(std::move(batch));
    if (!call) return;
    puts_.push_back({std::move(pages), *call});
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n));
  }
}

// ---- Fetching ----------------------------------------------------------------------------------

Result<Prefetch> BlockStore::prefetch(const BlockKeys& keys, std::size_t limit) {
  search_.begin(keys);
  const std::size_t have = search_.longest(limit, HitSearch::Reach::host);
  const std::size_t hashed = keys.hashes.size() * keys.unit;
  const std::size_t most = std::min(limit, hashed) / search_.align() * search_.align();
  if (most <= have) return Prefetch{PrefetchOutcome::nothing_to_fetch};
  const std::size_t num_tokens = most - have;
  if (num_tokens < opened_.prefetch.threshold) return Prefetch{PrefetchOutcome::below_threshold};
  if (occupied_tokens_ + num_tokens > max_tokens_) return Prefetch{PrefetchOutcome::rate_limited};

  Fetch fetch;
  fetch.tokens.assign(keys.tokens.begin(), keys.tokens.end());
  fetch.hashes.assign(keys.hashes.begin(), keys.hashes.end());
  fetch.unit = keys.unit;
  fetch.ns = keys.ns;
  fetch.alias = keys.alias;
  fetch.limit = most;
  std::vector<std::string> question;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const std::size_t size = groups_[g].block_size;
    for (std::size_t i = needed_from(groups_[g], have); i < most / size; ++i) {
      if (search_.has(g, i, HitSearch::Reach::host)) continue;
      fetch.asked.push_back({g, i, {}});
      question.push_back(key_of(keys.content(g, size, i)));
    }
  }
  Result<StoreCall> call = store().exists(std::move(question));
  if (!call) return Prefetch{PrefetchOutcome::rate_limited};
  fetch.question = *call;
  fetch.id = PrefetchId{++last_id_};
  fetch.started = opened_.now();
  fetch.occupied = num_tokens;
  occupied_tokens_ += num_tokens;
  ++host_.stats.prefetches;
  const PrefetchId id = fetch.id;
  fetches_.push_back(std::move(fetch));
  return Prefetch{PrefetchOutcome::started, id};
}

// The question is answered: reads the blocks that the longest hit needs, as far as there is room.
void BlockStore::read(Fetch& fetch) {
  search_.begin(fetch.keys());
  for (std::size_t i = 0; i < fetch.asked.size(); ++i) {
    if (fetch.question->outcome(i) == PageOutcome::done)
      search_.add_stored(fetch.asked[i].group, fetch.asked[i].block);
  }
  fetch.question.reset();
  const std::size_t have = search_.longest(fetch.limit, HitSearch::Reach::host);
  const std::size_t length = search_.longest(fetch.limit, HitSearch::Reach::store);
  host_.stats.prefetch_hit_tokens += length - have;
  std::vector<StorePage> batch;
  const auto send = [&] {
    Result<StoreCall> call = store().get(std::exchange(batch, {}));
    if (call) fetch.calls.push_back(*call);
    return call.ok();
  };
  bool taken = length >= have + opened_.prefetch.threshold;
  for (std::uint32_t g = 0; g < groups_.size() && taken; ++g) {
    const std::size_t size = groups_[g].block_size;
    for (std::size_t i = needed_from(groups_[g], length); i < length / size && taken; ++i) {
      if (search_.has(g, i, HitSearch::Reach::host)) continue;
      Result<std::vector<HostPageId>> page = host_.reserve(g, 1);
      taken = page.ok();
      if (!taken) break;
      fetch.wanted.push_back({g, i, page->front()});
      batch.push_back(page_of(page->front(), fetch.keys().content(g, size, i)));
      if (batch.size() == kBatchPages) taken = send();
    }
  }
  if (!batch.empty()) send();
  if (fetch.wanted.empty()) ++host_.stats.revoked_prefetches;
}

// Keeps what has arrived. Once nobody touches the other pages any more, they are given up.
void BlockStore::settle(Fetch& fetch) {
  const bool quiet = fetch.is_quiet();
  for (std::size_t at = 0; at < fetch.wanted.size(); ++at) {
    Wanted& wanted = fetch.wanted[at];
    const std::size_t call = at / kBatchPages;  // behind the calls are pages that a queue refused
    const PageOutcome now = call < fetch.calls.size() ? fetch.calls[call].outcome(at % kBatchPages)
                                                      : PageOutcome::failed;
    if (wanted.settled || (now != PageOutcome::done && !quiet)) continue;
    wanted.settled = true;
    if (now != PageOutcome::done) {
      host_.give_up(wanted.group, {&wanted.page, 1});
      continue;
    }
    const std::size_t size = groups_[wanted.group].block_size;
    const BlockContent content = fetch.keys().content(wanted.group, size, wanted.block);
    if (!host_.keep_fetched(wanted.page, content, wanted.block)) continue;
    ++fetch.num_kept;
    host_.stats.prefetched_tokens += size;
    if (on_fetched) on_fetched(fetch.keys(), wanted.group, wanted.block);
  }
}

bool BlockStore::is_ready(PrefetchId id) const {
  for (const Fetch& fetch : fetches_) {
    if (fetch.id != id) continue;
    if (opened_.prefetch.policy == PrefetchPolicy::best_effort ||
        opened_.is_late(fetch.started, fetch.occupied))
      return true;
    return !fetch.question && fetch.is_quiet();
  }
  return true;
}

std::size_t BlockStore::end(PrefetchId id) {
  for (Fetch& fetch : fetches_) {
    if (fetch.id != id || fetch.ended) continue;
    fetch.ended = true;
    if (fetch.question) fetch.question->cancel();
    for (const StoreCall& call : fetch.calls) call.cancel();
    settle(fetch);
    return fetch.num_kept;
  }
  return 0;
}

// ---- Ends --------------------------------------------------------------------------------------

void BlockStore::poll(PollResult& result) {
  start_puts();
  std::erase_if(puts_, [&](const Put& put) {
    if (!put.call.finished()) return false;
    std::size_t failed = 0;
    for (std::size_t i = 0; i < put.pages.size(); ++i) {
      const auto& [group, page] = put.pages[i];
      const bool done = put.call.outcome(i) == PageOutcome::done;
      failed += done ? 0 : 1;
      host_.stats.stored_tokens += done ? groups_[group].block_size : 0;
      host_.release(group, page);
    }
    host_.stats.failed_puts += failed;
    ++(failed == 0 ? result.stored : result.failures);
    return true;
  });
  std::erase_if(fetches_, [&](Fetch& fetch) {
    if (fetch.question && fetch.question->finished() && !fetch.ended) read(fetch);
    settle(fetch);
    if (!fetch.is_quiet() || !fetch.ended) return false;  // its caller wants to know what came
    occupied_tokens_ -= fetch.occupied;
    return true;
  });
}

std::vector<std::size_t> BlockStore::num_reserved() const {
  std::vector<std::size_t> out(groups_.size());
  for (const Fetch& fetch : fetches_) {
    for (const Wanted& wanted : fetch.wanted) out[wanted.group] += wanted.settled ? 0 : 1;
  }
  return out;
}

}  // namespace pando
