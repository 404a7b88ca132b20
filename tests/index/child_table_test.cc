// SPDX-License-Identifier: Apache-2.0
// ChildTable: growth, colliding hashes, overflow lines; and random operations against
// std::unordered_multimap.
#include "index/child_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <unordered_map>
#include <vector>

namespace pando {
namespace {

using Nodes = std::multiset<NodeIndex>;

/// Everything filed under `hash`.
Nodes all_under(const ChildTable& table, std::uint32_t hash) {
  Nodes found;
  const NodeIndex none = table.find(hash, [&](NodeIndex node) {
    found.insert(node);
    return false;
  });
  EXPECT_EQ(none, kNoNode);
  return found;
}

NodeIndex find_any(const ChildTable& table, std::uint32_t hash) {
  return table.find(hash, [](NodeIndex) { return true; });
}

/// Spreads numbers over all 32 bits.
std::uint32_t scramble(std::uint32_t i) { return i * 2654435761u; }

TEST(ChildTable, FindsNothingWhenEmpty) {
  const ChildTable table;
  EXPECT_EQ(find_any(table, 0), kNoNode);
  EXPECT_EQ(find_any(table, ~0u), kNoNode);
  EXPECT_EQ(table.size(), 0u);
}

TEST(ChildTable, AsksOnlyAboutNodesOfTheSameHash) {
  ChildTable table;
  table.insert(1, 10);
  table.insert(1 + (1u << 20), 20);  // the same bucket for now
  EXPECT_EQ(all_under(table, 1), Nodes{10});
}

TEST(ChildTable, TheCallerPicksAmongEqualHashes) {
  ChildTable table;
  for (NodeIndex node = 1; node <= 30; ++node) table.insert(5, node);
  EXPECT_EQ(table.find(5, [](NodeIndex node) { return node == 23; }), 23u);
  EXPECT_EQ(table.find(5, [](NodeIndex node) { return node == 31; }), kNoNode);
}

TEST(ChildTable, EraseTakesTheNodeAndNoOther) {
  ChildTable table;
  for (NodeIndex node = 1; node <= 30; ++node) table.insert(5, node);
  table.erase(5, 1);
  table.erase(5, 30);
  table.erase(5, 15);
  const Nodes left = all_under(table, 5);
  EXPECT_EQ(left.size(), 27u);
  for (const NodeIndex gone : {1u, 15u, 30u}) EXPECT_EQ(left.count(gone), 0u);
}

TEST(ChildTable, KeepsEveryNodeWhileItGrows) {
  constexpr NodeIndex kNodes = 20'000;
  ChildTable table;
  for (NodeIndex node = 1; node <= kNodes; ++node) {
    table.insert(scramble(node), node);
    ASSERT_EQ(find_any(table, scramble(node / 2 + 1)), node / 2 + 1);
  }
  for (NodeIndex node = 1; node <= kNodes; ++node) ASSERT_EQ(find_any(table, scramble(node)), node);
  EXPECT_EQ(table.size(), kNodes);
  EXPECT_LE(table.memory_bytes(), kNodes * std::size_t{40});
}

TEST(ChildTable, GrowsUnderHashesThatAllCollide) {
  ChildTable table;
  for (NodeIndex node = 1; node <= 2000; ++node) table.insert(0xABCD, node);
  EXPECT_EQ(all_under(table, 0xABCD).size(), 2000u);
  for (NodeIndex node = 2000; node > 0; --node) table.erase(0xABCD, node);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(find_any(table, 0xABCD), kNoNode);
}

TEST(ChildTable, OverflowLinesAreUsedAgain) {
  ChildTable table;
  std::size_t after_first = 0;
  for (int round = 0; round < 10; ++round) {
    for (NodeIndex node = 1; node <= 60; ++node) table.insert(3, node);
    for (NodeIndex node = 1; node <= 60; ++node) table.erase(3, node);
    if (round == 0) after_first = table.memory_bytes();
  }
  EXPECT_EQ(table.memory_bytes(), after_first);
}

TEST(ChildTableDeathTest, EraseOfWhatIsNotThereNamesTheNode) {
  ChildTable table;
  table.insert(1, 10);
  EXPECT_DEATH(table.erase(1, 11), "node 11 is not in the child table");
}

// Hashes from a small set collide in full; from a wider one, only in their low bits.
RC_GTEST_PROP(ChildTableModel, AgreesWithAMultimap, ()) {
  const auto spread = *rc::gen::element<std::uint32_t>(1, 3, 50, 4096);
  const auto ops = *rc::gen::scale(20.0, rc::gen::container<std::vector<std::uint32_t>>(
                                             rc::gen::inRange<std::uint32_t>(0, 1u << 30)));
  ChildTable table;
  std::unordered_multimap<std::uint32_t, NodeIndex> reference;
  NodeIndex last_node = 0;
  const auto hash_of = [&](std::uint32_t op) {
    const std::uint32_t i = op % spread;
    return i % 2 == 0 ? scramble(i) : i << 16;
  };
  const auto same = [&](std::uint32_t hash) {
    Nodes expected;
    const auto [first, last] = reference.equal_range(hash);
    for (auto it = first; it != last; ++it) expected.insert(it->second);
    RC_ASSERT(all_under(table, hash) == expected);
  };
  for (const std::uint32_t op : ops) {
    const std::uint32_t hash = hash_of(op / 4);
    const auto it = reference.find(hash);
    if (op % 4 == 0 && it != reference.end()) {
      table.erase(hash, it->second);
      reference.erase(it);
    } else {
      table.insert(hash, ++last_node);
      reference.emplace(hash, last_node);
    }
    RC_ASSERT(table.size() == reference.size());
    same(hash);
  }
  for (std::uint32_t i = 0; i < spread; ++i) same(hash_of(i));
}

}  // namespace
}  // namespace pando
