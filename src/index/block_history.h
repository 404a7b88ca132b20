// SPDX-License-Identifier: Apache-2.0
// Blocks that were evicted lately, and how often each had been hit: so that a block that comes back
// is told from one that was never there. Without it the hazard policy gains little in small caches,
// where a block is evicted more often than it is hit.
//
// Invariant: the maps name exactly those of the list, which are the last `limit` evictions of
// blocks that did not come back, the oldest first. O(1) each, in memory that grows with use: to at
// most 24 bytes of list and 43 of map for each of `limit`. So that nobody waits for it to grow, the
// list comes in pieces and the map is 64 small ones: at 4 million blocks the slowest call takes 2
// ms, with a single map 110. Belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/check.h"
#include "base/id_map.h"

namespace pando {

class BlockHistory {
 public:
  static constexpr std::size_t kMinLimit = 32768;

  /// Enough for a cache of so many blocks.
  static constexpr std::size_t limit_for(std::size_t capacity_blocks) {
    return std::max(4 * capacity_blocks, kMinLimit);
  }

  explicit BlockHistory(std::size_t limit) : limit_(limit), list_(1) {
    PANDO_CHECK(limit > 0 && limit < UINT32_MAX, "a history of {} blocks", limit);
  }

  /// `id`, of well-mixed bits, is evicted after so many hits.
  void add(std::uint64_t id, std::uint32_t hits) {
    std::uint32_t at = free_;
    if (at == 0) {
      at = static_cast<std::uint32_t>(list_.size());
      list_.emplace_back();
    } else {
      free_ = list_[at].next;
    }
    const std::uint32_t last = list_[0].previous;
    list_[at] = {id, hits, last, 0};
    list_[last].next = at;
    list_[0].previous = at;
    ++size_;
    if (const auto before = places(id).set(id, at)) unlink(*before);
    if (size_ <= limit_) return;
    const std::uint32_t oldest = list_[0].next;
    places(list_[oldest].id).erase(list_[oldest].id);
    unlink(oldest);
  }

  /// The hits that it had, if it is remembered.
  std::optional<std::uint32_t> find(std::uint64_t id) const {
    const auto at = places_[part_of(id)].find(id);
    if (!at) return std::nullopt;
    return list_[*at].hits;
  }

  /// find() for a block that is cached again: it is forgotten here.
  std::optional<std::uint32_t> take(std::uint64_t id) {
    const auto at = places(id).find(id);
    if (!at) return std::nullopt;
    const std::uint32_t hits = list_[*at].hits;
    places(id).erase(id);
    unlink(*at);
    return hits;
  }

  std::size_t size() const { return size_; }
  std::size_t limit() const { return limit_; }
  std::size_t memory_bytes() const {
    std::size_t total = (list_.size() - 1) * sizeof(Eviction);
    for (const IdMap& map : places_) total += map.memory_bytes();
    return total;
  }

 private:
  struct Eviction {
    std::uint64_t id = 0;
    std::uint32_t hits = 0;
    std::uint32_t previous = 0;
    std::uint32_t next = 0;
  };
  static constexpr std::size_t kParts = 64;

  static std::size_t part_of(std::uint64_t id) { return (id >> 32) % kParts; }
  IdMap& places(std::uint64_t id) { return places_[part_of(id)]; }
  void unlink(std::uint32_t at) {
    Eviction& gone = list_[at];
    list_[gone.previous].next = gone.next;
    list_[gone.next].previous = gone.previous;
    gone.next = free_;
    free_ = at;
    --size_;
  }

  const std::size_t limit_;
  std::deque<Eviction> list_;         // in a circle through the first, which is no eviction
  std::uint32_t free_ = 0;            // the first place that is not used, in a list by `next`
  std::array<IdMap, kParts> places_;  // by bits of the id that the maps do not look at
  std::size_t size_ = 0;
};

}  // namespace pando
