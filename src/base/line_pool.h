// SPDX-License-Identifier: Apache-2.0
// Small blocks of memory that come and go in any order, by size class, with no bookkeeping around
// them: giving one back touches its first line and nothing else. (A general heap merges neighbours,
// which for cold blocks costs several cache misses: half of the time of an eviction.)
//
// Blocks are whole cache lines, aligned to them. What is free stays with its size class until the
// pool goes, so only small ones are pooled: blocks above kMaxPooled come from the heap, where the
// merging costs little beside what they hold. With the address sanitizer all do, so that it can
// watch them.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/memory.h"

namespace pando {

class LinePool {
 public:
  LinePool() = default;
  LinePool(const LinePool&) = delete;
  LinePool& operator=(const LinePool&) = delete;

  void* alloc(std::size_t size_bytes);
  /// With the size it was allocated with.
  void free(void* block, std::size_t size_bytes);

  /// From the system, in use or not.
  std::size_t memory_bytes() const { return memory_bytes_; }

 private:
  static constexpr std::size_t kMaxPooled = 1024;
  struct Free {
    Free* next;
  };

  std::array<Free*, kMaxPooled / kCacheLine + 1> free_ = {};  // by size in lines
  std::vector<Table<std::byte>> chunks_;
  std::byte* chunk_at_ = nullptr;  // the unused rest of the last chunk
  std::size_t chunk_left_ = 0;
  std::size_t memory_bytes_ = 0;
};

}  // namespace pando
