// SPDX-License-Identifier: Apache-2.0
// What the parts of the cache model share: decoding numbers, and failing with a message.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "support/cache_model.h"

namespace pando::testing {

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw ModelFailure(fmt::format(format, std::forward<Args>(args)...));
}

inline void append(ReferenceCache::Freed& to, const ReferenceCache::Freed& from) {
  const auto add = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
  add(to.pages, from.pages);
  add(to.window_pages, from.window_pages);
  add(to.snapshots, from.snapshots);
  add(to.moved, from.moved);
  to.num_window_pages += from.num_window_pages;
}

// Reads small numbers from one large one; zeros when it is used up, so that shrinking simplifies.
class CacheModel::Bits {
 public:
  explicit Bits(std::uint64_t value) : value_(value) {}
  std::size_t below(std::uint64_t bound) {
    const std::uint64_t result = value_ % bound;
    value_ /= bound;
    return result;
  }
  bool chance(std::uint64_t one_in) { return below(one_in) == one_in - 1; }

 private:
  std::uint64_t value_;
};

}  // namespace pando::testing
