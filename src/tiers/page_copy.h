// SPDX-License-Identifier: Apache-2.0
// A copy between device and host: pages of several components side by side, one transfer for each
// component, and the extents they belong to. CopyQueue has those of one direction that are under
// way.
//
// Invariant: both ends of every pair are held by somebody until the copy has been applied. Copies
// are applied in the order in which they were started, whichever ends first; so ranks that started
// alike end alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "pando/copier.h"
#include "pando/tiers.h"
#include "tiers/agreement.h"
#include "tiers/extent.h"
#include "tiers/host_room.h"

namespace pando {

struct PageCopy {
  struct Pages {
    std::vector<PageId> device;
    std::vector<HostPageId> host;
  };

  ByComponent<Pages> of;
  std::vector<Extent> extents;
  HostRoom::Claim claim;  // of a backup: on a host page for each of the device's
  std::size_t num_tokens = 0;
  std::vector<Transfer> transfers;  // of the components that have pages, in their order
  bool broken = false;              // a pool or the copier refused some of it

  void clear();  // keeps the memory; nothing may be claimed any more
  void unclaim(HostRoom& room) {
    for (std::size_t c = 0; c < of.size(); ++c) {
      if (!of[c].device.empty()) room.unclaim(claim.owner, c, of[c].device.size());
    }
  }
  /// Device to host; the host pages are protected for writing. What is refused leaves it broken:
  /// what has begun is waited for like any other.
  void start_backup(Copier& copier, std::span<const TierPools> pools, std::size_t stream);
  /// Host to device; the host pages are protected already. Nothing is under way if it fails.
  Status start_load(Copier& copier, std::span<const TierPools> pools, std::size_t stream,
                    LoadOrder order);
  /// Calls off what has begun, and waits for what cannot be.
  void stop();
  bool finished() const;
  /// True if every byte has arrived.
  bool wait() const;
  std::int64_t progress() const;  // see Agreement

  /// Calls fn(component, pages) for each component of which there are pages.
  template <typename Fn>
  void for_each(Fn&& fn) const {
    for (std::size_t c = 0; c < of.size(); ++c) {
      if (!of[c].host.empty()) fn(c, of[c]);
    }
  }
};

class CopyQueue {
 public:
  explicit CopyQueue(std::size_t num_components) : num_components_(num_components) {}

  /// One without pages, whose memory may be that of one that has ended. (PollCompletions: 188 ns
  /// without, 138 with.)
  std::unique_ptr<PageCopy> make();
  void recycle(std::unique_ptr<PageCopy> copy) {
    copy->clear();
    spare_.push_back(std::move(copy));
  }

  void push(std::unique_ptr<PageCopy> copy) { under_way_.push_back(std::move(copy)); }
  bool empty() const { return under_way_.empty(); }
  std::size_t size() const { return under_way_.size(); }
  const std::deque<std::unique_ptr<PageCopy>>& list() const { return under_way_; }

  /// Appends a number for each.
  void report(std::vector<std::int64_t>& values) const;
  /// Takes those from the front that have ended on all ranks: fn(copy, succeeded).
  template <typename Fn>
  void apply(std::span<const std::int64_t> values, Fn&& fn) {
    for (const std::int64_t value : values) {
      if (value == kUnderWay) return;
      std::unique_ptr<PageCopy> copy = std::move(under_way_.front());
      under_way_.pop_front();
      fn(*copy, value == kDone);
      recycle(std::move(copy));
    }
  }

 private:
  std::size_t num_components_;
  std::deque<std::unique_ptr<PageCopy>> under_way_;
  std::vector<std::unique_ptr<PageCopy>> spare_;
};

}  // namespace pando
