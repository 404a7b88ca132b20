// SPDX-License-Identifier: Apache-2.0
// Victims by draw: of some candidates drawn at random, the one of the smallest index. An index
// changes with time, so no order of all candidates would last; a sample is nearly as good. The
// generator has a fixed seed: the same calls draw the same, wherever things lie in memory.
//
// Candidates are in lists, in no order; each is in one list at most. Costs: O(1) to insert and to
// erase; pick() looks at 64 candidates, or all where there are no more.
//
// A sample of a long list is as many cache misses, and so is its victim. So of a long list the
// sample is sixteen cache lines of four neighbours, and the choice is made two victims ahead: what
// is needed next is fetched while others leave. One that was used since is chosen anew.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "index/hazard_index.h"

namespace pando {

class Draw {
 public:
  /// Who goes first among equal indices: the older, then by depth. Reversed, the one with the
  /// largest index, and the younger.
  enum class Ties { deeper_first, shallower_first, reversed };

  struct Candidate {
    HazardIndex::Key key = 0;
    std::uint32_t depth = 0;
    std::uint32_t id = 0;
  };
  /// Changed by Draw alone.
  class List {
   public:
    std::size_t size() const { return all_.size(); }
    bool empty() const { return all_.empty(); }
    const Candidate& operator[](std::size_t i) const { return all_[i]; }
    std::size_t memory_bytes() const { return all_.capacity() * sizeof(Candidate); }

   private:
    friend class Draw;
    TableVector<Candidate> all_;
    // Of a long one: where the lines of the next sample begin, and who goes next and after that.
    std::array<std::uint32_t, 16> lines_ = {};
    std::array<Candidate, 2> ahead_ = {};
    bool is_drawn_ = false;  // the lines are
  };

  /// The index must outlive it.
  Draw(const HazardIndex& index, Ties ties);

  void insert(List& list, const Candidate& candidate);
  /// It must be in this list.
  void erase(List& list, std::uint32_t id);
  std::uint32_t position(std::uint32_t id) const { return positions_[id]; }

  /// From a list that is not empty.
  std::uint32_t pick(List& list);
  /// Of the list picked from last: who was chosen to go so many picks from now, 0 or 1; 0 if that
  /// is not known: a hint.
  std::uint32_t upcoming(std::size_t picks) const { return upcoming_[picks]; }
  /// From several lists, as if they were one: the candidate, and in which list it is.
  struct Picked {
    std::uint32_t id = 0;
    std::size_t list = 0;
  };
  Picked pick(std::span<List* const> lists);

  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kDraws = 64;
  static constexpr std::size_t kPerLine = 4;
  static constexpr std::size_t kLongList = 4096;

  void rank_sample(std::size_t n, std::uint64_t* ranks) const;
  const Candidate& first_of_sample(std::size_t n) const;
  std::uint32_t pick_ahead(List& list);
  Candidate choose(List& list);
  void draw_lines(List& list);
  bool is_valid(const List& list, const Candidate& one) const;
  bool goes_before(const Candidate& a, const Candidate& b) const;
  void draw_numbers(std::size_t n);

  const HazardIndex& index_;
  const Ties ties_;
  std::vector<std::uint32_t> positions_;              // in its list, by id
  std::array<std::uint32_t, kDraws> numbers_;         // of the next draw
  std::array<const Candidate*, kDraws> sample_ = {};  // scratch
  std::vector<std::size_t> ends_;                     // scratch
  std::array<std::uint32_t, 2> upcoming_ = {};
};

}  // namespace pando
