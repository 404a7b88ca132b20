// SPDX-License-Identifier: Apache-2.0
// HierarchicalBitmask against std::set: random operations, clustered so that words fill and empty
// on several levels, with the invariant proved after each.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "base/bitmask.h"

namespace pando {
namespace {

struct Op {
  std::uint32_t kind = 0;
  std::uint32_t at = 0;
  std::uint32_t length = 0;
};

std::ostream& operator<<(std::ostream& out, const Op& op) {
  return out << "{" << op.kind << ", " << op.at << ", " << op.length << "}";
}

rc::Gen<std::vector<Op>> any_ops() {
  const auto op =
      rc::gen::build<Op>(rc::gen::set(&Op::kind, rc::gen::inRange<std::uint32_t>(0, 10)),
                         rc::gen::set(&Op::at, rc::gen::inRange<std::uint32_t>(0, 1u << 20)),
                         rc::gen::set(&Op::length, rc::gen::inRange<std::uint32_t>(1, 200)));
  return rc::gen::scale(8.0, rc::gen::container<std::vector<Op>>(op));
}

std::optional<std::size_t> first_from(const std::set<std::size_t>& members, std::size_t i) {
  const auto found = members.lower_bound(i);
  return found == members.end() ? std::nullopt : std::optional(*found);
}

void take_first(HierarchicalBitmask& mask, std::set<std::size_t>& members, std::size_t n) {
  std::vector<std::size_t> taken(n);
  const std::size_t expected = std::min(n, members.size());
  RC_ASSERT(mask.take_first(std::span(taken)) == expected);
  for (std::size_t k = 0; k < expected; ++k) {
    RC_ASSERT(taken[k] == *members.begin());
    members.erase(members.begin());
  }
}

void apply(const Op& op, HierarchicalBitmask& mask, std::set<std::size_t>& members) {
  const std::size_t at = op.at % mask.size();
  const std::size_t end = std::min<std::size_t>(at + op.length, mask.size());
  if (op.kind < 4) {
    for (std::size_t i = at; i < end; ++i) RC_ASSERT(mask.set(i) == members.insert(i).second);
  } else if (op.kind < 8) {
    for (std::size_t i = at; i < end; ++i) RC_ASSERT(mask.clear(i) == (members.erase(i) == 1));
  } else {
    take_first(mask, members, op.length);
  }
}

RC_GTEST_PROP(BitmaskModel, AgreesWithASet, ()) {
  const auto size = *rc::gen::element<std::size_t>(1, 63, 64, 65, 130, 4096, 4097, 300000);
  const std::vector<Op> ops = *any_ops();
  HierarchicalBitmask mask(size);
  std::set<std::size_t> members;
  for (const Op& op : ops) {
    apply(op, mask, members);
    RC_ASSERT(mask.count() == members.size());
    RC_ASSERT(mask.find_first() == first_from(members, 0));
    RC_ASSERT(mask.find_first_from(op.at) == first_from(members, op.at));
    RC_ASSERT(mask.test(op.at % size) == members.contains(op.at % size));
    RC_ASSERT(mask.check().ok());
  }
}

}  // namespace
}  // namespace pando
