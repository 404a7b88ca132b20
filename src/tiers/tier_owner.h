// SPDX-License-Identifier: Apache-2.0
// What a cache is to its Tiers (pando/tiers.h): whose engine they work on, and what the cache adds
// to the engine's calls. PrefixCache and BlockCache are two.
#pragma once

#include <cstddef>

#include "pando/observer.h"
#include "pando/tiers.h"
#include "tiers/tier_engine.h"

namespace pando {

class TierOwner {
 public:
  TierOwner() : door(*this) {}
  TierOwner(const TierOwner&) = delete;
  TierOwner& operator=(const TierOwner&) = delete;

  /// nullptr: the cache has no host tier.
  virtual TierEngine* tier_engine() = 0;
  virtual CacheObserver* tier_observer() const = 0;
  /// An error if no store could name what this cache holds.
  virtual Status refuse_store() const = 0;
  /// That fetches may occupy, in tokens, unless the options say.
  virtual std::size_t default_fetch_tokens() const = 0;
  virtual void set_write_policy(WritePolicy policy) = 0;
  virtual PollResult poll() = 0;
  /// A store was detached: what it held is let go of.
  virtual void store_left() = 0;
  /// Returns the tokens.
  virtual std::size_t evict_host(std::size_t num_tokens, std::size_t group) = 0;
  /// So many tokens were computed behind `cached_tokens`; the engine has been told.
  virtual void prefilled(std::size_t num_tokens, double seconds, std::size_t cached_tokens) = 0;

  Tiers door;  // what the cache's tiers() gives

 protected:
  ~TierOwner() = default;
};

}  // namespace pando
