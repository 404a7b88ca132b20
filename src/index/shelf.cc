// SPDX-License-Identifier: Apache-2.0
// Tallies, queues and tournaments of a shelf.
#include "index/shelf.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pando {
namespace {

Draw::Ties ties_of(Shelf::Kind kind) {
  switch (kind) {
    case Shelf::Kind::leaves:
      return Draw::Ties::deeper_first;
    case Shelf::Kind::nodes:
      return Draw::Ties::shallower_first;
    case Shelf::Kind::mirrors:
      break;
  }
  return Draw::Ties::reversed;
}

// The host copy of the node that the device will evict last is needed last.
EvictionKey last_first(const EvictionKey& key) { return {~key.major, ~key.minor}; }

template <typename... Args>
Error broken(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::corrupt, format, std::forward<Args>(args)...);
}

}  // namespace

Shelf::Shelf(Kind kind, const HazardIndex* hazard) : kind_(kind) {
  if (hazard != nullptr) draw_.emplace(*hazard, ties_of(kind));
}

// ---- Who has how much --------------------------------------------------------------------------

void Shelf::set_limits(OwnerId id, const Limits& limits) {
  Owner& of = owner(id);
  num_over_cap_ -= of.tally.total > of.limits.cap ? 1 : 0;
  of.limits = limits;
  num_over_cap_ += of.tally.total > of.limits.cap ? 1 : 0;
  refresh_all(id);
}

void Shelf::change_total(OwnerId id, std::size_t before) {
  const Owner& of = owners_[id];
  if (of.limits.floor == 0 && of.limits.cap == SIZE_MAX) return;
  const std::size_t after = of.tally.total;
  const auto changed = [&](std::size_t limit) { return (before > limit) != (after > limit); };
  if (changed(of.limits.cap)) after > before ? ++num_over_cap_ : --num_over_cap_;
  if (changed(of.limits.floor)) refresh_all(id);
}

void Shelf::add(OwnerId id, std::size_t n, bool evictable) {
  Tally& of = owner(id).tally;
  of.total += n;
  sum_.total += n;
  if (evictable) {
    of.evictable += n;
    sum_.evictable += n;
  }
  change_total(id, of.total - n);
}

void Shelf::remove(OwnerId id, std::size_t n, bool evictable) {
  Tally& of = owners_[id].tally;
  of.total -= n;
  sum_.total -= n;
  if (evictable) {
    of.evictable -= n;
    sum_.evictable -= n;
  }
  change_total(id, of.total + n);
}

std::size_t Shelf::available_to(OwnerId by) const {
  if (owners_.size() == 1) return sum_.evictable;
  std::size_t sum = 0;
  for (OwnerId id = 0; id < owners_.size(); ++id) {
    const Owner& of = owners_[id];
    const std::size_t surplus = of.tally.total - std::min(of.tally.total, of.limits.floor);
    sum += id == by ? of.tally.evictable : std::min(of.tally.evictable, surplus);
  }
  return sum;
}

std::size_t Shelf::over_cap(OwnerId id) const {
  if (id >= owners_.size()) return 0;
  const Owner& of = owners_[id];
  return of.tally.total - std::min(of.tally.total, of.limits.cap);
}

// ---- Queues -------------------------------------------------------------------------------------

EvictionOrder::Entry Shelf::entry(NodeIndex index, const Node& node, const EvictionKey& key) const {
  return {kind_ == Kind::mirrors ? last_first(key) : key, kind_ == Kind::nodes ? node.end_pages : 0,
          index};
}

Shelf::Row* Shelf::find_row(Level level) {
  for (Row& row : rows_) {  // few
    if (row.level == level) return &row;
  }
  return nullptr;
}

Shelf::Row& Shelf::row_for(Level level) {
  if (Row* const known = find_row(level)) return *known;
  const auto at = std::find_if(rows_.begin(), rows_.end(),
                               [level](const Row& row) { return row.level > level; });
  Row& made = *rows_.insert(at, Row{});
  made.level = level;
  return made;
}

// Queues for owners up to `owner`; the tournament begins anew.
void Shelf::widen(Row& row, OwnerId owner) {
  row.queues.resize(std::max(owners_.size(), owner + std::size_t{1}));
  row.winners.assign(2 * std::bit_ceil(row.queues.size()), kNobody);
  for (OwnerId id = 0; id < row.queues.size(); ++id) refresh(row, id);
}

void Shelf::insert(NodeIndex index, const Node& node, const EvictionKey& key) {
  Row& row = row_for(node.level);
  if (node.owner >= row.queues.size()) widen(row, node.owner);
  Queue& queue = row.queues[node.owner];
  if (draw_) {
    draw_->insert(queue.drawn, {key.major, node.end_pages, index});
  } else {
    if (!queue.order) queue.order = std::make_unique<EvictionOrder>();
    const EvictionOrder::Entry added = entry(index, node, key);
    queue.order->insert(added.key, added.node, added.depth);
  }
  ++num_candidates_;
  refresh(row, node.owner);
}

void Shelf::erase(NodeIndex index, const Node& node, const EvictionKey& key) {
  Row* const row = find_row(node.level);
  PANDO_CHECK(row != nullptr && node.owner < row->queues.size(),
              "node {} of owner {} and level {} is no candidate", index, node.owner, node.level);
  Queue& queue = row->queues[node.owner];
  if (draw_) {
    draw_->erase(queue.drawn, index);
  } else {
    const EvictionOrder::Entry gone = entry(index, node, key);
    queue.order->erase(gone.key, gone.node, gone.depth);
  }
  --num_candidates_;
  refresh(*row, node.owner);
}

// ---- Tournaments -------------------------------------------------------------------------------

// The queue runs under its present front, unless it is empty or its owner does not give. Drawn
// queues have no front: there it is only whether they run.
void Shelf::refresh(Row& row, OwnerId id) {
  Queue& queue = row.queues[id];
  const std::size_t at = row.winners.size() / 2 + id;
  const bool runs = queue.size() > 0 && owner(id).gives();
  if (row.queues.size() == 1) {  // nobody to beat
    row.winners[at] = runs ? id : kNobody;
    return;
  }
  const bool ran = row.winners[at] != kNobody;
  if (!runs && !ran) return;
  if (runs && queue.order) {
    const EvictionOrder::Entry& front = queue.order->front_entry();
    if (ran && front == queue.front) return;
    queue.front = front;
  } else if (runs && ran) {
    return;
  }
  row.winners[at] = runs ? id : kNobody;
  for (std::size_t i = at / 2; i > 0; i /= 2) {
    const OwnerId left = row.winners[2 * i];
    const OwnerId right = row.winners[2 * i + 1];
    const bool takes_left =
        right == kNobody || (left != kNobody && row.queues[left].front < row.queues[right].front);
    row.winners[i] = takes_left ? left : right;
  }
}

void Shelf::refresh_all(OwnerId id) {
  for (Row& row : rows_) {
    if (id < row.queues.size()) refresh(row, id);
  }
}

void Shelf::block(OwnerId id) {
  num_blocked_ += owner(id).blocked ? 0 : 1;
  owner(id).blocked = true;
  refresh_all(id);
}

void Shelf::unblock() {
  for (OwnerId id = 0; num_blocked_ > 0 && id < owners_.size(); ++id) {
    if (!owners_[id].blocked) continue;
    owners_[id].blocked = false;
    --num_blocked_;
    refresh_all(id);
  }
}

// ---- Whose turn --------------------------------------------------------------------------------

NodeIndex Shelf::front_of(OwnerId id) {
  if (id < owners_.size() && owners_[id].blocked) return kNoNode;
  for (Row& row : rows_) {
    if (id >= row.queues.size() || row.queues[id].size() == 0) continue;
    Queue& queue = row.queues[id];
    in_turn_ = queue.order.get();
    return draw_ ? draw_->pick(queue.drawn) : queue.order->front();
  }
  return kNoNode;
}

NodeIndex Shelf::best_of(Row& row, OwnerId& id) {
  id = row.winners.empty() ? kNobody : row.winners[1];
  if (id == kNobody) return kNoNode;
  if (draw_) return draw_from(row, id);
  in_turn_ = row.queues[id].order.get();
  return in_turn_->front();
}

NodeIndex Shelf::draw_from(Row& row, OwnerId& id) {
  if (row.queues.size() == 1) return draw_->pick(row.queues[0].drawn);
  lists_.clear();
  owners_of_lists_.clear();
  for (OwnerId runner = 0; runner < row.queues.size(); ++runner) {
    if (row.winners[row.winners.size() / 2 + runner] == kNobody) continue;
    lists_.push_back(&row.queues[runner].drawn);
    owners_of_lists_.push_back(runner);
  }
  const Draw::Picked picked = draw_->pick(lists_);
  id = owners_of_lists_[picked.list];
  return picked.id;
}

// Of an owner that has more than its cap: not below its floor, unless it asks itself.
Shelf::Turn Shelf::over_cap_turn(OwnerId id, const Demand& demand) {
  const Owner& of = owners_[id];
  const bool own = id == demand.by;
  const std::size_t has = of.tally.total + (own ? demand.incoming : 0);
  if (has <= of.limits.cap || (!own && of.tally.total <= of.limits.floor)) return {};
  return {front_of(id), id, has - of.limits.cap, own ? SIZE_MAX : of.tally.total - of.limits.floor};
}

Shelf::Turn Shelf::next(const Demand& demand) {
  in_turn_ = nullptr;
  if (num_candidates_ == 0) return {};
  if (demand.only_own) return {front_of(demand.by), demand.by};
  if (owner(demand.by).limits.cap != SIZE_MAX) {
    if (const Turn turn = over_cap_turn(demand.by, demand); turn.node != kNoNode) return turn;
  }
  for (OwnerId id = 0; num_over_cap_ > 0 && id < owners_.size(); ++id) {
    if (const Turn turn = over_cap_turn(id, demand); turn.node != kNoNode) return turn;
  }
  for (Row& row : rows_) {
    OwnerId id = kNobody;
    const NodeIndex node = best_of(row, id);
    if (node == kNoNode) continue;
    const Owner& of = owners_[id];
    const std::size_t surplus = of.tally.total - of.limits.floor;
    return {node, id, surplus, id == demand.by ? SIZE_MAX : surplus};
  }
  return {front_of(demand.by), demand.by};
}

// ---- Proving -----------------------------------------------------------------------------------

std::size_t Shelf::memory_bytes() const {
  std::size_t sum = owners_.capacity() * sizeof(Owner) + (draw_ ? draw_->memory_bytes() : 0);
  for (const Row& row : rows_) {
    sum += sizeof(Row) + row.queues.capacity() * sizeof(Queue) +
           row.winners.capacity() * sizeof(OwnerId);
    for (const Queue& queue : row.queues)
      sum += (queue.order ? queue.order->memory_bytes() : 0) + queue.drawn.memory_bytes();
  }
  return sum;
}

Status Shelf::check() const {
  std::size_t candidates = 0;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    if (r > 0 && rows_[r - 1].level >= row.level) return broken("levels of a shelf out of order");
    for (OwnerId id = 0; id < row.queues.size(); ++id) {
      const Queue& queue = row.queues[id];
      candidates += queue.size();
      if (queue.order) {
        if (Status s = queue.order->check(); !s) return s;
      }
      for (std::size_t i = 0; i < queue.drawn.size(); ++i) {
        if (draw_->position(queue.drawn[i].id) != i)
          return broken("node {} is not where its queue has it", queue.drawn[i].id);
      }
      const bool runs = queue.size() > 0 && owners_[id].gives();
      if ((row.winners[row.winners.size() / 2 + id] == id) != runs)
        return broken("the queue of owner {} at level {} {}", id, static_cast<int>(row.level),
                      runs ? "does not run" : "runs");
      const bool beaten = runs && queue.order && row.queues.size() > 1 &&
                          queue.order->front_entry() < row.queues[row.winners[1]].front;
      if (beaten)
        return broken("owner {} should be first at level {}", id, static_cast<int>(row.level));
    }
  }
  Tally sum;
  std::size_t over_cap = 0;
  for (const Owner& of : owners_) {
    sum.total += of.tally.total;
    sum.evictable += of.tally.evictable;
    over_cap += of.tally.total > of.limits.cap ? 1 : 0;
    if (of.blocked) return broken("an owner is passed over for good");
  }
  if (candidates != num_candidates_ || !(sum == sum_) || over_cap != num_over_cap_)
    return broken(
        "a shelf counts {} candidates, {} units and {} owners over their cap; has {}, {}, {}",
        num_candidates_, sum_.total, num_over_cap_, candidates, sum.total, over_cap);
  return {};
}

}  // namespace pando
