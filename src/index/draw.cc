// SPDX-License-Identifier: Apache-2.0
// Drawing, and what is fetched ahead of it.
#include "index/draw.h"

#include <algorithm>

namespace pando {

void Draw::insert(List& list, const Candidate& candidate) {
  if (candidate.id >= places_.size())
    places_.resize(std::max<std::size_t>(candidate.id + std::size_t{1}, 2 * places_.size()));
  places_[candidate.id] = static_cast<std::uint32_t>(list.size());
  list.push_back(candidate);
}

void Draw::erase(List& list, std::uint32_t id) {
  const std::uint32_t at = places_[id];
  list[at] = list.back();
  places_[list[at].id] = at;
  list.pop_back();
}

/// The first of those it was shown.
class Draw::Best {
 public:
  explicit Best(const Draw& draw) : draw_(draw) {}

  bool show(const Candidate& one) {
    const float index = draw_.index_.of(one.key, one.depth);
    if (best_ != nullptr && !goes_before(one, index)) return false;
    best_ = &one;
    best_index_ = index;
    return true;
  }
  std::uint32_t id() const { return best_->id; }

 private:
  bool goes_before(const Candidate& one, float index) const {
    const bool reversed = draw_.ties_ == Ties::reversed;
    if (index != best_index_) return (index < best_index_) != reversed;
    const std::uint64_t last = HazardIndex::last_of(one.key);
    const std::uint64_t best_last = HazardIndex::last_of(best_->key);
    if (last != best_last) return (last < best_last) != reversed;
    if (one.depth != best_->depth)
      return (one.depth < best_->depth) == (draw_.ties_ == Ties::shallower_first);
    return one.id < best_->id;
  }

  const Draw& draw_;
  const Candidate* best_ = nullptr;
  float best_index_ = 0;
};

// A sample of a long list is as many cache misses: those of the next draw are fetched while this
// victim leaves.
std::uint32_t Draw::pick(const List& list) {
  Best best(*this);
  if (list.size() <= kDraws) {
    for (const Candidate& one : list) best.show(one);
    return best.id();
  }
  const auto at = [&list](std::uint32_t number) { return (number * list.size()) >> 32; };
  for (const std::uint32_t number : numbers_) best.show(list[at(number)]);
  for (std::uint32_t& number : numbers_) {
    number = static_cast<std::uint32_t>(random_.next() >> 32);
    __builtin_prefetch(&list[at(number)]);
  }
  return best.id();
}

Draw::Picked Draw::pick(std::span<const List* const> lists) {
  if (lists.size() == 1) return {pick(*lists[0]), 0};
  ends_.clear();
  std::size_t sum = 0;
  for (const List* list : lists) ends_.push_back(sum += list->size());
  Best best(*this);
  Picked picked;
  const auto show = [&](std::size_t at) {
    const auto in =
        static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    if (best.show((*lists[in])[at - (ends_[in] - lists[in]->size())])) picked.list = in;
  };
  for (std::size_t i = 0; i < std::min(sum, kDraws); ++i)
    show(sum <= kDraws ? i : static_cast<std::size_t>(random_.below(sum)));
  picked.id = best.id();
  return picked;
}

std::size_t Draw::memory_bytes() const {
  return places_.capacity() * sizeof places_[0] + ends_.capacity() * sizeof ends_[0];
}

}  // namespace pando
