// SPDX-License-Identifier: Apache-2.0
// What the tier engine moves: an extent is what one entry of an index has on a tier, its pages of
// each component, and what they are called in a store. A node of the radix tree is one; so is a
// block. The engine knows entries by number only: the index gives the numbers and resolves them.
//
// A component is a kind of bytes with pools of its own: full attention, windows and states under
// the tree, the groups of a BlockCache. Components are numbered from 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pando/key_space.h"
#include "pando/pools.h"

namespace pando {

struct Extent {
  std::uint64_t entry = 0;       // the index's name for it
  std::uint32_t begin = 0;       // of a node: pages from the root; it may be split meanwhile
  std::uint32_t num_pages = 0;   // of each component that covers all its tokens
  std::uint32_t num_tokens = 0;  // that it stands for
  std::uint32_t components = 1;  // bit c: it has pages of component c
  bool has(std::size_t component) const { return (components >> component & 1) != 0; }
};

/// One T for each component. Those of most models lie in the object itself: what is under way is
/// looked at once, when it has long left the caches. (PollCompletions: 213 ns with vectors, 190
/// so.)
template <typename T>
class ByComponent {
 public:
  explicit ByComponent(std::size_t n = 0) { resize(n); }
  void resize(std::size_t n) {
    size_ = n;
    if (n > kInside) rest_.resize(n - kInside);
  }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t c) { return c < kInside ? inside_[c] : rest_[c - kInside]; }
  const T& operator[](std::size_t c) const { return c < kInside ? inside_[c] : rest_[c - kInside]; }

 private:
  static constexpr std::size_t kInside = 3;
  std::size_t size_ = 0;
  std::array<T, kInside> inside_ = {};
  std::vector<T> rest_;
};

/// What a page is called in a store. The key also says of which component it is.
struct PageName {
  std::uint32_t component = 0;
  PageHash hash = {};
};

/// A host page with bytes that a store may be given.
struct NamedPage {
  PageName name;
  HostPageId page = {};
};

}  // namespace pando
