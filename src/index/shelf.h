// SPDX-License-Identifier: Apache-2.0
// One kind of room in the cache: pages of the device, pages of the host, their windows, their
// snapshots. A shelf counts who has how much of it and says who gives up something next. Shelves
// and Components tell it of every change; it decides nothing about the tree.
//
// Owners (a tenant each, and one for what all share) may have a floor, below which nobody else
// takes from them, and a cap, above which they give first. When somebody asks for room, it comes
//   1. from the one who asks, as far as it has more than its cap, or would have,
//   2. from others that have more than their cap,
//   3. from the least valuable of all owners that have more than their floor,
//   4. from the one who asks.
// Least valuable is: of the lowest level (retention priority); there by the policy's key, or, where
// a hazard is given, the one with the smallest index of some that are drawn.
//
// Invariant: `total` of an owner is the weight of all its nodes on this shelf, `evictable` of those
// that nobody holds. Candidates are in the queue of their owner and level. Of the queues of a
// level, a tournament knows the one whose front is smallest among the owners above their floor.
// Costs: O(log n) per change of a candidate and O(log owners) if that was or is the front of its
// queue; drawn, O(1). next() is O(levels), drawn O(owners + draws).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "index/draw.h"
#include "index/eviction_order.h"
#include "index/node.h"
#include "pando/types.h"

namespace pando {

class Shelf {
 public:
  /// What may be on it, and how nodes of equal key go.
  enum class Kind {
    leaves,   ///< drawn: the deeper first
    nodes,    ///< the shallower first: a continued conversation needs the deep one
    mirrors,  ///< leaves, the most valuable first
  };
  /// With a hazard, the first half of a key is a HazardIndex::Key. It must outlive the shelf.
  explicit Shelf(Kind kind, const HazardIndex* hazard = nullptr);
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  // ---- Who has how much; in pages or snapshots ----

  struct Limits {
    std::size_t floor = 0;
    std::size_t cap = SIZE_MAX;
  };
  struct Tally {
    std::size_t total = 0;
    std::size_t evictable = 0;
    friend bool operator==(const Tally&, const Tally&) = default;
  };
  void set_limits(OwnerId owner, const Limits& limits);
  Limits limits(OwnerId id) const { return id < owners_.size() ? owners_[id].limits : Limits{}; }

  void add(OwnerId owner, std::size_t n, bool evictable);
  void remove(OwnerId owner, std::size_t n, bool evictable);
  /// What was evictable is held from now on, or the other way round.
  void hold(OwnerId owner, std::size_t n) {
    owners_[owner].tally.evictable -= n;
    sum_.evictable -= n;
  }
  void release(OwnerId owner, std::size_t n) {
    owners_[owner].tally.evictable += n;
    sum_.evictable += n;
  }

  const Tally& sum() const { return sum_; }
  Tally of(OwnerId id) const { return id < owners_.size() ? owners_[id].tally : Tally{}; }
  OwnerId num_owners() const { return static_cast<OwnerId>(owners_.size()); }
  /// What `by` could get at most: all of its own, and what others have above their floors.
  std::size_t available_to(OwnerId by) const;
  /// What an owner has above its cap.
  std::size_t over_cap(OwnerId owner) const;

  // ---- Who goes first ----

  /// Its owner and level must be the same until it is erased.
  void insert(NodeIndex index, const Node& node, const EvictionKey& key);
  /// It must be there, under this key.
  void erase(NodeIndex index, const Node& node, const EvictionKey& key);
  std::size_t num_candidates() const { return num_candidates_; }
  bool empty() const { return num_candidates_ == 0; }

  struct Demand {
    OwnerId by = kSharedOwner;
    std::size_t incoming = 0;  // what `by` is going to have more when this is done
    bool only_own = false;     // from nobody else
  };
  struct Turn {
    NodeIndex node = kNoNode;
    OwnerId owner = kSharedOwner;
    std::size_t wanted = SIZE_MAX;  // more should come from others
    std::size_t limit = SIZE_MAX;   // more must not be taken
  };
  /// Who gives next; nobody where none may.
  Turn next(const Demand& demand);
  /// Turn by turn until done(), or nobody may give: take(turn) takes something of the node. False:
  /// that would be too much; from then on its owner is passed over.
  template <typename Done, typename Take>
  void give(const Demand& demand, Done done, Take take) {
    while (!done()) {
      const Turn turn = next(demand);
      if (turn.node == kNoNode) break;
      if (!take(turn)) block(turn.owner);
    }
    unblock();
  }
  /// The order that the last turn came from, if there is one: to look ahead in.
  const EvictionOrder* order_in_turn() const { return in_turn_; }
  /// Drawn, who was chosen to go so many turns from now, 0 or 1; kNoNode if that is not known.
  NodeIndex upcoming(std::size_t turns) const { return draw_ ? draw_->upcoming(turns) : kNoNode; }

  std::size_t memory_bytes() const;
  /// Proves queues, tournaments and counts; O(n).
  Status check() const;

 private:
  static constexpr OwnerId kNobody = UINT16_MAX;

  struct Owner {
    Limits limits;
    Tally tally;
    bool blocked = false;
    bool gives() const { return !blocked && (limits.floor == 0 || tally.total > limits.floor); }
  };
  struct Queue {
    std::unique_ptr<EvictionOrder> order;  // made when first used
    Draw::List drawn;
    EvictionOrder::Entry front = {};  // as the tournament has it
    std::size_t size() const { return order ? order->size() : drawn.size(); }
  };
  struct Row {  // the queues of one level
    Level level = 0;
    std::vector<Queue> queues;     // by owner
    std::vector<OwnerId> winners;  // a binary tree from index 1; the queues are its last row
  };

  void block(OwnerId owner);
  void unblock();
  Owner& owner(OwnerId id) {
    if (id >= owners_.size()) owners_.resize(id + std::size_t{1});
    return owners_[id];
  }
  void change_total(OwnerId id, std::size_t before);
  Row* find_row(Level level);
  Row& row_for(Level level);
  void widen(Row& row, OwnerId owner);
  EvictionOrder::Entry entry(NodeIndex index, const Node& node, const EvictionKey& key) const;
  void refresh(Row& row, OwnerId owner);
  void refresh_all(OwnerId owner);
  NodeIndex front_of(OwnerId owner);
  NodeIndex best_of(Row& row, OwnerId& owner);
  NodeIndex draw_from(Row& row, OwnerId& owner);
  Turn over_cap_turn(OwnerId id, const Demand& demand);

  const Kind kind_;
  std::optional<Draw> draw_;
  std::vector<Owner> owners_ = std::vector<Owner>(1);
  std::vector<Row> rows_;  // by level; those that were ever used
  Tally sum_;
  std::size_t num_candidates_ = 0;
  std::size_t num_over_cap_ = 0;
  std::size_t num_blocked_ = 0;
  const EvictionOrder* in_turn_ = nullptr;
  // Scratch of draw_from.
  std::vector<Draw::List*> lists_;
  std::vector<OwnerId> owners_of_lists_;
};

}  // namespace pando
