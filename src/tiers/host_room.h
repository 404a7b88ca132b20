// SPDX-License-Identifier: Apache-2.0
// Room on the host: who gets pages of the host pools, and what must go for that. Copies to the host
// and fetches from a store reserve here; the index, which keeps the pages that have arrived, is
// told to evict what is missing.
//
// Invariant: a page in use is kept by the index, or claimed by exactly one thing under way. Claims
// are counted by owner and component, so that an owner's cap is compared with what this owner has
// and will have, whatever others have under way.
//
// Ranks ask alike, so they evict alike: with ranks room is counted, not looked up, and a claim
// stands on all of them even where one pool refuses. `Claim::refused` says so, and whoever made the
// claim lets the ranks agree on it.
//
// Cost: O(1) and the pages, besides what is evicted.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "index/node.h"
#include "pando/pools.h"
#include "tiers/agreement.h"

namespace pando {

/// The index as HostRoom sees it.
class HostKeeper {
 public:
  struct Share {
    std::size_t cap = SIZE_MAX;
    std::size_t kept = 0;  // pages
    std::size_t evictable = 0;
  };
  /// What one owner has of a component, and may have.
  virtual Share share(std::size_t component, OwnerId owner) const = 0;
  /// What all owners have.
  virtual std::size_t kept_pages(std::size_t component) const = 0;
  /// The most that evicting could give `owner`.
  virtual std::size_t evictable_for(std::size_t component, OwnerId owner) const = 0;

  struct Shortage {
    std::size_t component = 0;
    std::size_t num_pages = 0;
    OwnerId owner = kSharedOwner;  // for whom
    bool over_cap = false;         // the owner itself must give them up
  };
  /// Evicts at least so many pages, as far as possible, and frees them in their pool.
  virtual void evict_host(const Shortage& shortage) = 0;

 protected:
  ~HostKeeper() = default;
};

class HostRoom {
 public:
  /// Pools by component; nullptr where there is none. They and the others must outlive it.
  HostRoom(std::vector<HostPool*> pools, Agreement& ranks, HostKeeper& keeper);

  /// For whom something under way has claimed pages. It knows itself how many.
  struct Claim {
    OwnerId owner = kSharedOwner;
    bool refused = false;  // a pool has refused some of them here
  };
  /// Claims pages of a component, after evicting what is missing, and appends them to `out` unless
  /// the pool refuses. False, and nothing is claimed: no rank has room.
  bool reserve(std::size_t component, std::size_t n, OwnerId owner, std::vector<HostPageId>& out,
               Claim& claim);
  /// So many of them are kept by the index now, or not wanted any more.
  void unclaim(OwnerId owner, std::size_t component, std::size_t n) {
    claimed_[component] -= n;
    claimed_by_[component][owner] -= n;
  }

  /// The most pages that reserve() could give now.
  std::size_t available(std::size_t component, OwnerId owner) const;
  /// Pages of a component on the rank that has the fewest.
  std::size_t capacity(std::size_t component) const { return capacity_[component]; }
  std::size_t num_components() const { return pools_.size(); }
  HostPool& pool(std::size_t component) const { return *pools_[component]; }

  struct Claimed {
    OwnerId owner = kSharedOwner;
    std::size_t component = 0;
    std::size_t num_pages = 0;
  };
  /// What is counted is the sum of these.
  Status check(std::span<const Claimed> claims) const;

 private:
  std::size_t free_pages(std::size_t component) const;
  std::size_t claimed_by(std::size_t component, OwnerId owner) const;
  bool keep_to_cap(std::size_t component, std::size_t n, OwnerId owner);

  const std::vector<HostPool*> pools_;
  Agreement& ranks_;
  HostKeeper& keeper_;
  std::vector<std::size_t> capacity_;                 // by component
  std::vector<std::size_t> claimed_;                  // by component, of all owners
  std::vector<std::vector<std::size_t>> claimed_by_;  // by component and owner
};

}  // namespace pando
