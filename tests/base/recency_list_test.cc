// SPDX-License-Identifier: Apache-2.0
// RecencyList by example.
#include "base/recency_list.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

TEST(RecencyList, GivesTheLeastRecentlyUsed) {
  RecencyList list(4);
  EXPECT_EQ(list.least_recent(), std::nullopt);
  for (const std::uint32_t i : {2u, 0u, 3u}) list.use(i);
  EXPECT_EQ(list.least_recent(), 2u);
  list.use(2);
  EXPECT_EQ(list.least_recent(), 0u);
  EXPECT_EQ(list.count(), 3u);
}

TEST(RecencyList, WhatIsErasedIsOutUntilItIsUsed) {
  RecencyList list(3);
  for (const std::uint32_t i : {0u, 1u, 2u}) list.use(i);
  list.erase(0);
  list.erase(2);
  EXPECT_FALSE(list.contains(0));
  EXPECT_EQ(list.least_recent(), 1u);
  list.use(0);
  list.erase(1);
  EXPECT_EQ(list.least_recent(), 0u);
  list.erase(0);
  EXPECT_EQ(list.least_recent(), std::nullopt);
}

TEST(RecencyListDeathTest, ErasingWhatIsNotThereNamesIt) {
  RecencyList list(3);
  EXPECT_DEATH(list.erase(1), "1 is not in the recency list");
}

}  // namespace
}  // namespace pando
