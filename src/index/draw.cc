// SPDX-License-Identifier: Apache-2.0
// Drawing, and what is fetched ahead of it.
#include "index/draw.h"

#include <algorithm>
#include <bit>

#include "base/random.h"

namespace pando {

Draw::Draw(const HazardIndex& index, Ties ties) : index_(index), ties_(ties) {
  Random random(kDraws);
  for (std::uint32_t& number : numbers_) number = static_cast<std::uint32_t>(random.next());
}

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

// As many generators as draws, each a step of a linear congruential one: the compiler makes a few
// vector instructions of it. The high bits count, see place_of().
void Draw::draw_numbers() {
  for (std::uint32_t& number : numbers_) number = number * 747796405u + 2891336453u;
}

namespace {

std::size_t place_of(std::uint32_t number, std::size_t size) { return (number * size) >> 32; }

}  // namespace

// Smaller goes first: by index, then the older one. The index is not negative, so its bits are in
// order; of the time the low half will do.
std::uint64_t Draw::rank_of(const Candidate& one) const {
  const auto index = std::bit_cast<std::uint32_t>(index_.of(one.key, one.depth));
  const auto last = static_cast<std::uint32_t>(HazardIndex::last_of(one.key));
  const std::uint64_t rank = std::uint64_t{index} << 32 | last;
  return ties_ == Ties::reversed ? ~rank : rank;
}

// Without a branch for each candidate: the processor would guess wrong for every other one.
// (EvictHazard at 1000 leaves: 692 ns with.)
const Draw::Candidate& Draw::first_of_sample(std::size_t n) const {
  std::uint64_t best = UINT64_MAX;
  std::size_t first = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t rank = rank_of(*sample_[i]);
    first = rank < best ? i : first;
    best = std::min(best, rank);
  }
  for (std::size_t i = first + 1; i < n; ++i) {  // few, if any, are as good
    const Candidate& one = *sample_[i];
    if (one.key == sample_[first]->key && goes_before(one, *sample_[first])) first = i;
  }
  return *sample_[first];
}

bool Draw::goes_before(const Candidate& a, const Candidate& b) const {
  if (a.depth != b.depth) return (a.depth < b.depth) == (ties_ == Ties::shallower_first);
  return a.id < b.id;
}

// A sample of a long list is as many cache misses: those of the next draw are fetched while this
// victim leaves.
std::uint32_t Draw::pick(const List& list) {
  constexpr std::size_t kLongList = 4096;
  const Candidate* const all = list.data();
  const std::size_t size = list.size();
  const std::size_t n = std::min(size, kDraws);
  if (size <= kDraws) {
    for (std::size_t i = 0; i < n; ++i) sample_[i] = all + i;
  } else {
    for (std::size_t i = 0; i < n; ++i) sample_[i] = all + place_of(numbers_[i], size);
    draw_numbers();
  }
  const std::uint32_t id = first_of_sample(n).id;
  for (std::size_t i = 0; size > kLongList && i < kDraws; ++i)
    __builtin_prefetch(all + place_of(numbers_[i], size));
  return id;
}

Draw::Picked Draw::pick(std::span<const List* const> lists) {
  if (lists.size() == 1) return {pick(*lists[0]), 0};
  ends_.clear();
  std::size_t sum = 0;
  for (const List* list : lists) ends_.push_back(sum += list->size());
  const auto list_of = [&](std::size_t at) {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) -
                                    ends_.begin());
  };
  const std::size_t n = std::min(sum, kDraws);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = sum <= kDraws ? i : place_of(numbers_[i], sum);
    const std::size_t in = list_of(at);
    sample_[i] = &(*lists[in])[at - (ends_[in] - lists[in]->size())];
  }
  draw_numbers();
  const Candidate& first = first_of_sample(n);
  for (std::size_t in = 0; in < lists.size(); ++in) {
    const List& list = *lists[in];
    if (places_[first.id] < list.size() && &list[places_[first.id]] == &first)
      return {first.id, in};
  }
  return {first.id, 0};
}

std::size_t Draw::memory_bytes() const {
  return places_.capacity() * sizeof places_[0] + ends_.capacity() * sizeof ends_[0];
}

}  // namespace pando
