// SPDX-License-Identifier: Apache-2.0
// The index as the store behind the host sees it: which extents the store lacks, and which pages of
// the store the index could use. StorePuts and StoreFetches call it, on the thread of the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "index/node.h"
#include "tiers/extent.h"

namespace pando {

/// What a prefetch is after; an index adds what it needs to find its way back.
struct FetchTarget {
  virtual ~FetchTarget() = default;
  OwnerId owner = kSharedOwner;
  std::size_t num_tokens = 0;         // that could be fetched at most
  std::vector<PageName> asked;        // which of them the store is asked for
  std::vector<std::uint32_t> wanted;  // places in `asked`: what is read, in this order
};

/// A page that was to be read.
struct FetchedPage {
  std::uint32_t component = 0;
  HostPageId page = {};
  bool arrived = false;  // its bytes are there, on all ranks
  bool kept = false;     // the index says so: it is its own now
};

class StoreIndex {
 public:
  /// A store has been attached, and has been given nothing.
  virtual void store_attached() = 0;
  /// Of the entry, and of what it stands on, the first extent that is on the host and that no store
  /// has been given: it stays on the host until put_ended(). Appends its pages. Nothing: there is
  /// none, or none any more.
  virtual std::optional<Extent> hold_unstored(std::uint64_t entry,
                                              std::vector<NamedPage>& pages) = 0;
  virtual bool is_unstored(std::uint64_t entry) const = 0;
  /// Lets go. Unless it is stored, the next hit puts it again.
  virtual void put_ended(const Extent& extent, bool stored) = 0;

  /// Sets `wanted`: what to read so that the most tokens, `limit` at most, are gained, given which
  /// of `asked` the store has. Returns those tokens.
  virtual std::size_t choose(FetchTarget& target, const std::function<bool(std::size_t)>& has,
                             std::size_t limit) = 0;
  /// Keeps what it can use of pages, given in the order of `wanted`. Returns the tokens that the
  /// host has more: of the component that has got the most.
  virtual std::size_t keep(FetchTarget& target, std::span<FetchedPage> pages) = 0;
  /// Lets go of what it held for the target.
  virtual void fetch_ended(FetchTarget& target) = 0;

 protected:
  ~StoreIndex() = default;
};

}  // namespace pando
