// SPDX-License-Identifier: Apache-2.0
// Who may touch each page of a host pool, and which page to hand out next. The host pool asks here
// before every copy and reports here after it; the bytes themselves are the pool's.
//
// Invariant: a page is in the free mask exactly when it is idle, and the counters agree with the
// states. A call names pages; it checks all of them before it changes any, and a page that is out
// of range, named twice or in another state than expected stops it at a check. Belongs to one
// thread.
//
//            alloc            protect_write ->
//     idle ---------> reserved <-------------> writing
//                              <- abort_write   |   |
//                 complete_write, from storage  |   |  complete_write, on device
//                       +-----------------------+   |
//                       v       device_came ->      v
//                   backed_up <----------------> synced
//                     |   ^     <- device_gone      ^
//        protect_load |   | abort_load              |
//                     v   |                         |
//                    loading -----------------------+
//                             complete_load
//
//     free: reserved, backed_up and synced pages become idle; protected ones cannot be freed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bitmask.h"
#include "pando/pools.h"
#include "pando/result.h"

namespace pando {

struct PageTransition;  // a row of the table in host_pages.cc

class HostPages {
 public:
  static constexpr std::size_t kNumStates = 6;

  /// All idle. At most 2^32.
  explicit HostPages(std::size_t num_pages);

  /// Takes the lowest idle pages, ascending, because copies of neighbouring pages coalesce: as many
  /// as `out` has room for, or none and out_of_capacity.
  Status alloc(std::span<HostPageId> out);

  /// A copy or a read is about to fill these pages.
  void protect_write(std::span<const HostPageId> pages);
  /// They are filled: from the device, which has them too, or from storage.
  void complete_write(std::span<const HostPageId> pages, bool on_device);
  /// What they hold is not to be trusted; they stay handed out.
  void abort_write(std::span<const HostPageId> pages);

  /// The device has evicted its copy, or has computed it anew.
  void device_gone(std::span<const HostPageId> pages);
  void device_came(std::span<const HostPageId> pages);

  /// A copy to the device is about to read these pages; it has; it did not succeed.
  void protect_load(std::span<const HostPageId> pages);
  void complete_load(std::span<const HostPageId> pages);
  void abort_load(std::span<const HostPageId> pages);

  void free(std::span<const HostPageId> pages);

  /// Every page becomes idle; in_use, and nothing changes, while any is writing or loading.
  Status clear();

  PageState state(HostPageId page) const;
  std::size_t size() const { return states_.size(); }
  std::size_t available() const { return count(PageState::idle); }
  std::size_t count(PageState state) const { return counts_[static_cast<std::size_t>(state)]; }
  std::size_t memory_bytes() const;  ///< heap

  /// Proves the invariant above; O(size).
  Status check() const;

 private:
  void apply(const PageTransition& transition, std::span<const HostPageId> pages);
  void move(std::size_t page, PageState to);

  std::vector<PageState> states_;
  HierarchicalBitmask free_;                      // the idle pages
  std::array<std::size_t, kNumStates> counts_{};  // pages in each state
  std::uint64_t num_calls_ = 0;                   // of apply
  std::vector<std::uint64_t> named_in_;           // the last call that named each page
};

}  // namespace pando
