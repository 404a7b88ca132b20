// SPDX-License-Identifier: Apache-2.0
// What the model tests of the allocators share: operations as three small numbers, and remembered
// states with a copy of the reference beside each.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include "pando/types.h"

namespace pando::testing {

struct Op {
  std::uint32_t kind = 0;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Op& op) {
  return out << "{" << op.kind << ", " << op.a << ", " << op.b << "}";
}

/// Lists of operations of `num_kinds` kinds.
inline rc::Gen<std::vector<Op>> any_ops(std::uint32_t num_kinds) {
  const auto op =
      rc::gen::build<Op>(rc::gen::set(&Op::kind, rc::gen::inRange<std::uint32_t>(0, num_kinds)),
                         rc::gen::set(&Op::a, rc::gen::inRange<std::uint32_t>(0, 1000)),
                         rc::gen::set(&Op::b, rc::gen::inRange<std::uint32_t>(0, 1000)));
  return rc::gen::scale(20.0, rc::gen::container<std::vector<Op>>(op));
}

/// States that an allocator has given out, oldest first; must end before it does.
template <typename Allocator, typename Model>
class HeldStates {
 public:
  /// Whether one is held that can still be restored.
  bool any() const {
    return std::any_of(held_.begin(), held_.end(), [](const Held& h) { return !h.given_up; });
  }
  void backup(Allocator& allocator, const Model& model) {
    held_.push_back({allocator.backup_state(), model});
  }
  void restore(std::uint32_t which, Allocator& allocator, Model& model) {
    if (held_.empty()) return;
    const std::size_t h = which % held_.size();
    if (held_[h].given_up) return;
    allocator.restore_state(std::move(held_[h].state));
    model = held_[h].before;
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(h));
    for (std::size_t i = h; i < held_.size(); ++i) held_[i].given_up = true;
  }
  void drop(std::uint32_t which) {
    if (held_.empty()) return;
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which % held_.size()));
  }

 private:
  struct Held {
    decltype(std::declval<Allocator&>().backup_state()) state;
    Model before;
    bool given_up = false;
  };
  std::vector<Held> held_;
};

}  // namespace pando::testing
