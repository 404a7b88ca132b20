// SPDX-License-Identifier: Apache-2.0
// Putting into the store; see the header.
#include "tiers/store_puts.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace pando {

StorePuts::StorePuts(Store& store, const StorePages& pages, StoreIndex& index,
                     const Agreement& ranks, TierStats& stats, std::size_t max_held)
    : store_(store),
      pages_(pages),
      index_(index),
      stats_(stats),
      max_held_(max_held),
      active_(pages.writes() || !ranks.alone()),
      drop_gone_at_(std::max<std::size_t>(64, 8 * max_held)) {}

bool StorePuts::Put::finished() const {
  return unsent.empty() && std::all_of(calls.begin(), calls.end(),
                                       [](const StoreCall& call) { return call.finished(); });
}

bool StorePuts::Put::is_taken(std::size_t page) const {
  return calls[page / kPagesPerCall].outcome(page % kPagesPerCall) == PageOutcome::done;
}

// ---- Starting ----------------------------------------------------------------------------------

void StorePuts::wait(std::uint64_t entry) {
  if (!active_ || !is_waiting_.insert(entry).second) return;
  waiting_.push_back(entry);
  if (waiting_.size() > drop_gone_at_) drop_gone();
}

void StorePuts::drop_gone() {
  std::erase_if(waiting_, [this](std::uint64_t entry) {
    const bool gone = !index_.is_unstored(entry);
    if (gone) is_waiting_.erase(entry);
    return gone;
  });
  drop_gone_at_ = std::max(drop_gone_at_, 2 * waiting_.size());
}

bool StorePuts::has_room(std::size_t num_pages) const {
  return held_pages_ == 0 || held_pages_ + num_pages <= max_held_;
}

// An extent that is found to be too large for the room that is left is let go of again: its turn is
// the next. A rank that leaves writing to another holds it for as long as that one does.
void StorePuts::start() {
  std::vector<NamedPage> named;
  while (!waiting_.empty() && has_room(1)) {
    Put put;
    std::size_t num_pages = 0;
    while (!waiting_.empty() && num_pages < kPagesPerCall && has_room(1)) {
      named.clear();
      const std::uint64_t entry = waiting_.front();
      const std::optional<Extent> extent = index_.hold_unstored(entry, named);
      if (extent && !has_room(named.size())) {
        index_.put_ended(*extent, /*stored=*/false);
        break;
      }
      if (!extent || extent->entry == entry) {
        is_waiting_.erase(entry);
        waiting_.pop_front();
      }
      if (!extent) continue;
      put.extents.push_back({*extent, named.size()});
      num_pages += named.size();
      held_pages_ += named.size();
      if (!pages_.writes()) continue;
      for (const NamedPage& page : named) put.unsent.push_back(pages_.page(page));
    }
    if (put.extents.empty()) return;
    num_extents_ += put.extents.size();
    std::reverse(put.unsent.begin(), put.unsent.end());
    puts_.push_back(std::move(put));
    send(puts_.back());
  }
}

// A queue without room is asked again at the next poll().
void StorePuts::send(Put& put) {
  while (!put.unsent.empty()) {
    const std::size_t n = std::min(put.unsent.size(), kPagesPerCall);
    std::vector<StorePage> batch(put.unsent.rbegin(),
                                 put.unsent.rbegin() + static_cast<std::ptrdiff_t>(n));
    Result<StoreCall> call = store_.put(std::move(batch));
    if (!call.ok()) return;
    put.calls.push_back(*call);
    put.unsent.resize(put.unsent.size() - n);
  }
}

// ---- Ending ------------------------------------------------------------------------------------

// A number for each extent, in order. It has failed if the store does not have all of it.
void StorePuts::report(std::vector<std::int64_t>& values) {
  bool look = true;
  for (Put& put : puts_) {
    send(put);
    look = look && put.finished();
    if (!look) {  // what comes after one that is under way need not be looked at
      values.resize(values.size() + put.extents.size(), kUnderWay);
      continue;
    }
    std::size_t page = 0;
    for (const Held& held : put.extents) {
      std::int64_t value = kDone;
      for (std::size_t end = page + held.num_pages; page < end; ++page) {
        if (pages_.writes() && !put.is_taken(page)) value = kFailed;
      }
      values.push_back(value);
    }
  }
}

void StorePuts::apply(std::span<const std::int64_t> values, PollResult& result) {
  while (!puts_.empty() && values.front() != kUnderWay) {
    const Put put = std::move(puts_.front());
    puts_.pop_front();
    std::size_t page = 0;
    for (std::size_t i = 0; i < put.extents.size(); ++i) {
      const Held& held = put.extents[i];
      std::size_t failed = 0;
      for (std::size_t end = page + held.num_pages; pages_.writes() && page < end; ++page)
        failed += put.is_taken(page) ? 0 : 1;
      stats_.failed_puts += failed;
      if (pages_.writes()) {
        stats_.stored_tokens += failed == 0 ? held.extent.num_tokens : 0;
        ++(failed == 0 ? result.stored : result.failures);
      }
      index_.put_ended(held.extent, values[i] == kDone);
      held_pages_ -= held.num_pages;
    }
    num_extents_ -= put.extents.size();
    values = values.subspan(put.extents.size());
    if (values.empty()) return;
  }
}

void StorePuts::abandon() {
  for (const Put& put : puts_) {
    for (const StoreCall& call : put.calls) call.cancel();
  }
  for (const Put& put : puts_) {
    for (const StoreCall& call : put.calls) (void)call.wait();
    for (const Held& held : put.extents) index_.put_ended(held.extent, /*stored=*/false);
  }
  puts_.clear();
  waiting_.clear();
  is_waiting_.clear();
  num_extents_ = held_pages_ = 0;
}

}  // namespace pando
