// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: the first two bytes pick a configuration, every eight bytes after them are one
// operation of the cache model (tests/support/cache_model.h), which compares with the reference.
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/cache_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pando::testing::ModelConfig;
  constexpr std::size_t kHeader = 2;
  if (size < kHeader + sizeof(std::uint64_t)) return 0;
  const std::uint8_t pick = data[0];
  ModelConfig config;
  config.page_size = std::size_t{1} << (pick % 4);
  config.bigram = (pick & 4) != 0;
  config.events = (pick & 8) != 0;
  config.whole_nodes = (pick & 16) != 0;
  config.own_allocator = (pick & 32) == 0;
  static const char* const kPolicies[] = {"lru", "lfu", "slru", "priority"};
  config.policy = kPolicies[pick >> 6];
  const std::uint8_t parts = data[1];
  if ((parts & 1) != 0)
    config.window = 1 + (parts >> 1 & 7) * 3 * config.page_size / 8;  // up to almost three pages
  if ((parts & 16) != 0) {
    config.state = pando::StateOptions{.snapshot_interval = (parts >> 5 & 3) * config.page_size};
    if ((parts & 128) != 0) config.state->max_per_path = 2;
  }

  std::vector<std::uint64_t> ops((size - kHeader) / sizeof(std::uint64_t));
  std::memcpy(ops.data(), data + kHeader, ops.size() * sizeof(std::uint64_t));
  pando::testing::run_model(config, ops);  // what it throws ends the run
  return 0;
}
