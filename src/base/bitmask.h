// SPDX-License-Identifier: Apache-2.0
// A set over [0, size) that finds its lowest member quickly at any size. The allocators keep their
// free pages, slots and rows in one.
//
// Invariant: level 0 has a bit per member; bit j of level k+1 is set exactly when word j of level k
// is not empty; the top level is one word. set, clear and find_first cost one word per level (4 at
// a million members, 6 at 2^32), and set and clear leave level 0 only when a word fills from empty
// or empties. About 1.016 bits per member. Belongs to one thread.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"

namespace pando {

class HierarchicalBitmask {
 public:
  /// The empty set over [0, size).
  explicit HierarchicalBitmask(std::size_t size);

  /// Adds i; false when it was a member already.
  bool set(std::size_t i) {
    PANDO_CHECK(i < size_, "bit {} is outside [0, {})", i, size_);
    std::uint64_t& word = words_[i / 64];
    if (word & bit(i)) return false;
    const bool was_empty = word == 0;
    word |= bit(i);
    ++count_;
    if (was_empty) [[unlikely]]
      announce_word(i / 64);
    return true;
  }

  /// Removes i; false when it was no member.
  bool clear(std::size_t i) {
    PANDO_CHECK(i < size_, "bit {} is outside [0, {})", i, size_);
    std::uint64_t& word = words_[i / 64];
    if (!(word & bit(i))) return false;
    word &= ~bit(i);
    --count_;
    if (word == 0) [[unlikely]]
      retire_word(i / 64);
    return true;
  }

  bool test(std::size_t i) const {
    PANDO_CHECK(i < size_, "bit {} is outside [0, {})", i, size_);
    return words_[i / 64] & bit(i);
  }

  /// The lowest member; the lowest that is at least i.
  std::optional<std::size_t> find_first() const;
  std::optional<std::size_t> find_first_from(std::size_t i) const;

  /// Removes the lowest members and writes them to `out`, ascending. Returns how many: out.size(),
  /// or all there were. Reads each word once, not once per member.
  template <std::unsigned_integral Index>
  std::size_t take_first(std::span<Index> out) {
    std::size_t num_taken = 0;
    while (num_taken < out.size() && count_ > 0) {
      const std::size_t w = *find_first() / 64;
      std::uint64_t word = words_[w];
      for (; word != 0 && num_taken < out.size(); word &= word - 1, --count_) {
        out[num_taken++] = static_cast<Index>(w * 64 + lowest(word));
      }
      words_[w] = word;
      if (word == 0) retire_word(w);
    }
    return num_taken;
  }

  void fill();   ///< all of [0, size)
  void reset();  ///< none

  std::size_t count() const { return count_; }
  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const { return words_.capacity() * sizeof(words_[0]); }  ///< heap

  /// Proves the invariant above and the count; O(size / 64).
  Status check() const;

 private:
  static constexpr std::size_t kMaxLevels = 11;  // 64^11 > 2^64

  static constexpr std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << (i % 64); }
  static constexpr std::size_t lowest(std::uint64_t word) {
    return static_cast<std::size_t>(std::countr_zero(word));
  }

  void announce_word(std::size_t word);  // word of level 0 is no longer empty
  void retire_word(std::size_t word);    // word of level 0 has become empty
  std::size_t descend(std::size_t level, std::size_t i) const;
  std::size_t words_on(std::size_t level) const { return begin_[level + 1] - begin_[level]; }

  std::size_t size_;
  std::size_t count_ = 0;
  std::size_t num_levels_ = 0;
  std::array<std::size_t, kMaxLevels + 1> begin_{};  // of each level in words_; then the end
  std::vector<std::uint64_t> words_;                 // level 0 first
};

}  // namespace pando
