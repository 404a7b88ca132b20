// SPDX-License-Identifier: Apache-2.0
// The limit of a match: comparing a sequence's tokens with a copy of them (memcmp) and copying as
// many int64 slots into the caller's buffer (memcpy).
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "cases/tree.h"

namespace pando::bench {

struct Visit {
  const Sequences& sequences;
  std::vector<Token> copy;          // what the limit compares with
  std::vector<std::int64_t> slots;  // what the limit copies
  std::vector<SlotId> out;
  std::vector<std::int64_t> limit_out;

  explicit Visit(const Sequences& s)
      : sequences(s),
        copy(s.size() * s[0].size()),
        slots(s.size() * s[0].size(), 7),
        out(s[0].size()),
        limit_out(s[0].size()) {
    for (std::size_t i = 0; i < s.size(); ++i)
      std::copy(s[i].begin(), s[i].end(),
                copy.begin() + static_cast<std::ptrdiff_t>(i * s[i].size()));
  }

  void limit(std::size_t i) {
    const std::size_t n = sequences[i].size();
    keep(std::memcmp(sequences[i].data(), copy.data() + i * n, n * sizeof(Token)));
    std::memcpy(limit_out.data(), slots.data() + i * n, n * sizeof(std::int64_t));
    keep(limit_out.data());
  }
};

}  // namespace pando::bench
