// SPDX-License-Identifier: Apache-2.0
// Finds a child by (parent, hash of its first page): one hash table for the whole tree, and for the
// roots of namespaces. Tree verifies every candidate against parent and tokens, so that a
// collision costs time and nothing else.
//
// Linear hashing: the table grows by one bucket at a time, so there is no rehash to wait for. A
// bucket is one cache line of (hash, node) entries, with overflow lines for the few that run over;
// finding, adding, removing and growing touch no other node. O(1) expected; 16 bytes a node.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/memory.h"
#include "index/node.h"

namespace pando {

class ChildTable {
 public:
  ChildTable();

  /// The first node filed under `hash` for which accept(node) is true, else kNoNode.
  template <typename Accept>
  NodeIndex find(std::uint32_t hash, Accept&& accept) const {
    for (const Bucket* b = &bucket(bucket_of(hash));; b = &overflow_[b->overflow]) {
      for (std::uint32_t i = 0; i < b->count; ++i) {
        if (b->entries[i].hash == hash && accept(b->entries[i].node)) return b->entries[i].node;
      }
      if (b->overflow == 0) return kNoNode;
    }
  }

  void insert(std::uint32_t hash, NodeIndex node);
  void erase(std::uint32_t hash, NodeIndex node);
  /// Where find, insert and erase of this hash will look: to prefetch.
  const void* line_of(std::uint32_t hash) const { return &bucket(bucket_of(hash)); }

  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const;

 private:
  struct Entry {
    std::uint32_t hash;
    NodeIndex node;
  };
  static constexpr std::uint32_t kEntries = 7;
  struct alignas(kCacheLine) Bucket {
    Entry entries[kEntries];
    std::uint32_t count;
    std::uint32_t overflow;  // in overflow_; 0: none
  };
  static_assert(sizeof(Bucket) == kCacheLine);

  // Segment 0 holds buckets [0, kFirst), segment k >= 1 holds [kFirst << (k-1), kFirst << k).
  static constexpr std::uint32_t kFirst = 16;

  Bucket& bucket(std::uint32_t i) const {
    const auto k = static_cast<std::uint32_t>(std::bit_width(i / kFirst));
    return segments_[k][k == 0 ? i : i - (kFirst << (k - 1))];
  }
  std::uint32_t bucket_of(std::uint32_t hash) const {
    const std::uint32_t low = hash & (2 * level_ - 1);
    return low < num_buckets_ ? low : low & (level_ - 1);
  }
  void append(Bucket* bucket, const Entry& entry);
  void add_bucket();

  std::array<Table<Bucket>, 28> segments_;
  std::deque<Bucket> overflow_;  // [0] is not used
  std::vector<std::uint32_t> free_overflow_;
  std::uint32_t level_ = kFirst;  // power of two; level_ <= num_buckets_ < 2 * level_
  std::uint32_t num_buckets_ = kFirst;
  std::size_t size_ = 0;
};

}  // namespace pando
