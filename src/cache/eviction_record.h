// SPDX-License-Identifier: Apache-2.0
// Remembers which pages have gone, when and why: the last so many. A page that went twice is
// remembered once, by its last time. PrefixCache::explain() looks things up.
// Cost: one hash table entry per page that goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pando/inspect.h"

namespace pando {

class EvictionRecord {
 public:
  explicit EvictionRecord(std::size_t max_pages) : max_pages_(max_pages) {}

  /// What goes without anyone needing room was cut off.
  struct Cause {
    Pressure pressure = Pressure::failed_load;
    std::size_t num_tokens = 0;
  };
  /// Of everything that goes from now on. Returns the one before.
  Cause set_cause(const Cause& cause) { return std::exchange(cause_, cause); }
  void matched() { ++matches_; }
  std::uint64_t matches() const { return matches_; }
  bool forgetful() const { return forgetful_; }

  void add(Tier from, std::span<const PageHash> pages) {
    for (const PageHash& page : pages) {
      const Entry entry{key_of(page), {from, cause_.pressure, cause_.num_tokens, matches_}};
      if (entries_.size() < max_pages_) {
        entries_.push_back(entry);
      } else {  // in the place of the oldest
        const auto old = positions_.find(entries_[next_].key);
        if (old != positions_.end() && old->second == next_) positions_.erase(old);
        entries_[next_] = entry;
        forgetful_ = true;
      }
      positions_[entry.key] = next_;
      next_ = (next_ + 1) % max_pages_;
    }
  }

  std::optional<Eviction> find(const PageHash& page) const {
    const auto found = positions_.find(key_of(page));
    if (found == positions_.end()) return std::nullopt;
    return entries_[found->second].eviction;
  }
  void clear() {
    entries_.clear();
    positions_.clear();
    next_ = 0;
    forgetful_ = false;
  }

 private:
  struct Entry {
    std::uint64_t key;
    Eviction eviction;
  };
  static std::uint64_t key_of(const PageHash& page) {
    std::uint64_t key;
    std::memcpy(&key, page.data(), sizeof key);
    return key;
  }

  const std::size_t max_pages_;
  std::vector<Entry> entries_;  // a ring once it is full
  std::size_t next_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> positions_;
  std::uint64_t matches_ = 0;
  bool forgetful_ = false;
  Cause cause_;
};

}  // namespace pando
