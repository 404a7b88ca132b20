// SPDX-License-Identifier: Apache-2.0
// Matcher: how much of a walk can be used when windows are gone or only the host has the rest.
#include "index/tree_parts.h"

namespace pando::testing {
namespace {

class MatcherTest : public TreeParts {
 protected:
  MatcherTest() : TreeParts({.window_pages = 2, .host = true}) {}

  std::size_t valid(std::string_view text, Matcher::Reach reach) const {
    const std::vector<Token> tokens = letters(text);
    return index.matcher().valid_end(index.tree().descend({tokens}, nullptr), reach).pages;
  }
};

TEST_F(MatcherTest, AMatchEndsWhereTheWindowIsLongEnough) {
  insert("abcd");
  const NodeIndex middle = insert("ab");
  index.residency().detach_component(Tier::device, ComponentKind::window, middle, released,
                                     evicted);
  EXPECT_EQ(valid("abcd", Matcher::Reach::device), 4u);
  EXPECT_EQ(valid("abc", Matcher::Reach::device), 0u);
  EXPECT_TRUE(index.matcher().has_window(insert("abcd"), 2));
  EXPECT_FALSE(index.matcher().has_window(insert("abcd"), 1));
}

TEST_F(MatcherTest, WhatOnlyTheHostHasIsWithinItsReachAlone) {
  insert("ab");
  const NodeIndex end = insert("abcd");
  back_up(end, /*with_window=*/true);
  EXPECT_FALSE(index.matcher().is_on_host(end));  // its parent is not
  index.residency().detach_device(end, released, evicted);
  EXPECT_EQ(valid("abcd", Matcher::Reach::device), 2u);
  EXPECT_EQ(valid("abcd", Matcher::Reach::host), 4u);
  EXPECT_EQ(index.matcher().device_end(tree().end_of(end)).pages, 2u);
}

}  // namespace
}  // namespace pando::testing
