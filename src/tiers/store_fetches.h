// SPDX-License-Identifier: Apache-2.0
// Pages on their way from the store to the host while a request waits. A fetch asks which pages are
// there, reserves host pages for those that the index wants, reads them in the index's order, and
// ends when the policy or the caller says so; the index then keeps what it can use.
//
// Invariant: the pages of a fetch are claimed and protected for writing until the index keeps them
// or no call of the store touches them any more. A fetch that has ended is listed until then.
//
// Everything that depends on when I/O ends is decided in two steps: report() says what has happened
// here, apply() acts on what is so on all ranks.
//
// Cost: a poll is O(1) for a fetch that reads, O(pages asked for) once it is answered.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pando/store.h"
#include "pando/tiers.h"
#include "store/open_storage.h"
#include "tiers/agreement.h"
#include "tiers/cost_gate.h"
#include "tiers/host_room.h"
#include "tiers/store_index.h"
#include "tiers/store_pages.h"

namespace pando {

class StoreFetches {
 public:
  /// What the engine shares with it.
  struct Shared {
    OpenedStorage& opened;
    const StorePages& pages;
    StoreIndex& index;
    HostRoom& room;
    Agreement& ranks;
    CostGate& gate;
    TierStats& stats;
  };
  /// Fetches occupy at most `max_tokens` on the host.
  StoreFetches(const Shared& shared, std::size_t max_tokens);

  /// Whether so many tokens may be fetched; anything but `started` says why not.
  PrefetchOutcome may_fetch(std::size_t num_tokens) const;
  PrefetchId begin(std::unique_ptr<FetchTarget> target);
  bool is_ready(PrefetchId id) const;
  /// Ends a fetch, keeping what has arrived or nothing. Returns the tokens that were kept.
  std::size_t end(PrefetchId id, bool keep);

  void report(std::vector<std::int64_t>& values);
  void apply(std::span<const std::int64_t> values);

  /// Calls off what is under way, waits, and gives everything back.
  void abandon();
  bool empty() const { return fetches_.empty(); }
  std::size_t size() const { return fetches_.size(); }
  void append_claims(std::vector<HostRoom::Claimed>& claims) const;
  /// Calls fn(component, page) for each page that is being written.
  template <typename Fn>
  void for_each_page(Fn&& fn) const {
    for (const Fetch& fetch : fetches_) {
      for (const FetchedPage& page : fetch.pages) fn(page.component, page.page);
    }
  }

 private:
  /// asking: is it there. reserved: host pages are claimed. reading. ready: the policy lets the
  /// request go. ended: given up or kept, but calls may still touch its pages.
  enum class Phase { asking, reserved, reading, ready, ended };
  struct Fetch {
    PrefetchId id = {};
    Phase phase = Phase::asking;
    std::unique_ptr<FetchTarget> target;
    std::size_t limit = SIZE_MAX;  // tokens that another rank could fetch at most
    std::chrono::steady_clock::time_point started = {};
    std::chrono::steady_clock::time_point reading_since = {};
    std::optional<StoreCall> question;
    std::vector<std::size_t> claimed;  // by component, for the target's owner
    bool is_probe = false;             // fetched whatever the cost gate says
    bool is_judged = false;            // it said no, and that is counted
    bool is_measured = false;
    bool has_room = false;
    std::vector<FetchedPage> pages;  // in the order of target->wanted
    std::vector<StoreCall> calls;    // of kPagesPerCall each
  };

  std::size_t choose(Fetch& fetch);
  double size_bytes(const FetchTarget& target) const;
  void measure(Fetch& fetch);
  bool reserve(Fetch& fetch);
  void start_reads(Fetch& fetch);
  bool has_arrived(const Fetch& fetch, std::size_t page) const;
  bool may_end(const Fetch& fetch) const;
  bool has_answer(Fetch& fetch);
  bool is_quiet(const Fetch& fetch) const;
  std::size_t keep(Fetch& fetch);
  void free_pages(Fetch& fetch);
  void let_go(Fetch& fetch);
  void call_off(Fetch& fetch);
  void report(Fetch& fetch, std::vector<std::int64_t>& values);
  static std::size_t num_values(const Fetch& fetch) { return fetch.phase == Phase::asking ? 2 : 1; }
  void advance(Fetch& fetch, std::span<const std::int64_t> values);
  void begin_reading(Fetch& fetch, std::size_t num_tokens);

  Shared shared_;
  const std::size_t max_tokens_;
  std::size_t occupied_tokens_ = 0;
  std::deque<Fetch> fetches_;
  std::uint64_t last_id_ = 0;
};

}  // namespace pando
