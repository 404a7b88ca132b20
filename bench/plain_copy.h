// SPDX-License-Identifier: Apache-2.0
// The limit of copies on the CPU: memcpy of as many bytes, from one contiguous buffer to another,
// by as many threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "pando/pools.h"

namespace pando::bench {

class PlainCopy {
 public:
  /// In memory of the arena, like what it is compared with.
  PlainCopy(Arena& arena, std::size_t size_bytes, std::size_t num_threads)
      : arena_(arena), size_bytes_(size_bytes), num_threads_(num_threads) {
    for (std::byte*& memory : memory_) {
      memory = static_cast<std::byte*>(*arena.allocate(size_bytes, 4096));
      std::memset(memory, 1, size_bytes);
    }
  }
  ~PlainCopy() {
    for (std::byte* memory : memory_) arena_.free(memory, size_bytes_);
  }
  PlainCopy(const PlainCopy&) = delete;
  PlainCopy& operator=(const PlainCopy&) = delete;

  void run() {
    std::vector<std::thread> threads;
    const std::size_t share = size_bytes_ / num_threads_;
    for (std::size_t i = 0; i < num_threads_; ++i)
      threads.emplace_back(
          [this, i, share] { std::memcpy(memory_[0] + i * share, memory_[1] + i * share, share); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  Arena& arena_;
  const std::size_t size_bytes_;
  const std::size_t num_threads_;
  std::array<std::byte*, 2> memory_ = {};
};

}  // namespace pando::bench
