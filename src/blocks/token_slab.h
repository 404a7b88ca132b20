// SPDX-License-Identifier: Apache-2.0
// The tokens of cached blocks of one size, named by small numbers. Giving a place back does not
// touch it; freed places are used again last in, first out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "pando/types.h"

namespace pando {

class TokenSlab {
 public:
  explicit TokenSlab(std::size_t block_size) : block_size_(block_size) {}

  std::uint32_t add(const Token* tokens) {
    std::uint32_t i = end_;
    if (free_.empty()) {
      if (end_ % kChunk == 0) chunks_.push_back(make_table<Token>(kChunk * block_size_));
      ++end_;
    } else {
      i = free_.back();
      free_.pop_back();
    }
    std::memcpy(at(i), tokens, block_size_ * sizeof(Token));
    return i;
  }
  void remove(std::uint32_t i) { free_.push_back(i); }

  const Token* operator[](std::uint32_t i) const { return at(i); }
  std::size_t block_size() const { return block_size_; }
  std::size_t num_used() const { return end_ - free_.size(); }
  std::size_t memory_bytes() const {
    return chunks_.size() * kChunk * block_size_ * sizeof(Token) +
           free_.capacity() * sizeof(std::uint32_t);
  }

 private:
  static constexpr std::uint32_t kChunk = 256;  // blocks

  Token* at(std::uint32_t i) const { return chunks_[i / kChunk].get() + i % kChunk * block_size_; }

  std::size_t block_size_;
  std::vector<Table<Token>> chunks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t end_ = 0;
};

}  // namespace pando
