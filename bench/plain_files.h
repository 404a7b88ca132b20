// SPDX-License-Identifier: Apache-2.0
// What vLLM's `fs` tier does with blocks, without Python around it: a file per block, direct where
// the file system can, written under another name and renamed, by 16 threads. Nothing is hashed,
// checked, counted or evicted.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "cases/measure.h"

namespace pando::bench {

class PlainFiles {
 public:
  static constexpr std::size_t kThreads = 16;

  PlainFiles(const std::string& folder, std::size_t block_bytes, std::size_t num_blocks)
      : folder_(folder), block_bytes_(block_bytes), num_blocks_(num_blocks) {}

  /// Nanoseconds for all blocks, from or to one after the other in memory.
  double write(std::byte* memory, std::uint64_t round) {
    return run([&](std::size_t i, std::size_t thread) {
      const std::string path = path_of(round, i);
      if (::access(path.c_str(), F_OK) == 0) return;
      const std::string unfinished = path + "_" + std::to_string(thread) + ".tmp";
      const int fd = ::open(unfinished.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_DIRECT, 0644);
      require(::write(fd, memory + i * block_bytes_, block_bytes_) ==
                  static_cast<ssize_t>(block_bytes_),
              "a block is written");
      ::close(fd);
      require(::rename(unfinished.c_str(), path.c_str()) == 0, "a block is renamed");
    });
  }
  double read(std::byte* memory, std::uint64_t round) {
    return run([&](std::size_t i, std::size_t) {
      const int fd = ::open(path_of(round, i).c_str(), O_RDONLY | O_DIRECT);
      require(
          ::read(fd, memory + i * block_bytes_, block_bytes_) == static_cast<ssize_t>(block_bytes_),
          "a block is read");
      ::close(fd);
    });
  }

 private:
  template <typename Work>
  double run(Work&& work) {
    return time_each(1, [&](std::size_t) {
      std::atomic<std::size_t> next = 0;
      std::vector<std::thread> threads;
      for (std::size_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
          for (std::size_t i = next++; i < num_blocks_; i = next++) work(i, t);
        });
      for (std::thread& thread : threads) thread.join();
    });
  }
  std::string path_of(std::uint64_t round, std::size_t i) const {
    return folder_ + "/plain" + std::to_string(round) + "-" + std::to_string(i);
  }

  const std::string folder_;
  const std::size_t block_bytes_;
  const std::size_t num_blocks_;
};

}  // namespace pando::bench
