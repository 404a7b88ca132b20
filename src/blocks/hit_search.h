// SPDX-License-Identifier: Apache-2.0
// How long a hit is: the rules of the groups, and the search for the longest length on which all
// agree.
//
// Every rule has one form: to go on behind n tokens a group needs its blocks from needed_from(n)
// on. That never falls as n grows, so a missing block rules out every length behind it down to
// where it begins. Each group in turn lowers the length to the longest that suits it, until none
// does: any length that suits all is below the present one and suits the next group too, so what is
// left is the longest of them.
//
// Cost: full attention looks blocks up from the start to the first that is missing; the others from
// the end. No block is looked up twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pando/block_cache.h"

namespace pando {

class HostBlocks;

/// The first block that computing the token at position `length` needs.
std::size_t needed_from(const BlockGroup& group, std::size_t length);

/// What is looked for: a request's tokens and the hashes at the ends of its units.
struct BlockKeys {
  std::span<const Token> tokens;
  std::span<const BlockHash> hashes;
  std::size_t unit = 1;      // tokens that a hash covers
  std::string_view ns = {};  // for events
  bool alias = false;        // see BlockContent

  /// Of block i of a group.
  BlockContent content(std::uint32_t group, std::size_t block_size, std::size_t i) const {
    return {group, &hashes[(i + 1) * block_size / unit - 1], tokens.data() + i * block_size, alias};
  }
  /// Of the block before it; nothing at the start.
  std::optional<PageHash> parent(std::size_t block_size, std::size_t i) const {
    if (i == 0) return std::nullopt;
    return hashes[i * block_size / unit - 1].value;
  }
};

class HitSearch {
 public:
  /// Where blocks may be: the device alone, the host too, the store too.
  enum class Reach { device, host, store };

  /// `host` may be nullptr.
  HitSearch(std::span<const BlockGroup> groups, const BlockPool& pool, const HostBlocks* host);

  /// Forgets what it knows, and looks for other blocks.
  void begin(const BlockKeys& keys);
  /// Block i of a group is in the store.
  void add_stored(std::size_t group, std::size_t i) { found_[group].in_store[i] = true; }
  /// The longest length, a multiple of all block sizes and at most `limit`, on which all groups
  /// agree.
  std::size_t longest(std::size_t limit, Reach reach);

  std::size_t align() const { return align_; }
  /// Its device block, or the null block; its host page, or nothing.
  PageId device(std::size_t group, std::size_t i);
  std::optional<HostPageId> host(std::size_t group, std::size_t i);
  bool has(std::size_t group, std::size_t i, Reach reach);

 private:
  static constexpr PageId kUnknown{UINT32_MAX};
  struct Found {
    std::vector<PageId> device;
    std::vector<std::uint32_t> host;  // 0: none; else the page's number and 1
    std::vector<bool> in_store;
  };
  void extend_run(std::size_t group, std::size_t end, Reach reach, std::size_t& run);
  std::size_t longest_of(std::size_t group, std::size_t limit, Reach reach);

  std::span<const BlockGroup> groups_;
  const BlockPool& pool_;
  const HostBlocks* host_;
  std::size_t align_ = 1;
  std::vector<std::size_t> order_;  // of groups: full attention first, it stops the others early
  BlockKeys keys_;
  std::vector<Found> found_;                     // by group; what has been looked up
  std::array<std::vector<std::size_t>, 3> run_;  // by reach and group: blocks there from the start
};

}  // namespace pando
