// SPDX-License-Identifier: Apache-2.0
// A small RadixIndex with pages of one token, for tests of its parts: inserts of letters ("abc" is
// three pages), nodes found by what leads to them, and a proof of everything.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "index/radix_index.h"

namespace pando::testing {

inline std::vector<Token> letters(std::string_view text) { return {text.begin(), text.end()}; }

class TreeParts : public ::testing::Test {
 protected:
  explicit TreeParts(RadixIndex::Options options = {}, std::string_view policy = "lru")
      : index((options.hash_seed = 1, options), *make_policy(policy)) {}

  /// The node at the end of these letters, made if need be, on the device.
  NodeIndex insert(std::string_view text, std::string_view ns = {}) {
    const std::vector<Token> tokens = letters(text);
    const Tree::Cursor cursor = tree().descend({tokens, ns}, nullptr);
    NodeIndex node = cursor.node == kNoNode ? index.root(ns) : tree().split_at(cursor);
    if (cursor.pages < tokens.size()) {
      std::vector<std::uint32_t> pages(tokens.size() - cursor.pages);
      for (std::uint32_t& page : pages) page = next_page++;
      node = index.add_leaf(node, tokens.data() + cursor.pages, pages);
    }
    index.touch_insert(node, {});
    return node;
  }
  /// Gives a node of the device a copy on the host.
  void back_up(NodeIndex node, bool with_window = false) {
    std::vector<HostPageId> pages, windows;
    for (std::uint32_t i = 0; i < index.node(node).num_pages; ++i) {
      pages.push_back(HostPageId{next_page++});
      if (with_window) windows.push_back(HostPageId{next_page++});
    }
    index.residency().attach_host(node, {pages, windows, {}});
  }
  std::size_t length(std::string_view text) const {
    const std::vector<Token> tokens = letters(text);
    return index.tree().descend({tokens}, nullptr).pages;
  }
  void prove(const RadixIndex::HoldCounts& counts = {}) const {
    const Status status = index.check(counts);
    ASSERT_TRUE(status.ok()) << status.error().message << '\n' << index.dump();
  }
  Tree& tree() { return index.tree(); }
  /// To break what a check() should notice.
  Node& node(NodeIndex i) { return index.tree().nodes()[i]; }

  RadixIndex index;
  Released released;
  Evicted evicted;
  std::uint32_t next_page = 1;
};

}  // namespace pando::testing
