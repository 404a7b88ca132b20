// SPDX-License-Identifier: Apache-2.0
// Drawing, and what is fetched ahead of it.
#include "index/draw.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/random.h"

namespace pando {

Draw::Draw(const HazardIndex& index, Ties ties) : index_(index), ties_(ties) {
  Random random(kDraws);
  for (std::uint32_t& number : numbers_) number = static_cast<std::uint32_t>(random.next());
}

void Draw::insert(List& list, const Candidate& candidate) {
  if (candidate.id >= positions_.size())
    positions_.resize(std::max<std::size_t>(candidate.id + std::size_t{1}, 2 * positions_.size()));
  positions_[candidate.id] = static_cast<std::uint32_t>(list.size());
  list.all_.push_back(candidate);
}

void Draw::erase(List& list, std::uint32_t id) {
  const std::uint32_t at = positions_[id];
  list.all_[at] = list.all_.back();
  positions_[list[at].id] = at;
  list.all_.pop_back();
}

// As many generators as draws, each a step of a linear congruential one: the compiler makes a few
// vector instructions of it. The high bits count, see place_of().
void Draw::draw_numbers(std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) numbers_[i] = numbers_[i] * 747796405u + 2891336453u;
}

namespace {

std::size_t place_of(std::uint32_t number, std::size_t size) { return (number * size) >> 32; }

}  // namespace

// Ranks of the sample: smaller goes first, by index, then the older one. An index is not negative,
// so its bits are in order; of the time the low half will do.
void Draw::rank_sample(std::size_t n, std::uint64_t* ranks) const {
  const std::uint64_t flip = ties_ == Ties::reversed ? UINT64_MAX : 0;
  const bool weighed = index_.cost_per_depth > 0;
  const std::uint64_t now = index_.learner.now() + index_.ahead;
  for (std::size_t i = 0; i < n; ++i) {
    const HazardIndex::Key key = sample_[i]->key;
    const std::uint64_t last = HazardIndex::last_of(key);
    const float index = index_.learner.index_at(static_cast<ReuseHazard::Class>(key),
                                                ReuseHazard::bucket_of(now - last));
    ranks[i] = (std::uint64_t{std::bit_cast<std::uint32_t>(index)} << 32 |
                static_cast<std::uint32_t>(last)) ^
               flip;
  }
  for (std::size_t i = 0; weighed && i < n; ++i) {
    const auto index = std::bit_cast<std::uint32_t>(index_.of(sample_[i]->key, sample_[i]->depth));
    ranks[i] = (std::uint64_t{index} << 32 | static_cast<std::uint32_t>(ranks[i] ^ flip)) ^ flip;
  }
}

// Without a branch for each candidate: the processor would guess wrong for every other one.
// (EvictHazard at 1000 leaves: 692 ns with, 460 without.)
const Draw::Candidate& Draw::first_of_sample(std::size_t n) const {
  std::array<std::uint64_t, kDraws + 1> ranks;
  rank_sample(n, ranks.data());
  ranks[n] = UINT64_MAX;
  std::uint64_t best = UINT64_MAX;
  std::uint64_t other = UINT64_MAX;  // two at a time: neither waits for the other
  for (std::size_t i = 0; i < n; i += 2) {
    best = std::min(best, ranks[i]);
    other = std::min(other, ranks[i + 1]);
  }
  best = std::min(best, other);
  std::size_t first = 0;
  while (ranks[first] != best) ++first;
  for (std::size_t i = first + 1; i < n; ++i) {  // few, if any, are as good
    if (ranks[i] == best && goes_before(*sample_[i], *sample_[first])) first = i;
  }
  return *sample_[first];
}

bool Draw::goes_before(const Candidate& a, const Candidate& b) const {
  if (a.depth != b.depth) return (a.depth < b.depth) == (ties_ == Ties::shallower_first);
  return a.id < b.id;
}

std::uint32_t Draw::pick(List& list) {
  if (list.size() > kLongList) return pick_ahead(list);
  upcoming_ = {};
  const Candidate* const all = list.all_.data();
  const std::size_t size = list.size();
  const std::size_t n = std::min(size, kDraws);
  if (size <= kDraws) {
    for (std::size_t i = 0; i < n; ++i) sample_[i] = all + i;
  } else {
    for (std::size_t i = 0; i < n; ++i) sample_[i] = all + place_of(numbers_[i], size);
    draw_numbers(kDraws);
  }
  return first_of_sample(n).id;
}

// ---- Long lists --------------------------------------------------------------------------------

bool Draw::is_valid(const List& list, const Candidate& one) const {
  if (one.id == 0 || positions_[one.id] >= list.size()) return false;
  const Candidate& there = list[positions_[one.id]];
  return there.id == one.id && there.key == one.key;
}

void Draw::draw_lines(List& list) {
  static_assert(kPerLine * sizeof(Candidate) == kCacheLine);
  draw_numbers(list.lines_.size());
  for (std::size_t i = 0; i < list.lines_.size(); ++i) {
    const std::size_t at = kPerLine * place_of(numbers_[i], list.size() / kPerLine);
    list.lines_[i] = static_cast<std::uint32_t>(at);
    __builtin_prefetch(&list[at]);
  }
}

Draw::Candidate Draw::choose(List& list) {
  std::size_t n = 0;
  for (const std::uint32_t line : list.lines_) {  // it may be shorter than when they were drawn
    for (std::size_t i = line; i < std::min<std::size_t>(line + kPerLine, list.size()); ++i)
      sample_[n++] = &list[i];
  }
  if (n == 0) sample_[n++] = &list[0];
  const Candidate chosen = first_of_sample(n);
  draw_lines(list);
  return chosen;
}

std::uint32_t Draw::pick_ahead(List& list) {
  if (!std::exchange(list.is_drawn_, true)) draw_lines(list);
  std::array<Candidate, 2>& ahead = list.ahead_;
  const Candidate victim = is_valid(list, ahead[0]) ? ahead[0] : choose(list);
  ahead = {ahead[1], choose(list)};
  if (ahead[1].id == victim.id) ahead[1] = {};
  upcoming_ = {ahead[0].id, ahead[1].id};
  __builtin_prefetch(&positions_[ahead[1].id]);
  return victim.id;
}

Draw::Picked Draw::pick(std::span<List* const> lists) {
  if (lists.size() == 1) return {pick(*lists[0]), 0};
  upcoming_ = {};
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
  draw_numbers(kDraws);
  const Candidate& first = first_of_sample(n);
  for (std::size_t in = 0; in < lists.size(); ++in) {
    const List& list = *lists[in];
    if (positions_[first.id] < list.size() && &list[positions_[first.id]] == &first)
      return {first.id, in};
  }
  return {first.id, 0};
}

std::size_t Draw::memory_bytes() const {
  return positions_.capacity() * sizeof positions_[0] + ends_.capacity() * sizeof ends_[0];
}

}  // namespace pando
