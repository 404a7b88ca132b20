// SPDX-License-Identifier: Apache-2.0
// What an allocator changed page by page since its oldest held state, so that a state can be
// restored by undoing in reverse. Private to the allocators; each says what it must know of a
// change.
//
// Invariant: states are in order of age, their positions ascend, and the journal reaches back at
// least to the oldest. Nothing is recorded while no state is held. A state is named by a number
// that is never used twice, so that one given up by an older restore is recognised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace pando {

/// Empties a working buffer; keeps small memory for the next use and returns large memory.
template <typename T>
void clear_buffer(std::vector<T>& buffer) {
  constexpr std::size_t kKeepBytes = std::size_t{64} * 1024;
  buffer.clear();
  if (buffer.capacity() * sizeof(T) > kKeepBytes) std::vector<T>().swap(buffer);
}

template <typename Change>
class PageJournal {
 public:
  bool active() const { return !states_.empty(); }
  bool holds(std::size_t state) const { return find(state) != states_.size(); }

  /// Only while active.
  void record(Change change, std::span<const std::uint32_t> pages) {
    for (const std::uint32_t page : pages) entries_.push_back({page, change});
  }

  /// Remembers the present point and returns its name.
  std::size_t open() {
    states_.push_back({++last_state_, end()});
    return last_state_;
  }

  /// Forgets one state. Harmless when it has already gone.
  void close(std::size_t state) {
    const std::size_t at = find(state);
    if (at == states_.size()) return;
    states_.erase(states_.begin() + static_cast<std::ptrdiff_t>(at));
    drop_unreachable();
  }

  /// Calls undo(change, page) for each change since the state, newest first, and forgets the state
  /// and all younger ones.
  template <typename Undo>
  void rewind(std::size_t state, Undo undo) {
    const std::size_t at = find(state);
    PANDO_CHECK(at < states_.size(), "state {} is not held", state);
    for (; end() > states_[at].position; entries_.pop_back()) {
      undo(entries_.back().change, entries_.back().page);
    }
    states_.resize(at);
    drop_unreachable();
  }

  std::size_t memory_bytes() const {
    return entries_.capacity() * sizeof(Entry) + states_.capacity() * sizeof(State);
  }

  Status check() const {
    std::size_t floor = base_;
    for (const State& state : states_) {
      if (state.position < floor || state.position > end()) {
        return make_error(ErrorCode::corrupt, "state {} is at {}, outside [{}, {}]", state.name,
                          state.position, floor, end());
      }
      floor = state.position;
    }
    if (states_.empty() && !entries_.empty()) {
      return make_error(ErrorCode::corrupt, "no state is held, but {} changes are journalled",
                        entries_.size());
    }
    return {};
  }

 private:
  struct Entry {
    std::uint32_t page;
    Change change;
  };
  struct State {
    std::size_t name = 0;
    std::size_t position = 0;
  };

  std::size_t end() const { return base_ + entries_.size(); }

  std::size_t find(std::size_t name) const {
    const auto at =
        std::lower_bound(states_.begin(), states_.end(), name,
                         [](const State& state, std::size_t n) { return state.name < n; });
    if (at == states_.end() || at->name != name) return states_.size();
    return static_cast<std::size_t>(at - states_.begin());
  }

  // States that overlap without end would otherwise grow the journal without end. Dropping a prefix
  // only once it is the larger part keeps that O(1) per change.
  void drop_unreachable() {
    if (states_.empty()) {
      clear_buffer(entries_);
      base_ = 0;
      return;
    }
    const std::size_t unreachable = states_.front().position - base_;
    if (unreachable <= entries_.size() / 2) return;
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(unreachable));
    base_ += unreachable;
  }

  std::vector<Entry> entries_;
  std::size_t base_ = 0;  // position of entries_[0]; positions count all changes since active
  std::vector<State> states_;
  std::size_t last_state_ = 0;
};

}  // namespace pando
