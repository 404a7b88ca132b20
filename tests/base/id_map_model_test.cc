// SPDX-License-Identifier: Apache-2.0
// IdMap against std::map. Ids agree in their low bits and number few, so that runs of full places
// are long, wrap around the end of the array, and lose members from everywhere.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <vector>

#include "base/id_map.h"

namespace pando {
namespace {

struct Change {
  bool adds = true;
  std::uint64_t id = 0;
};

std::ostream& operator<<(std::ostream& out, const Change& change) {
  return out << (change.adds ? "+" : "-") << change.id;
}

rc::Gen<std::vector<Change>> any_changes() {
  const auto id = rc::gen::map(rc::gen::inRange<std::uint64_t>(0, 300), [](std::uint64_t i) {
    return i % 3 == 0 ? ~i : i << 40 | i % 7;  // at the array's end, or in seven homes
  });
  const auto change = rc::gen::build<Change>(
      rc::gen::set(&Change::adds, rc::gen::weightedElement<bool>({{3, true}, {2, false}})),
      rc::gen::set(&Change::id, id));
  return rc::gen::scale(10, rc::gen::container<std::vector<Change>>(change));
}

RC_GTEST_PROP(IdMapModel, AgreesWithAnOrderedMap, ()) {
  const auto changes = *any_changes();
  IdMap map;
  std::map<std::uint64_t, std::uint32_t> model;
  std::uint32_t number = 0;
  for (const Change& change : changes) {
    if (change.adds) {
      map.set(change.id, ++number);
      model[change.id] = number;
    } else {
      RC_ASSERT(map.erase(change.id) == (model.erase(change.id) > 0));
    }
    RC_ASSERT(map.size() == model.size());
    RC_ASSERT(map.find(change.id).has_value() == change.adds);
    for (const auto& [id, expected] : model) RC_ASSERT(map.find(id) == expected);
  }
}

TEST(IdMap, OwnsNothingUntilUsed) {
  IdMap map;
  EXPECT_EQ(map.find(0), std::nullopt);
  EXPECT_FALSE(map.erase(0));
  EXPECT_EQ(map.memory_bytes(), 0u);
}

TEST(IdMap, EveryIdIsAnIdAndEveryNumberANumber) {
  IdMap map;
  for (const std::uint64_t id : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    map.set(id, 0);
    EXPECT_EQ(map.find(id), 0u);
    map.set(id, UINT32_MAX);
    EXPECT_EQ(map.find(id), UINT32_MAX);
  }
  EXPECT_EQ(map.size(), 2u);
}

}  // namespace
}  // namespace pando
