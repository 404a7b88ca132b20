// SPDX-License-Identifier: Apache-2.0
// HierarchicalBitmask: how levels are laid out, climbed when a word fills or empties, and descended
// to find a member. Level k+1 is reached once per 64 changes of level k at best, once per change at
// worst.
#include "base/bitmask.h"

#include <algorithm>

namespace pando {

HierarchicalBitmask::HierarchicalBitmask(std::size_t size) : size_(size) {
  std::size_t num_words = size;
  do {
    num_words = std::max<std::size_t>(1, num_words / 64 + (num_words % 64 != 0));
    begin_[num_levels_ + 1] = begin_[num_levels_] + num_words;
    ++num_levels_;
  } while (num_words > 1);
  words_.resize(begin_[num_levels_]);
}

void HierarchicalBitmask::announce_word(std::size_t word) {
  for (std::size_t level = 1; level < num_levels_; ++level, word /= 64) {
    std::uint64_t& parent = words_[begin_[level] + word / 64];
    const bool was_empty = parent == 0;
    parent |= bit(word);
    if (!was_empty) return;
  }
}

void HierarchicalBitmask::retire_word(std::size_t word) {
  for (std::size_t level = 1; level < num_levels_; ++level, word /= 64) {
    std::uint64_t& parent = words_[begin_[level] + word / 64];
    parent &= ~bit(word);
    if (parent != 0) return;
  }
}

// The lowest member below bit i of `level`, which is set.
std::size_t HierarchicalBitmask::descend(std::size_t level, std::size_t i) const {
  while (level > 0) {
    --level;
    i = i * 64 + lowest(words_[begin_[level] + i]);
  }
  return i;
}

std::optional<std::size_t> HierarchicalBitmask::find_first() const {
  const std::size_t top = num_levels_ - 1;
  const std::uint64_t word = words_[begin_[top]];
  if (word == 0) return std::nullopt;
  return descend(top, lowest(word));
}

std::optional<std::size_t> HierarchicalBitmask::find_first_from(std::size_t i) const {
  for (std::size_t level = 0; level < num_levels_; ++level) {
    const std::size_t w = i / 64;
    if (w >= words_on(level)) return std::nullopt;
    const std::uint64_t at_or_above = words_[begin_[level] + w] & (~std::uint64_t{0} << (i % 64));
    if (at_or_above != 0) return descend(level, w * 64 + lowest(at_or_above));
    i = w + 1;  // one level up, the words after this one
  }
  return std::nullopt;
}

void HierarchicalBitmask::fill() {
  std::size_t num_bits = size_;
  for (std::size_t level = 0; level < num_levels_; ++level) {
    for (std::size_t w = 0; w < words_on(level); ++w) {
      const std::size_t in_word = std::min<std::size_t>(64, num_bits - w * 64);
      words_[begin_[level] + w] = in_word == 0 ? 0 : ~std::uint64_t{0} >> (64 - in_word);
    }
    num_bits = words_on(level);
  }
  count_ = size_;
}

void HierarchicalBitmask::reset() {
  std::fill(words_.begin(), words_.end(), 0);
  count_ = 0;
}

Status HierarchicalBitmask::check() const {
  std::size_t num_members = 0;
  for (std::size_t w = 0; w < words_on(0); ++w) {
    num_members += static_cast<std::size_t>(std::popcount(words_[w]));
  }
  if (num_members != count_) {
    return make_error(ErrorCode::corrupt, "bitmask counts {} members, has {}", count_, num_members);
  }
  if (size_ % 64 != 0 && words_[size_ / 64] >> (size_ % 64) != 0) {
    return make_error(ErrorCode::corrupt, "bitmask has a member past its size {}", size_);
  }
  for (std::size_t level = 1; level < num_levels_; ++level) {
    for (std::size_t j = 0; j < words_on(level) * 64; ++j) {
      const bool announced = words_[begin_[level] + j / 64] & bit(j);
      const bool present = j < words_on(level - 1) && words_[begin_[level - 1] + j] != 0;
      if (announced != present) {
        return make_error(ErrorCode::corrupt, "bitmask level {} says word {} is {}", level, j,
                          announced ? "in use, it is empty" : "empty, it is in use");
      }
    }
  }
  return {};
}

}  // namespace pando
