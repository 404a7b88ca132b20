// SPDX-License-Identifier: Apache-2.0
// Names of pages in a store. A key is made of the page's hash (which has the whole prefix and the
// namespace in it) and of everything else that makes bytes mean something: model, rank, component,
// geometry and layout. So a page of another geometry can never be found. docs/formats.md.
// Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pando/events.h"
#include "pando/pools.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// Whose pages they are.
struct StoreScope {
  std::string model = "default";  ///< name of the model
  std::uint32_t tp_rank = 0;      ///< rank of tensor parallelism
  std::uint32_t tp_size = 1;      ///< ranks of tensor parallelism
  std::uint32_t pp_rank = 0;      ///< rank of pipeline parallelism
  std::uint32_t pp_size = 1;      ///< ranks of pipeline parallelism
  /// All tensor ranks have the same bytes (MLA): keys leave the rank out, and rank 0 writes.
  bool same_on_all_tp_ranks = false;

  Status validate() const;  ///< an error where it makes no sense
};

/// Names of pages in a store: of the page's hash, and of everything else that makes bytes mean
/// something. So a page of another geometry can never be found.
class KeySpace {
 public:
  /// Of groups of layers that a BlockCache keeps apart, only the first shares keys with a cache
  /// that has one.
  KeySpace(const StoreScope& scope, const Geometry& geometry, HostLayout layout,
           ComponentKind component, std::uint32_t group = 0);

  /// "{hash}_{model}[_{tp_rank}_{tp_size}][_{pp_size}_{pp_rank}]_{f|w|s}{fingerprint}", where the
  /// model has '-' for '/'. At most 255 bytes.
  std::string key(const PageHash& hash) const;
  /// As the raw files of SGLang's file store are named, without fingerprint: for importing them.
  std::string sglang_name(const PageHash& hash) const;
  /// What all of its keys end with, behind the hash.
  const std::string& suffix() const { return suffix_; }
  /// Whether this rank is the one that writes.
  bool writes() const { return writes_; }

 private:
  std::string sglang_suffix_;
  std::string suffix_;
  bool writes_;
};

/// One of several: of tensor or pipeline parallelism.
struct RankOf {
  std::uint32_t rank = 0;  ///< which one, from 0
  std::uint32_t size = 1;  ///< how many there are

  friend bool operator==(const RankOf&, const RankOf&) = default;
};

/// What a key of a KeySpace says.
struct ParsedKey {
  PageHash hash = {};        ///< of the page
  std::string model;         ///< as in the key: '-' for '/'
  std::optional<RankOf> tp;  ///< `std::nullopt`: all tensor ranks have the same bytes
  std::optional<RankOf> pp;  ///< `std::nullopt`: one stage
  ComponentKind component = ComponentKind::full;  ///< which layers' bytes they are
  std::string fingerprint;                        ///< of geometry and layout, 16 digits

  friend bool operator==(const ParsedKey&, const ParsedKey&) = default;
};

/// What a key says; `std::nullopt` if no KeySpace makes such a key. A model whose name ends like
/// ranks, "m_0_1", is read as having them where the key leaves its own out.
std::optional<ParsedKey> parse_key(std::string_view key);

}  // namespace pando
