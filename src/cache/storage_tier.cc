// SPDX-License-Identifier: Apache-2.0
// The store's life beside a cache, and pages on their way into it. Fetching is in prefetch.cc.
#include "cache/storage_tier.h"

#include <algorithm>

#include "base/append.h"
#include "base/check.h"

namespace pando {
namespace {

KeySpace space_of(const StoreScope& scope, const TierPools& pools, ComponentKind kind) {
  return KeySpace(scope, pools.host->geometry(), pools.host->layout(), kind);
}

}  // namespace

StorageTier::StorageTier(CacheCore& core, HostTier& host, OpenedStorage opened,
                         std::size_t max_tokens)
    : core_(core),
      index_(core.index),
      host_(host),
      max_tokens_(max_tokens),
      full_space_(space_of(opened.scope, host.pools(ComponentKind::full), ComponentKind::full)),
      opened_(std::move(opened)) {
  if (core.options.window)
    window_space_.emplace(
        space_of(opened_.scope, host.pools(ComponentKind::window), ComponentKind::window));
  if (core.options.state)
    state_space_.emplace(
        space_of(opened_.scope, host.pools(ComponentKind::state), ComponentKind::state));
  index_.tree().keep_hashes();
  index_.tree().for_each_node([this](NodeIndex i, const Node& node) {
    if (node.on_host) index_.residency().set_unstored(i, true);
  });
  host_.on_backed_up = [this](NodeIndex node) { put(node); };
}

StorageTier::~StorageTier() {
  host_.on_backed_up = nullptr;
  abandon();
}

void StorageTier::abandon() {
  for (Fetch& fetch : fetches_) call_off(fetch);
  for (Put& put : puts_) {
    for (const StoreCall& call : put.calls) call.cancel();
  }
  for (Put& put : puts_) {
    for (const StoreCall& call : put.calls) (void)call.wait();
    index_.unlock_host(index_.resolve(put.node), core_.released);
    --num_host_locks_;
  }
  for (Fetch& fetch : fetches_) {
    if (fetch.question) (void)fetch.question->wait();
    for (const StoreCall& call : fetch.calls) (void)call.wait();
    let_go(fetch);
  }
  puts_.clear();
  fetches_.clear();
}

std::vector<StorePage> StorageTier::pages_of(const KeySpace& space, ComponentKind kind,
                                             std::span<const HostPageId> pages,
                                             std::span<const PageHash> hashes) const {
  const HostPool& pool = *host_.pools(kind).host;
  std::vector<StorePage> out;
  out.reserve(pages.size());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    StorePage& page = out.emplace_back(StorePage{.key = space.key(hashes[i])});
    const std::vector<MemoryRegion> regions = *pool.page_regions(pages[i]);
    for (const MemoryRegion& region : regions)
      page.pieces.emplace_back(region.address, region.size_bytes);
  }
  return out;
}

std::vector<std::vector<StorePage>> StorageTier::batches_of(std::vector<StorePage> pages) {
  std::vector<std::vector<StorePage>> batches;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i % kBatchPages == 0) batches.emplace_back();
    batches.back().push_back(std::move(pages[i]));
  }
  return batches;
}

// ---- Putting -----------------------------------------------------------------------------------

// A rank that leaves writing to another holds the node for as long as that one does.
void StorageTier::put(NodeIndex i) {
  if (!full_space_.writes() && core_.ranks.alone()) return;
  Put& put = puts_.emplace_back();
  put.node = index_.id(i);
  put.begin = index_.node(i).begin_pages();
  index_.residency().set_unstored(i, false);
  index_.holds().lock_host(i);
  ++num_host_locks_;
  if (!full_space_.writes()) return;
  const Node& node = index_.node(i);
  const std::span hashes(index_.tree().edges().hashes(node), node.num_pages);
  std::vector<StorePage> pages =
      pages_of(full_space_, ComponentKind::full, index_.residency().host_pages(node), hashes);
  const auto add = [&pages](std::vector<StorePage> more) {
    std::move(more.begin(), more.end(), std::back_inserter(pages));
  };
  if (index_.residency().has_host_window(i))
    add(pages_of(*window_space_, ComponentKind::window, index_.residency().host_window_pages(node),
                 hashes));
  if (index_.residency().has_host_snapshot(i)) {
    const HostPageId snapshot = index_.residency().host_snapshot(i);
    add(pages_of(*state_space_, ComponentKind::state, {&snapshot, 1}, hashes.last(1)));
  }
  put.num_tokens = node.num_pages * index_.page_size();
  put.waiting = batches_of(std::move(pages));
  std::reverse(put.waiting.begin(), put.waiting.end());
  start_put(put);
}

// A queue without room is asked again at the next poll().
void StorageTier::start_put(Put& put) {
  while (!put.waiting.empty()) {
    Result<StoreCall> call = store().put(put.waiting.back());
    if (!call.ok()) return;
    put.calls.push_back(*call);
    put.waiting.pop_back();
  }
}

// From the top, as everything that a fetch can use.
void StorageTier::put_unstored(NodeIndex end) {
  std::vector<NodeIndex> path;
  for (NodeIndex i = end; !index_.node(i).is_root(); i = index_.node(i).parent) {
    if (index_.node(i).on_host && index_.node(i).unstored) path.push_back(i);
  }
  for (; !path.empty(); path.pop_back()) put(path.back());
}

// It has failed if the store does not have all of it.
std::int64_t StorageTier::progress(const Put& put) const {
  if (!put.waiting.empty()) return kUnderWay;
  bool taken = true;
  for (const StoreCall& call : put.calls) {
    if (!call.finished()) return kUnderWay;
    taken = taken && call.num_leading() == call.size();
  }
  return taken ? kDone : kFailed;
}

void StorageTier::finish_put(Put& put, bool taken, PollResult& result) {
  std::size_t failed = 0;
  for (const StoreCall& call : put.calls) {
    for (std::size_t i = 0; i < call.size(); ++i)
      failed += call.outcome(i) == PageOutcome::done ? 0 : 1;
  }
  host_.stats.failed_puts += failed;
  host_.stats.stored_tokens += failed == 0 ? put.num_tokens : 0;
  if (!put.calls.empty()) ++(failed == 0 ? result.stored : result.failures);
  const NodeIndex end = index_.resolve(put.node);
  for (NodeIndex i = end; !taken && index_.node(i).end_pages > put.begin; i = index_.node(i).parent)
    index_.residency().set_unstored(i, true);
  index_.unlock_host(end, core_.released);
  --num_host_locks_;
}

// ---- Agreeing ----------------------------------------------------------------------------------

void StorageTier::report(std::vector<std::int64_t>& values) {
  for (Put& put : puts_) start_put(put);
  report_in_order(puts_, values, [this](const Put& put) { return progress(put); });
  for (Fetch& fetch : fetches_) report(fetch, values);
}

void StorageTier::apply(std::span<const std::int64_t> values, PollResult& result) {
  const std::size_t num_puts = puts_.size();
  std::size_t done = 0;
  while (done < num_puts && values[done] != kUnderWay) ++done;
  for (std::size_t i = 0; i < done; ++i) finish_put(puts_[i], values[i] == kDone, result);
  puts_.erase(puts_.begin(), puts_.begin() + static_cast<std::ptrdiff_t>(done));
  values = values.subspan(num_puts);

  std::erase_if(fetches_, [&](Fetch& fetch) {
    const std::span<const std::int64_t> own = values.first(num_values(fetch));
    values = values.subspan(own.size());
    const bool gone = fetch.phase == Phase::ended && own[0] != 0;
    if (gone) {
      let_go(fetch);
    } else {
      advance(fetch, own);
    }
    return gone;
  });
}

HostTier::Claim StorageTier::claimed() const {
  HostTier::Claim all;
  for (const Fetch& fetch : fetches_) {
    for (std::size_t i = 0; i < all.pages.size(); ++i) all.pages[i] += fetch.claim.pages[i];
  }
  return all;
}

HostTier::Reserved StorageTier::reserved() const {
  HostTier::Reserved all;
  for (const Fetch& fetch : fetches_) {
    append(all.full, fetch.pages.full);
    append(all.window, fetch.pages.window);
    append(all.state, fetch.pages.state);
  }
  return all;
}

}  // namespace pando
