// SPDX-License-Identifier: Apache-2.0
// Which blocks have been seen, in bounded memory. Exact as long as there is room; then every other
// one is forgotten, chosen by its hash, and what is left stands for twice as many. So memory does
// not grow with a trace, and a count of n has an error of about 1 / sqrt(limit).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "replay/mix.h"
#include "replay/trace.h"

namespace pando {

class BlockSample {
 public:
  explicit BlockSample(std::size_t limit = std::size_t{1} << 22) : limit_(limit), table_(1024) {}

  /// Whether this block is one of those looked at. Never false while all are.
  bool is_sampled(BlockId id) const { return (mix(id) & mask_) == 0; }
  /// Each sampled block stands for so many.
  std::uint64_t weight() const { return mask_ + 1; }
  /// How many different blocks there were; an estimate once weight() is more than 1.
  std::uint64_t num_seen() const { return count_ * weight(); }

  /// True if it is new. Only for sampled ones.
  bool insert(BlockId id) {
    if (!place(id)) return false;
    if (++count_ > table_.size() / 2) grow();
    return true;
  }

 private:
  // Slots hold mixed ids, whose low bits under the mask are all 0 and so not of use; 0 is empty.
  bool place(BlockId id) {
    const std::uint64_t mixed = mix(id) | (mix(id) == 0 ? 1 : 0);
    for (std::size_t at = (mixed >> 24) & (table_.size() - 1);;
         at = (at + 1) & (table_.size() - 1)) {
      if (table_[at] == mixed) return false;
      if (table_[at] != 0) continue;
      table_[at] = mixed;
      return true;
    }
  }

  void grow() {
    std::vector<std::uint64_t> old(std::move(table_));
    const bool full = count_ >= limit_;
    if (full) mask_ = mask_ * 2 + 1;
    table_.assign(full ? old.size() : 2 * old.size(), 0);
    count_ = 0;
    for (const std::uint64_t mixed : old) {
      if (mixed == 0 || (mixed & mask_) != 0) continue;
      std::size_t at = (mixed >> 24) & (table_.size() - 1);
      while (table_[at] != 0) at = (at + 1) & (table_.size() - 1);
      table_[at] = mixed;
      ++count_;
    }
  }

  std::size_t limit_;
  std::uint64_t mask_ = 0;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> table_;
};

}  // namespace pando
