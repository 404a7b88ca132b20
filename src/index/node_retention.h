// SPDX-License-Identifier: Apache-2.0
// What a node of the radix tree knows of pins, sessions and priorities that were given for a time.
// TreeRetention keeps it from the first such call on; a tree without any has none of it.
//
// Invariants: counts of pins and sessions are as locks are: own ones + children that have any. A
// session has ends, each at the end of a node; when that node goes, the end moves up. The grants of
// a node are in order: the first has the highest level and ends first; none is of no use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <vector>

#include "index/node.h"

namespace pando {

/// Nanoseconds on the clock of the cache's durations.
using Ticks = std::int64_t;
inline constexpr Ticks kForever = std::numeric_limits<Ticks>::max();

/// Names the place where a session's prefix ends. 0 is none.
using EndIndex = std::uint32_t;
inline constexpr EndIndex kNoEnd = 0;

class NodeRetention {
 public:
  struct Record {
    std::uint32_t grants = 0;  // the first, in grants_; 0: none
    std::uint32_t pins = 0;
    std::uint32_t device_pins = 0;  // of these, that hold it on the device
    std::uint32_t sessions = 0;     // open
    std::uint32_t active = 0;       // of these, in use
    EndIndex ends = kNoEnd;         // the first of those that are here
    bool common = false;            // used by a request without a session
  };
  struct End {
    NodeIndex node = kNoNode;  // kNoNode: nothing is left of it
    EndIndex next = kNoEnd;    // at the same node; of a free one: the next free one
    bool active = false;
  };

  void reach(NodeIndex i) { records_.reach(i); }
  Record& operator[](NodeIndex i) { return records_[i]; }
  const Record& operator[](NodeIndex i) const { return records_[i]; }

  // ---- Grants ----

  /// The level that lasting grants give, if there is any.
  std::optional<Level> granted(NodeIndex i) const {
    if (records_[i].grants == 0) return std::nullopt;
    return grants_[records_[i].grants].level;
  }
  void grant(NodeIndex i, Level level, Ticks until);
  /// Forgets those of a node that have ended.
  void expire(NodeIndex i, Ticks now);
  /// A node of which a grant may have ended by now; nothing if there is none.
  std::optional<NodeIndex> next_expired(Ticks now);
  bool has_timed_grants() const { return !timers_.empty(); }

  // ---- Ends ----

  EndIndex new_end();
  /// It is at no node.
  void free_end(EndIndex end);
  End& end(EndIndex i) { return ends_[i]; }
  const End& end(EndIndex i) const { return ends_[i]; }
  void link(EndIndex end, NodeIndex node);
  void unlink(EndIndex end);

  // ---- Nodes ----

  /// `upper` has been split off the front of `lower`.
  void split(NodeIndex upper, NodeIndex lower);
  /// A leaf without pins goes: its ends are the parent's, unless that is a root.
  void remove(NodeIndex leaf, NodeIndex parent, bool parent_is_root);

  std::size_t memory_bytes() const;

 private:
  struct Grant {
    Ticks until = 0;
    std::uint32_t next = 0;
    Level level = 0;
  };
  struct Timer {
    Ticks at = 0;
    NodeIndex node = kNoNode;
    friend bool operator<(const Timer& a, const Timer& b) {  // the earliest on top
      return a.at != b.at ? a.at > b.at : a.node > b.node;
    }
  };
  std::uint32_t new_grant(const Grant& grant);
  std::uint32_t free_grant(std::uint32_t i);  // the one behind it

  NodeTable<Record> records_;
  std::vector<Grant> grants_ = std::vector<Grant>(1);
  std::uint32_t free_grants_ = 0;
  std::vector<End> ends_ = std::vector<End>(1);
  EndIndex free_ends_ = kNoEnd;
  std::priority_queue<Timer> timers_;
};

}  // namespace pando
