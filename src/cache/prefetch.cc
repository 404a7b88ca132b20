// SPDX-License-Identifier: Apache-2.0
// Fetching from the store while a request waits. A fetch goes through phases: it asks which pages
// are there, reserves host pages for those that can be used, reads them in order, and ends when the
// policy or the caller says so; what has arrived in order then hangs in the tree, on the host.
//
// With components an end must be valid: the window before it, and a snapshot at it, are asked for
// and fetched too. They fit one end alone, so there a fetch is kept as a whole or not at all.
#include <algorithm>

#include "base/check.h"
#include "base/page_hash.h"
#include "base/tokens.h"
#include "cache/storage_tier.h"

namespace pando {

// ---- Asking ------------------------------------------------------------------------------------

Result<Prefetch> StorageTier::prefetch(const Key& key) {
  const std::size_t page_size = index_.page_size();
  const Tree::Cursor walked = index_.tree().descend(key, nullptr);
  const std::size_t total = index_.tree().shape().num_pages(key);
  if (Status s =
          refuse_negative(key.tokens, walked.pages * page_size, key.tokens.size(), "prefetch");
      !s)
    return s.error();
  const std::size_t num_tokens = (total - walked.pages) * page_size;
  if (num_tokens == 0) return Prefetch{PrefetchOutcome::nothing_to_fetch};
  if (num_tokens < opened_.prefetch.threshold) return Prefetch{PrefetchOutcome::below_threshold};
  if (occupied_tokens_ + num_tokens > max_tokens_) return Prefetch{PrefetchOutcome::rate_limited};

  Fetch fetch;
  fetch.id = PrefetchId{++last_id_};
  fetch.ns = key.ns;
  fetch.tokens.assign(key.tokens.begin(), key.tokens.end());
  fetch.from = walked.pages;
  fetch.started = opened_.now();
  fetch.is_probe = host_.gate.next_is_probe();
  fetch.hashes.resize(total - walked.pages);
  std::optional<PageHash> parent = chain_start(key.ns);
  if (walked.pages > 0) {
    const NodeIndex anchor = index_.tree().split_at(walked);
    const Node& node = index_.node(anchor);
    parent = index_.tree().edges().hashes(node)[node.num_pages - 1];
    fetch.anchor = index_.id(anchor);
  }
  hash_page_chain(parent ? &*parent : nullptr, key.tokens.data() + walked.pages * page_size,
                  fetch.hashes.size(), page_size, core_.options.bigram, fetch.hashes.data());
  ask(fetch);
  if (fetch.anchor) {
    index_.holds().lock_host(index_.resolve(fetch.anchor));
    ++num_host_locks_;
  }
  fetch.occupied = num_tokens;
  occupied_tokens_ += num_tokens;
  ++host_.stats.prefetches;
  const PrefetchId id = fetch.id;
  fetches_.push_back(std::move(fetch));
  return Prefetch{PrefetchOutcome::started, id};
}

// A queue that refuses has nothing: other ranks ask all the same.
void StorageTier::ask(Fetch& fetch) {
  std::vector<std::string> keys;
  const auto add = [&](const KeySpace& space) {
    for (const PageHash& hash : fetch.hashes) keys.push_back(space.key(hash));
  };
  add(full_space_);
  if (window_space_) add(*window_space_);
  if (state_space_) add(*state_space_);
  Result<StoreCall> call = store().exists(std::move(keys));
  if (call.ok()) fetch.question = *call;
}

// Pages of window within reach that end with the node, unbroken; all of them count as endless.
std::size_t StorageTier::unbroken_window(NodeIndex node) const {
  std::size_t run = 0;
  NodeIndex i = node;
  for (; !index_.node(i).is_root(); i = index_.node(i).parent) {
    if (!index_.residency().has_window(i) && !index_.residency().has_host_window(i)) return run;
    run += index_.node(i).num_pages;
  }
  return SIZE_MAX / 2;
}

// The most pages, from the first and within the limit, that the store has and on whose end all
// components agree.
std::size_t StorageTier::answer(const Fetch& fetch) const {
  if (!fetch.question) return 0;
  const std::size_t n = fetch.hashes.size();
  const auto has = [&](std::size_t space, std::size_t page) {
    return fetch.question->outcome(space * n + page) == PageOutcome::done;
  };
  std::size_t best = 0;
  std::size_t run = fetch.anchor ? unbroken_window(index_.resolve(fetch.anchor)) : SIZE_MAX / 2;
  for (std::size_t i = 0; i < std::min(n, fetch.limit) && has(0, i); ++i) {
    std::size_t space = 1;
    if (window_space_) run = has(space++, i) ? run + 1 : 0;
    const bool window_reaches = !window_space_ || run >= index_.matcher().window_pages();
    if (window_reaches && (!state_space_ || has(space, i))) best = i + 1;
  }
  return best;
}

double StorageTier::fetch_bytes(std::size_t num_pages) const {
  const auto bytes = [&](ComponentKind kind, std::size_t n) {
    return n * host_.pools(kind).host->page_bytes();
  };
  std::size_t sum = bytes(ComponentKind::full, num_pages);
  if (window_space_)
    sum += bytes(ComponentKind::window, std::min(num_pages, index_.matcher().window_pages()));
  if (state_space_) sum += bytes(ComponentKind::state, num_pages > 0 ? 1 : 0);
  return static_cast<double>(sum);
}

// Of the answer, what the cost gate lets pass: all or nothing.
std::size_t StorageTier::wanted(Fetch& fetch) {
  const std::size_t num_pages = answer(fetch);
  const double size_bytes = fetch_bytes(num_pages);
  const std::size_t num_tokens = num_pages * index_.page_size();
  if (num_pages == 0 || host_.gate.is_worth(size_bytes, size_bytes, num_tokens)) return num_pages;
  if (!fetch.is_judged) ++(fetch.is_probe ? host_.stats.gate_probes : host_.stats.gated_prefetches);
  fetch.is_judged = true;
  return fetch.is_probe ? num_pages : 0;
}

// Once, when it is over: what has arrived in the time that the request has waited.
void StorageTier::measure(Fetch& fetch) {
  if (fetch.is_measured) return;
  fetch.is_measured = true;
  const std::chrono::duration<double> took = opened_.now() - fetch.reading_since;
  host_.gate.fetched_bytes.add(fetch_bytes(pages_arrived(fetch)), took.count());
}

// ---- Reading -----------------------------------------------------------------------------------

bool StorageTier::reserve(Fetch& fetch) {
  HostTier::Reserved& pages = fetch.pages;
  const std::size_t windows = window_space_ ? fetch.num_pages - fetch.window_from : 0;
  const auto take = [&](ComponentKind kind, std::size_t n, std::vector<HostPageId>& out) {
    return host_.reserve(kind, n, index_.retention().owner(fetch.ns), out, fetch.claim);
  };
  const bool reserved = take(ComponentKind::full, fetch.num_pages, pages.full) &&
                        (windows == 0 || take(ComponentKind::window, windows, pages.window)) &&
                        (!state_space_ || take(ComponentKind::state, 1, pages.state));
  for_each_component(pages,
                     [&](HostPool& pool, std::vector<HostPageId>& of) { pool.protect_write(of); });
  return reserved && !fetch.claim.refused;
}

// What a queue refuses, and what comes after it, does not arrive.
void StorageTier::start_reads(Fetch& fetch) {
  fetch.reading_since = opened_.now();
  const std::span hashes = std::span(fetch.hashes).first(fetch.num_pages);
  bool taken = true;
  const auto read = [&](std::vector<StorePage> pages) {
    for (std::vector<StorePage>& batch : batches_of(std::move(pages))) {
      if (!taken) return;
      Result<StoreCall> call = store().get(std::move(batch));
      taken = call.ok();
      if (taken) fetch.calls.push_back(*call);
    }
  };
  if (window_space_)
    read(pages_of(*window_space_, ComponentKind::window, fetch.pages.window,
                  hashes.subspan(fetch.window_from)));
  if (state_space_)
    read(pages_of(*state_space_, ComponentKind::state, fetch.pages.state, hashes.last(1)));
  fetch.first_full_call = fetch.calls.size();
  read(pages_of(full_space_, ComponentKind::full, fetch.pages.full, hashes));
}

// Pages whose tokens are here, in order; with components, all or none.
std::size_t StorageTier::pages_arrived(const Fetch& fetch) const {
  std::size_t arrived = 0;
  bool whole = true;
  for (std::size_t i = 0; i < fetch.calls.size() && whole; ++i) {
    const std::size_t leading = fetch.calls[i].num_leading();
    whole = leading == fetch.calls[i].size();
    if (i >= fetch.first_full_call) arrived += leading;
  }
  const bool hybrid = window_space_ || state_space_;
  return hybrid && arrived < fetch.num_pages ? 0 : arrived;
}

bool StorageTier::is_quiet(const Fetch& fetch) const {
  return (!fetch.question || fetch.question->finished()) &&
         std::all_of(fetch.calls.begin(), fetch.calls.end(),
                     [](const StoreCall& c) { return c.finished(); });
}

bool StorageTier::may_end(const Fetch& fetch) const {
  const PrefetchOptions& options = opened_.prefetch;
  if (options.policy == PrefetchPolicy::best_effort || is_quiet(fetch)) return true;
  return is_late(fetch, fetch.hashes.size());
}

// By the timeout policy, with so many pages to wait for.
bool StorageTier::is_late(const Fetch& fetch, std::size_t num_pages) const {
  return opened_.is_late(fetch.started, num_pages * index_.page_size());
}

// ---- Moving on ---------------------------------------------------------------------------------

// A store that does not answer in time has nothing.
bool StorageTier::has_answer(Fetch& fetch) {
  if (!fetch.question || fetch.question->finished()) return true;
  if (is_late(fetch, 0)) fetch.limit = 0;
  return fetch.limit == 0;
}

// What ranks compare, see Agreement. While asking: one more than the pages that could be had here,
// or 0 as long as nobody has answered; and the same negated, whose least tells the greatest.
void StorageTier::report(Fetch& fetch, std::vector<std::int64_t>& values) {
  const auto add = [&values](bool here) { values.push_back(here ? 1 : 0); };
  switch (fetch.phase) {
    case Phase::asking: {
      values.push_back(has_answer(fetch) ? 1 + static_cast<std::int64_t>(wanted(fetch)) : 0);
      values.push_back(-values.back());
      return;
    }
    case Phase::reserved:
      return add(fetch.has_room);
    case Phase::reading:
      if (is_quiet(fetch)) measure(fetch);
      return add(may_end(fetch));
    case Phase::ready:
      if (is_quiet(fetch)) measure(fetch);
      return add(false);
    case Phase::ended:
      return add(is_quiet(fetch));
  }
}

void StorageTier::advance(Fetch& fetch, std::span<const std::int64_t> values) {
  const std::int64_t least = values[0];
  switch (fetch.phase) {
    case Phase::asking:
      if (least == 0) return;
      fetch.num_pages = static_cast<std::size_t>(least - 1);
      if (least != -values[1]) {  // an end that is valid here may not be so there: ask again below
        fetch.limit = fetch.num_pages;
        return;
      }
      return begin_fetch(fetch);
    case Phase::reserved:
      if (least == 0) {
        ++host_.stats.revoked_prefetches;
        fetch.phase = Phase::ended;
        return;
      }
      start_reads(fetch);
      fetch.phase = Phase::reading;
      return;
    case Phase::reading:
      if (least != 0) fetch.phase = Phase::ready;
      return;
    case Phase::ready:
    case Phase::ended:
      return;
  }
}

void StorageTier::begin_fetch(Fetch& fetch) {
  const std::size_t tokens = fetch.num_pages * index_.page_size();
  host_.stats.prefetch_hit_tokens += tokens;
  if (tokens < std::max<std::size_t>(opened_.prefetch.threshold, 1)) {
    ++host_.stats.revoked_prefetches;
    call_off(fetch);
    fetch.phase = Phase::ended;
    return;
  }
  if (window_space_)
    fetch.window_from =
        fetch.num_pages - std::min(fetch.num_pages, index_.matcher().window_pages());
  fetch.has_room = reserve(fetch);
  fetch.phase = Phase::reserved;
  const std::int64_t room = fetch.has_room ? 1 : 0;
  if (core_.ranks.alone()) advance(fetch, {&room, 1});
}

bool StorageTier::is_ready(PrefetchId id) const {
  for (const Fetch& fetch : fetches_) {
    if (fetch.id == id)
      return fetch.phase == Phase::ready || fetch.phase == Phase::ended ||
             opened_.prefetch.policy == PrefetchPolicy::best_effort;
  }
  return true;
}

void StorageTier::call_off(Fetch& fetch) {
  if (fetch.question) fetch.question->cancel();
  for (const StoreCall& call : fetch.calls) call.cancel();
}

std::size_t StorageTier::end(PrefetchId id, bool keep) {
  for (Fetch& fetch : fetches_) {
    if (fetch.id != id || fetch.phase == Phase::ended) continue;
    call_off(fetch);
    const bool has_read = fetch.phase == Phase::reading || fetch.phase == Phase::ready;
    if (has_read) measure(fetch);
    const auto here = static_cast<std::int64_t>(pages_arrived(fetch));
    const auto arrived = static_cast<std::size_t>(keep && has_read ? core_.ranks.least(here) : 0);
    const std::size_t tokens = insert(fetch, arrived);
    host_.stats.prefetched_tokens += tokens;
    fetch.phase = Phase::ended;
    return tokens;
  }
  return 0;
}

// ---- Into the tree -----------------------------------------------------------------------------

// The tree may have got some of it meanwhile; those pages are not needed any more. Returns the
// tokens that are new.
std::size_t StorageTier::insert(Fetch& fetch, std::size_t num_pages) {
  if (num_pages == 0) return 0;
  if (fetch.anchor && index_.node(index_.resolve(fetch.anchor)).cut_off) return 0;
  const std::size_t page_size = index_.page_size();
  const std::size_t end = fetch.from + num_pages;
  const std::size_t overlap = core_.options.bigram ? 1 : 0;
  const Key key{std::span<const Token>(fetch.tokens).first(end * page_size + overlap), fetch.ns};
  const Tree::Cursor cursor = index_.tree().descend(key, nullptr);
  if (cursor.pages >= end) return 0;
  NodeIndex node = cursor.node == kNoNode ? index_.root(fetch.ns) : index_.tree().split_at(cursor);
  // Where windows begin, a node begins.
  const std::size_t window_from = window_space_ ? fetch.from + fetch.window_from : cursor.pages;
  const std::size_t first_window = std::max(window_from, cursor.pages);
  if (first_window > cursor.pages) node = hang(fetch, node, cursor.pages, first_window);
  node = hang(fetch, node, first_window, end);
  index_.touch(node);
  give(fetch, ComponentKind::full, fetch.pages.full, cursor.pages - fetch.from, num_pages);
  if (window_space_)
    give(fetch, ComponentKind::window, fetch.pages.window, first_window - window_from,
         fetch.pages.window.size());
  if (state_space_) give(fetch, ComponentKind::state, fetch.pages.state, 0, 1);
  return (end - cursor.pages) * page_size;
}

// Pages [begin, end) of the key, which have arrived, below `parent`.
NodeIndex StorageTier::hang(const Fetch& fetch, NodeIndex parent, std::size_t begin,
                            std::size_t end) {
  Residency::HostCopy sides{
      .pages = std::span(fetch.pages.full).subspan(begin - fetch.from, end - begin)};
  const bool is_last = end == fetch.from + fetch.num_pages;
  if (window_space_ && is_last)
    sides.window_pages =
        std::span(fetch.pages.window).subspan(begin - fetch.from - fetch.window_from, end - begin);
  if (state_space_ && is_last) sides.snapshot = fetch.pages.state[0];
  const NodeIndex node =
      index_.add_host_leaf(parent, fetch.tokens.data() + begin * index_.page_size(), sides);
  core_.record_stored(Medium::host, node);
  return node;
}

// pages[begin, end) are the tree's from now on.
void StorageTier::give(Fetch& fetch, ComponentKind kind, std::vector<HostPageId>& pages,
                       std::size_t begin, std::size_t end) {
  host_.settle(fetch.claim, kind, end - begin);
  const auto first = pages.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = pages.begin() + static_cast<std::ptrdiff_t>(end);
  host_.pools(kind).host->complete_write({first, last}, /*on_device=*/false);
  pages.erase(first, last);
}

// Nobody touches its pages any more.
void StorageTier::let_go(Fetch& fetch) {
  for_each_component(fetch.pages, [](HostPool& pool, std::vector<HostPageId>& pages) {
    pool.abort_write(pages);
    pool.free(pages);
    pages.clear();
  });
  host_.settle(fetch.claim);
  if (fetch.anchor) {
    index_.unlock_host(index_.resolve(fetch.anchor), core_.released);
    --num_host_locks_;
  }
  occupied_tokens_ -= fetch.occupied;
}

}  // namespace pando
