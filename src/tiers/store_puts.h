// SPDX-License-Identifier: Apache-2.0
// Extents on their way from the host into the store. What has got a host copy is told to wait(); at
// the end of each poll() as many of those that wait as there is room for are held on the host and
// given to the store, several to a call.
//
// Invariant: an extent is held exactly while calls of the store may read its pages. What waits is
// known by its number alone: it may be evicted, and then has nothing to put when its turn comes. At
// most a quarter of the host's pages are held at once (or one extent, whatever its size), and no
// more than the store's queue takes: so a slow store delays itself and not the host.
//
// Ranks start alike, because what may be held is counted and not asked of the store, and end alike
// by Agreement. What the store did not take is unstored in the index again, which puts it at the
// next hit.
//
// Cost: O(1) per extent and its pages. Numbers of extents that have gone are dropped when there are
// more than the host has pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_set>
#include <vector>

#include "pando/store.h"
#include "pando/tiers.h"
#include "tiers/agreement.h"
#include "tiers/store_index.h"
#include "tiers/store_pages.h"

namespace pando {

class StorePuts {
 public:
  /// At most `max_held` pages are held at once.
  StorePuts(Store& store, const StorePages& pages, StoreIndex& index, const Agreement& ranks,
            TierStats& stats, std::size_t max_held);

  /// The entry has something on the host that the store may lack.
  void wait(std::uint64_t entry);
  /// Starts what there is room for. Between report() and apply() nothing may be started.
  void start();

  void report(std::vector<std::int64_t>& values);
  std::size_t num_values() const { return num_extents_; }
  void apply(std::span<const std::int64_t> values, PollResult& result);

  /// Calls off what is under way, waits, and lets go of everything.
  void abandon();
  bool empty() const { return puts_.empty() && waiting_.empty(); }
  /// Extents that are put or wait for it.
  std::size_t size() const { return num_extents_ + waiting_.size(); }
  std::size_t num_held_pages() const { return held_pages_; }

 private:
  struct Held {
    Extent extent;
    std::size_t num_pages = 0;
  };
  /// Extents that share calls: their pages follow each other.
  struct Put {
    std::vector<Held> extents;
    std::vector<StorePage> unsent;  // what a call has not been made for, in reverse
    std::vector<StoreCall> calls;   // of kPagesPerCall each
    bool finished() const;
    bool is_taken(std::size_t page) const;
  };

  bool has_room(std::size_t num_pages) const;
  void send(Put& put);
  void drop_gone();

  Store& store_;
  const StorePages& pages_;
  StoreIndex& index_;
  TierStats& stats_;
  const std::size_t max_held_;
  const bool active_;  // this rank writes, or others do
  std::deque<std::uint64_t> waiting_;
  std::unordered_set<std::uint64_t> is_waiting_;
  std::size_t drop_gone_at_;  // so many that wait
  std::deque<Put> puts_;
  std::size_t num_extents_ = 0;  // of puts_
  std::size_t held_pages_ = 0;
};

}  // namespace pando
