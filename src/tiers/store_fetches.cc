// SPDX-License-Identifier: Apache-2.0
// Fetching from the store; see the header.
#include "tiers/store_fetches.h"

#include <algorithm>

#include "base/check.h"

namespace pando {

StoreFetches::StoreFetches(const Shared& shared, std::size_t max_tokens)
    : shared_(shared), max_tokens_(max_tokens) {}

// ---- Asking ------------------------------------------------------------------------------------

PrefetchOutcome StoreFetches::may_fetch(std::size_t num_tokens) const {
  if (num_tokens == 0) return PrefetchOutcome::nothing_to_fetch;
  if (num_tokens < shared_.opened.prefetch.threshold) return PrefetchOutcome::below_threshold;
  if (occupied_tokens_ + num_tokens > max_tokens_) return PrefetchOutcome::rate_limited;
  return PrefetchOutcome::started;
}

// A queue that refuses the question has nothing: other ranks ask all the same.
PrefetchId StoreFetches::begin(std::unique_ptr<FetchTarget> target) {
  Fetch& fetch = fetches_.emplace_back();
  fetch.id = PrefetchId{++last_id_};
  fetch.started = shared_.opened.now();
  fetch.is_probe = shared_.gate.next_is_probe();
  std::vector<std::string> keys;
  keys.reserve(target->asked.size());
  for (const PageName& name : target->asked) keys.push_back(shared_.pages.key(name));
  if (Result<StoreCall> call = shared_.opened.store->exists(std::move(keys)); call.ok())
    fetch.question = *call;
  occupied_tokens_ += target->num_tokens;
  fetch.target = std::move(target);
  ++shared_.stats.prefetches;
  return fetch.id;
}

// A store that does not answer in time has nothing.
bool StoreFetches::has_answer(Fetch& fetch) {
  if (!fetch.question || fetch.question->finished()) return true;
  if (shared_.opened.is_late(fetch.started, 0)) fetch.limit = 0;
  return fetch.limit == 0;
}

double StoreFetches::size_bytes(const FetchTarget& target) const {
  std::size_t sum = 0;
  for (const std::uint32_t at : target.wanted)
    sum += shared_.pages.page_bytes(target.asked[at].component);
  return static_cast<double>(sum);
}

// The tokens that could be had here, if the cost gate lets them pass: all or nothing.
std::size_t StoreFetches::choose(Fetch& fetch) {
  fetch.target->wanted.clear();
  if (!fetch.question || fetch.limit == 0) return 0;
  const std::size_t num_tokens = shared_.index.choose(
      *fetch.target,
      [&](std::size_t at) { return fetch.question->outcome(at) == PageOutcome::done; },
      fetch.limit);
  const double bytes = size_bytes(*fetch.target);
  if (num_tokens == 0 || shared_.gate.is_worth(bytes, bytes, num_tokens)) return num_tokens;
  if (!fetch.is_judged)
    ++(fetch.is_probe ? shared_.stats.gate_probes : shared_.stats.gated_prefetches);
  fetch.is_judged = true;
  return fetch.is_probe ? num_tokens : 0;
}

// ---- Reading -----------------------------------------------------------------------------------

bool StoreFetches::reserve(Fetch& fetch) {
  const FetchTarget& target = *fetch.target;
  std::vector<std::vector<HostPageId>> pages(shared_.room.num_components());
  std::vector<std::size_t> wanted(pages.size());
  for (const std::uint32_t at : target.wanted) ++wanted[target.asked[at].component];
  HostRoom::Claim claim;
  bool reserved = true;
  fetch.claimed.resize(pages.size());
  for (std::size_t c = 0; c < pages.size() && reserved; ++c) {
    if (wanted[c] == 0) continue;
    reserved = shared_.room.reserve(c, wanted[c], target.owner, pages[c], claim);
    fetch.claimed[c] = reserved ? wanted[c] : 0;
  }
  if (!reserved || claim.refused) {
    for (std::size_t c = 0; c < pages.size(); ++c) {
      if (!pages[c].empty()) shared_.room.pool(c).free(pages[c]);
    }
    return false;
  }
  for (std::size_t c = 0; c < pages.size(); ++c) {
    if (pages[c].empty()) continue;
    shared_.room.pool(c).protect_write(pages[c]);
    std::reverse(pages[c].begin(), pages[c].end());
  }
  for (const std::uint32_t at : target.wanted) {
    const std::uint32_t c = target.asked[at].component;
    fetch.pages.push_back({c, pages[c].back()});
    pages[c].pop_back();
  }
  return true;
}

// What a queue refuses, and what comes after it, does not arrive.
void StoreFetches::start_reads(Fetch& fetch) {
  fetch.reading_since = shared_.opened.now();
  const FetchTarget& target = *fetch.target;
  for (std::size_t i = 0; i < fetch.pages.size(); i += kPagesPerCall) {
    std::vector<StorePage> batch;
    for (std::size_t k = i; k < std::min(fetch.pages.size(), i + kPagesPerCall); ++k)
      batch.push_back(shared_.pages.page({target.asked[target.wanted[k]], fetch.pages[k].page}));
    Result<StoreCall> call = shared_.opened.store->get(std::move(batch));
    if (!call.ok()) return;
    fetch.calls.push_back(*call);
  }
}

bool StoreFetches::has_arrived(const Fetch& fetch, std::size_t page) const {
  const std::size_t call = page / kPagesPerCall;
  return call < fetch.calls.size() &&
         fetch.calls[call].outcome(page % kPagesPerCall) == PageOutcome::done;
}

// Once, when it is over: what has arrived in the time that the request has waited.
void StoreFetches::measure(Fetch& fetch) {
  if (fetch.is_measured) return;
  fetch.is_measured = true;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < fetch.pages.size(); ++i)
    bytes += has_arrived(fetch, i) ? shared_.pages.page_bytes(fetch.pages[i].component) : 0;
  const std::chrono::duration<double> took = shared_.opened.now() - fetch.reading_since;
  shared_.gate.fetched_bytes.add(static_cast<double>(bytes), took.count());
}

bool StoreFetches::is_quiet(const Fetch& fetch) const {
  return (!fetch.question || fetch.question->finished()) &&
         std::all_of(fetch.calls.begin(), fetch.calls.end(),
                     [](const StoreCall& call) { return call.finished(); });
}

bool StoreFetches::may_end(const Fetch& fetch) const {
  return shared_.opened.prefetch.policy == PrefetchPolicy::best_effort || is_quiet(fetch) ||
         shared_.opened.is_late(fetch.started, fetch.target->num_tokens);
}

// ---- Moving on ---------------------------------------------------------------------------------

// What ranks compare, see Agreement. While asking: one more than the tokens that could be had here,
// or 0 as long as nobody has answered; and the same negated, whose least tells the greatest.
void StoreFetches::report(Fetch& fetch, std::vector<std::int64_t>& values) {
  const auto add = [&values](bool here) { values.push_back(here ? 1 : 0); };
  switch (fetch.phase) {
    case Phase::asking:
      values.push_back(has_answer(fetch) ? 1 + static_cast<std::int64_t>(choose(fetch)) : 0);
      values.push_back(-values.back());
      return;
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

void StoreFetches::advance(Fetch& fetch, std::span<const std::int64_t> values) {
  const std::int64_t least = values[0];
  switch (fetch.phase) {
    case Phase::asking:
      if (least == 0) return;
      if (least != -values[1]) {  // an end that is valid here may not be so there: ask again below
        fetch.limit = static_cast<std::size_t>(least - 1);
        return;
      }
      return begin_reading(fetch, static_cast<std::size_t>(least - 1));
    case Phase::reserved:
      if (least == 0) {
        ++shared_.stats.revoked_prefetches;
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

void StoreFetches::begin_reading(Fetch& fetch, std::size_t num_tokens) {
  shared_.stats.prefetch_hit_tokens += num_tokens;
  if (num_tokens < shared_.opened.prefetch.threshold || fetch.target->wanted.empty()) {
    ++shared_.stats.revoked_prefetches;
    call_off(fetch);
    fetch.phase = Phase::ended;
    return;
  }
  fetch.has_room = reserve(fetch);
  fetch.phase = Phase::reserved;
  const std::int64_t room = fetch.has_room ? 1 : 0;
  if (shared_.ranks.alone()) advance(fetch, {&room, 1});
}

void StoreFetches::report(std::vector<std::int64_t>& values) {
  for (Fetch& fetch : fetches_) report(fetch, values);
}

void StoreFetches::apply(std::span<const std::int64_t> values) {
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

// ---- Ending ------------------------------------------------------------------------------------

// Alone, time may have made it ready since the last poll().
bool StoreFetches::is_ready(PrefetchId id) const {
  for (const Fetch& fetch : fetches_) {
    if (fetch.id != id) continue;
    if (fetch.phase == Phase::ready || fetch.phase == Phase::ended) return true;
    if (shared_.opened.prefetch.policy == PrefetchPolicy::best_effort) return true;
    return shared_.ranks.alone() && shared_.opened.is_late(fetch.started, fetch.target->num_tokens);
  }
  return true;
}

void StoreFetches::call_off(Fetch& fetch) {
  if (fetch.question) fetch.question->cancel();
  for (const StoreCall& call : fetch.calls) call.cancel();
}

std::size_t StoreFetches::end(PrefetchId id, bool keep_arrived) {
  for (Fetch& fetch : fetches_) {
    if (fetch.id != id || fetch.phase == Phase::ended) continue;
    call_off(fetch);
    const bool has_read = fetch.phase == Phase::reading || fetch.phase == Phase::ready;
    if (has_read) measure(fetch);
    const std::size_t kept = keep_arrived && has_read ? keep(fetch) : 0;
    shared_.stats.prefetched_tokens += kept;
    fetch.phase = Phase::ended;
    return kept;
  }
  return 0;
}

// A page has arrived if it has on all ranks.
std::size_t StoreFetches::keep(Fetch& fetch) {
  std::vector<std::int64_t> arrived;
  for (std::size_t i = 0; i < fetch.pages.size(); ++i)
    arrived.push_back(has_arrived(fetch, i) ? 1 : 0);
  shared_.ranks.least(arrived);
  for (std::size_t i = 0; i < fetch.pages.size(); ++i) fetch.pages[i].arrived = arrived[i] != 0;
  const std::size_t kept = shared_.index.keep(*fetch.target, fetch.pages);
  std::vector<HostPageId> pages;
  for (std::size_t c = 0; c < shared_.room.num_components(); ++c) {
    pages.clear();
    for (const FetchedPage& page : fetch.pages) {
      if (page.kept && page.component == c) pages.push_back(page.page);
    }
    if (pages.empty()) continue;
    shared_.room.pool(c).complete_write(pages, /*on_device=*/false);
    shared_.room.unclaim(fetch.target->owner, c, pages.size());
    fetch.claimed[c] -= pages.size();
  }
  std::erase_if(fetch.pages, [](const FetchedPage& page) { return page.kept; });
  return kept;
}

void StoreFetches::free_pages(Fetch& fetch) {
  for (const FetchedPage& page : fetch.pages) {
    shared_.room.pool(page.component).abort_write({&page.page, 1});
    shared_.room.pool(page.component).free({&page.page, 1});
  }
  fetch.pages.clear();
}

// Nobody touches its pages any more.
void StoreFetches::let_go(Fetch& fetch) {
  free_pages(fetch);
  for (std::size_t c = 0; c < fetch.claimed.size(); ++c) {
    if (fetch.claimed[c] > 0) shared_.room.unclaim(fetch.target->owner, c, fetch.claimed[c]);
  }
  shared_.index.fetch_ended(*fetch.target);
  occupied_tokens_ -= fetch.target->num_tokens;
}

void StoreFetches::abandon() {
  for (Fetch& fetch : fetches_) call_off(fetch);
  for (Fetch& fetch : fetches_) {
    if (fetch.question) (void)fetch.question->wait();
    for (const StoreCall& call : fetch.calls) (void)call.wait();
    let_go(fetch);
  }
  fetches_.clear();
}

void StoreFetches::append_claims(std::vector<HostRoom::Claimed>& claims) const {
  for (const Fetch& fetch : fetches_) {
    for (std::size_t c = 0; c < fetch.claimed.size(); ++c) {
      if (fetch.claimed[c] > 0) claims.push_back({fetch.target->owner, c, fetch.claimed[c]});
    }
  }
}

}  // namespace pando
