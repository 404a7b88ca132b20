// SPDX-License-Identifier: Apache-2.0
// KeyTable against std::map.
#include "offload/key_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace pando::testing {
namespace {

TEST(KeyTable, FindsByTheWholeKey) {
  KeyTable table(4);
  const std::string long_key(40, 'x');
  table.insert(1, long_key, table.hash(long_key));
  table.insert(2, "", table.hash(""));
  EXPECT_EQ(table.find(long_key, table.hash(long_key)), 1u);
  EXPECT_EQ(table.find("", table.hash("")), 2u);
  EXPECT_EQ(table.find_hash(table.hash("")), 2u);
  // Another key under the same hash is not the same key.
  EXPECT_EQ(table.find("y", table.hash(long_key)), 0u);
  EXPECT_TRUE(table.check().ok());
}

TEST(KeyTable, AgreesWithAMapWhenFull) {
  constexpr std::uint32_t kIds = 65;
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(seed);
  Random random(seed);
  KeyTable table(kIds);
  std::map<std::string, std::uint32_t> map;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint32_t id = 1 + static_cast<std::uint32_t>(random.below(kIds - 1));
    if (table.has(id)) {
      map.erase(table.bytes(id));
      table.erase(id);
    } else {
      const std::string key = "key " + std::to_string(random.below(200));
      if (map.contains(key)) continue;
      map.emplace(key, id);
      table.insert(id, key, table.hash(key));
    }
    if (step % 100 == 0) {
      ASSERT_TRUE(table.check().ok()) << table.check().error().message;
    }
    ASSERT_EQ(table.size(), map.size());
  }
  for (int i = 0; i < 200; ++i) {
    const std::string key = "key " + std::to_string(i);
    const auto there = map.find(key);
    EXPECT_EQ(table.find(key, table.hash(key)), there == map.end() ? 0 : there->second);
  }
  for (std::uint32_t id = 1; id < kIds; ++id)
    if (table.has(id)) table.erase(id);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_TRUE(table.check().ok());
}

}  // namespace
}  // namespace pando::testing
