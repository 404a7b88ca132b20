// SPDX-License-Identifier: Apache-2.0
// Shelf against a look at every candidate: who gives next, for whom, at every mix of owners,
// levels, floors and caps; and, drawn from few enough that all are looked at, the one of the
// smallest index.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <optional>
#include <vector>

#include "index/shelf.h"
#include "support/random_ops.h"

namespace pando::testing {
namespace {

constexpr std::size_t kNodes = 40;
constexpr OwnerId kOwners = 4;

class Model {
 public:
  Model(Shelf::Kind kind, const HazardIndex* hazard)
      : kind_(kind), hazard_(hazard), shelf_(kind, hazard), nodes_(kNodes), keys_(kNodes) {}

  void apply(std::uint64_t op) {
    const auto bits = [&op](std::uint64_t below) {
      const std::uint64_t value = op % below;
      op /= below;
      return value;
    };
    const std::uint64_t kind = bits(8);
    const auto i = static_cast<NodeIndex>(1 + bits(kNodes - 1));
    const auto owner = static_cast<OwnerId>(bits(kOwners));
    if (kind < 4) {
      if (keys_[i]) return remove(i);
      nodes_[i].owner = owner;
      nodes_[i].level = static_cast<Level>(bits(3)) - 1;
      nodes_[i].end_pages = static_cast<std::uint32_t>(1 + bits(5));
      keys_[i] =
          hazard_ == nullptr
              ? EvictionKey{bits(6), bits(3)}
              : EvictionKey{HazardIndex::pack(bits(90), static_cast<std::uint8_t>(bits(3))), 0};
      shelf_.add(owner, 1, true);
      shelf_.insert(i, nodes_[i], *keys_[i]);
    } else if (kind == 4) {
      limits_[owner] = {bits(8), bits(3) == 0 ? SIZE_MAX : 4 + bits(8)};
      shelf_.set_limits(owner, limits_[owner]);
    } else if (kind == 5) {  // somebody holds more, or less
      if (held_[owner] > 0 && bits(2) == 0) {
        --held_[owner];
        shelf_.remove(owner, 1, false);
      } else if (held_[owner] < 6) {
        ++held_[owner];
        shelf_.add(owner, 1, false);
      }
    } else {
      const Shelf::Demand demand{owner, bits(4), kind == 7 && bits(3) == 0};
      const Shelf::Turn turn = shelf_.next(demand);
      const auto expected = next(demand);
      RC_ASSERT(turn.node == expected.value_or(kNoNode));
      if (expected && bits(2) == 0) remove(*expected);
    }
    const Status proof = shelf_.check();
    if (!proof.ok()) RC_FAIL(proof.error().message);
  }

 private:
  void remove(NodeIndex i) {
    shelf_.erase(i, nodes_[i], *keys_[i]);
    shelf_.remove(nodes_[i].owner, 1, true);
    keys_[i].reset();
  }
  std::size_t has(OwnerId owner) const {
    std::size_t n = held_[owner];
    for (NodeIndex i = 1; i < kNodes; ++i) n += keys_[i] && nodes_[i].owner == owner ? 1 : 0;
    return n;
  }

  bool goes_before(NodeIndex a, NodeIndex b) const {
    if (nodes_[a].level != nodes_[b].level) return nodes_[a].level < nodes_[b].level;
    const bool mirrors = kind_ == Shelf::Kind::mirrors;
    const bool nodes = kind_ == Shelf::Kind::nodes;
    if (hazard_ == nullptr) {
      if (*keys_[a] != *keys_[b]) return (*keys_[a] < *keys_[b]) != mirrors;
      if (nodes && nodes_[a].end_pages != nodes_[b].end_pages)
        return nodes_[a].end_pages < nodes_[b].end_pages;
      return a < b;
    }
    const float worth_a = hazard_->of(keys_[a]->major, nodes_[a].end_pages);
    const float worth_b = hazard_->of(keys_[b]->major, nodes_[b].end_pages);
    if (worth_a != worth_b) return (worth_a < worth_b) != mirrors;
    const std::uint64_t last_a = HazardIndex::last_of(keys_[a]->major);
    const std::uint64_t last_b = HazardIndex::last_of(keys_[b]->major);
    if (last_a != last_b) return (last_a < last_b) != mirrors;
    if (nodes_[a].end_pages != nodes_[b].end_pages)
      return (nodes_[a].end_pages < nodes_[b].end_pages) == nodes;
    return a < b;
  }
  template <typename MayGo>
  std::optional<NodeIndex> best(MayGo may_go) const {
    std::optional<NodeIndex> best;
    for (NodeIndex i = 1; i < kNodes; ++i) {
      if (keys_[i] && may_go(nodes_[i].owner) && (!best || goes_before(i, *best))) best = i;
    }
    return best;
  }
  std::optional<NodeIndex> next(const Shelf::Demand& demand) const {
    const auto of = [&](OwnerId who) { return best([who](OwnerId o) { return o == who; }); };
    if (demand.only_own) return of(demand.by);
    if (has(demand.by) + demand.incoming > limits_[demand.by].cap) {
      if (const auto own = of(demand.by)) return own;
    }
    for (OwnerId who = 0; who < kOwners; ++who) {
      if (has(who) <= limits_[who].cap || has(who) <= limits_[who].floor) continue;
      if (const auto theirs = of(who)) return theirs;
    }
    const auto any = best([&](OwnerId who) { return has(who) > limits_[who].floor; });
    return any ? any : of(demand.by);
  }

  const Shelf::Kind kind_;
  const HazardIndex* const hazard_;
  Shelf shelf_;
  std::vector<Node> nodes_;
  std::vector<std::optional<EvictionKey>> keys_;  // of those that are candidates
  std::vector<Shelf::Limits> limits_ = std::vector<Shelf::Limits>(kOwners);
  std::vector<std::size_t> held_ = std::vector<std::size_t>(kOwners);
};

/// An index that has seen a little.
const HazardIndex& learned_index() {
  static const HazardIndex index = [] {
    HazardIndex made;
    for (std::uint64_t i = 0; i < 100; ++i) {
      made.learner.begin_request(1);
      made.learner.access(i % 7, 0, static_cast<ReuseHazard::Class>(i % 3));
    }
    return made;
  }();
  return index;
}

TEST(ShelfModel, GivesWhatALookAtEveryCandidateFinds) {
  for (const Shelf::Kind kind : {Shelf::Kind::leaves, Shelf::Kind::nodes, Shelf::Kind::mirrors}) {
    for (const HazardIndex* hazard : {static_cast<const HazardIndex*>(nullptr), &learned_index()}) {
      ASSERT_TRUE(check_random_ops(40'000, [&](const auto& ops) {
        Model model(kind, hazard);
        for (const std::uint64_t op : ops) model.apply(op);
      }));
    }
  }
}

}  // namespace
}  // namespace pando::testing
