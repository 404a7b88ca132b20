// SPDX-License-Identifier: Apache-2.0
// Real bytes for a replay: every row of every layer says for which prefix, namespace and token it
// was computed, so that a row that comes back from any tier can be told right from wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pando/pools.h"
#include "pando/types.h"

namespace pando {

class KvRows {
 public:
  KvRows(KvPool& pool, std::size_t page_size) : pool_(pool), page_size_(page_size) {}

  /// The request whose rows are meant from now on.
  void set_key(std::span<const Token> tokens, std::string_view ns);
  /// Computes tokens [from, to) into their slots.
  void write(std::span<const SlotId> slots, std::size_t from, std::size_t to) const;
  /// The first of tokens [from, to) whose slot has other bytes; nothing if all are right.
  std::optional<std::size_t> find_wrong(std::span<const SlotId> slots, std::size_t from,
                                        std::size_t to) const;

 private:
  /// Calls fn(place, size, seed) for each piece of a token's row.
  template <typename Fn>
  void for_each_piece(SlotId slot, std::size_t position, Fn&& fn) const;

  KvPool& pool_;
  const std::size_t page_size_;
  std::vector<std::uint64_t> chain_;  // of each page, the tail's too
};

}  // namespace pando
