// SPDX-License-Identifier: Apache-2.0
// Some of the numbers [0, size) in order of use, least recent first: a ring of links through one
// table, so that every call is O(1) and nothing is allocated after construction. Belongs to one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"

namespace pando {

class RecencyList {
 public:
  explicit RecencyList(std::uint32_t size) : links_(std::size_t{size} + 1) {
    links_[0] = {0, 0};  // the ring's fixed point; number i has links_[i + 1]
  }

  bool contains(std::uint32_t i) const { return links_[i + 1].next != kOut; }

  /// Adds i, or moves it, to the most recent end.
  void use(std::uint32_t i) {
    if (contains(i)) erase(i);
    Links& links = links_[i + 1];
    links = {0, links_[0].previous};
    links_[links.previous].next = i + 1;
    links_[0].previous = i + 1;
    ++count_;
  }

  /// i must be there.
  void erase(std::uint32_t i) {
    PANDO_CHECK(contains(i), "{} is not in the recency list", i);
    Links& links = links_[i + 1];
    links_[links.previous].next = links.next;
    links_[links.next].previous = links.previous;
    links = {};
    --count_;
  }

  std::optional<std::uint32_t> least_recent() const {
    if (count_ == 0) return std::nullopt;
    return links_[0].next - 1;
  }

  std::size_t count() const { return count_; }
  std::size_t memory_bytes() const { return links_.capacity() * sizeof(Links); }

 private:
  static constexpr std::uint32_t kOut = UINT32_MAX;
  struct Links {
    std::uint32_t next = kOut;
    std::uint32_t previous = kOut;
  };
  std::vector<Links> links_;
  std::size_t count_ = 0;
};

}  // namespace pando
