// SPDX-License-Identifier: Apache-2.0
// KV events: what a router must know to send a prompt where its prefix is. PrefixCache and
// BlockCache record them when their options say so; take_events() hands them over. Off, they cost
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// The chained SHA-256 of a page: digest of (digest of the page before, tokens of this page as
/// uint32 little-endian). docs/formats.md gives the bytes.
using PageHash = std::array<std::uint8_t, 32>;

/// The 64-bit block id of the event stream: the first 8 bytes, big-endian, signed.
std::int64_t block_id(const PageHash& hash);

/// Where a namespace's chain starts: `std::nullopt` for the empty one, else a digest of the
/// namespace.
std::optional<PageHash> chain_start(std::string_view ns);

/// The chained SHA-256 of all whole pages of `tokens`: what PrefixCache and its stores name pages
/// by. With `bigram`, a page of n units reads n + 1 tokens. `parent`: the page before, or
/// chain_start(). Tokens must not be negative.
Result<std::vector<PageHash>> hash_pages(std::span<const Token> tokens, std::size_t page_size,
                                         bool bigram = false,
                                         const std::optional<PageHash>& parent = {});

/// What the hash of a block takes in beside its tokens (BlockCache): a name (adapter, salt), an
/// item and where it begins from the block's start on (before it: negative), the SHA-256 of the
/// block's prompt embeddings.
struct ItemKey {
  std::string id;  ///< hash of its content
  /// From the block's first token on; negative: it begins before the block.
  std::int64_t offset = 0;
  friend bool operator==(const ItemKey&, const ItemKey&) = default;
};
using ExtraKey = std::variant<std::string, ItemKey, PageHash>;

/// What a router must know to send a prompt where its prefix is. Caches record events when their
/// options say so; take_events() hands them over.
struct KvEvent {
  /// What happened to blocks.
  enum class Kind { stored, removed, cleared };

  Kind kind = Kind::stored;        ///< what happened
  Tier tier = Tier::device;        ///< where the blocks are, or were
  std::vector<PageHash> hashes;    ///< stored: in prefix order; removed: so within a node
  std::optional<PageHash> parent;  ///< stored: the page before the first; none at a chain's start
  std::vector<Token> tokens;       ///< stored: raw tokens of all pages (bigram: one more)
  std::size_t block_size = 0;      ///< stored: tokens per page
  std::string ns;                  ///< stored: the namespace

  // BlockCache.
  std::size_t hash_bytes = sizeof(PageHash);  ///< of each hash; zeros follow
  std::uint32_t group = 0;                    ///< BlockCache: the group of layers
  /// Stored, BlockCache: what each block's hash takes in beside tokens; or none at all.
  std::vector<std::vector<ExtraKey>> extra_keys = {};

  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

}  // namespace pando
