// SPDX-License-Identifier: Apache-2.0
// From ids of 64 well-mixed bits to numbers of 32: what finds a block's record without an
// allocation for each. ReuseHazard and BlockHistory keep the records themselves in rings.
//
// One array of (id, number), probed in line from the place that the id's low bits give; at most
// three quarters of it are full. Erasing shifts those behind back, so there are no tombstones and
// a map that lives for years stays as fast as on its first day: no used place has an empty one
// between it and its home. Every call is O(1) expected, in practice one cache line; the array
// doubles when it is too full (about 20 ns an entry, once) and never shrinks. Empty, it owns
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pando {

class IdMap {
 public:
  std::optional<std::uint32_t> find(std::uint64_t id) const {
    if (size_ == 0) return std::nullopt;
    const Place& place = places_[place_of(id)];
    if (!place.used) return std::nullopt;
    return place.number;
  }

  /// In place of the number that it had, which is returned, if any.
  std::optional<std::uint32_t> set(std::uint64_t id, std::uint32_t number) {
    if (size_ + 1 > places_.size() / 4 * 3) grow();
    Place& place = places_[place_of(id)];
    const auto had = place.used ? std::optional(place.number) : std::nullopt;
    if (!had) ++size_;
    place = {id, number, true};
    return had;
  }

  /// Whether it was there.
  bool erase(std::uint64_t id) {
    if (size_ == 0) return false;
    std::size_t hole = place_of(id);
    if (!places_[hole].used) return false;
    for (std::size_t i = next(hole); places_[i].used; i = next(i)) {
      // What is nearer to its home than to the hole would move to before its home.
      const std::size_t from_home = (i - places_[i].id) & mask();
      const std::size_t from_hole = (i - hole) & mask();
      if (from_home < from_hole) continue;
      places_[hole] = places_[i];
      hole = i;
    }
    places_[hole].used = false;
    --size_;
    return true;
  }

  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const { return places_.capacity() * sizeof(Place); }

 private:
  struct Place {
    std::uint64_t id = 0;
    std::uint32_t number = 0;
    bool used = false;
  };
  static constexpr std::size_t kFirstPlaces = 16;

  std::size_t mask() const { return places_.size() - 1; }
  std::size_t next(std::size_t i) const { return (i + 1) & mask(); }
  /// Where it is, or the empty place where it would be.
  std::size_t place_of(std::uint64_t id) const {
    std::size_t i = id & mask();
    while (places_[i].used && places_[i].id != id) i = next(i);
    return i;
  }

  void grow() {
    std::vector<Place> old(places_.empty() ? kFirstPlaces : 2 * places_.size());
    old.swap(places_);
    for (const Place& place : old) {
      if (place.used) places_[place_of(place.id)] = place;
    }
  }

  std::vector<Place> places_;  // none, or a power of two of them
  std::size_t size_ = 0;
};

}  // namespace pando
