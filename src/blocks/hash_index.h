// SPDX-License-Identifier: Apache-2.0
// Finds blocks by content: group, both hashes and, if kept, the tokens themselves. Of the device's
// blocks there is one of these, of each group's host pages another. Ids are those of the blocks, so
// that nothing is allocated when one comes or goes.
//
// A table of (tag, id), probed in line from a place that the second hash gives, which nobody
// outside this process can aim at; half of it stays empty, its size is fixed. What a place names is
// compared in full: an entry that agrees in the second hash alone is a collision, counted and
// passed over. Blocks of equal content form a ring; the table names the oldest of them.
//
// Cost: O(1) each; a lookup reads a line of the table, a line of the block, and the tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "blocks/token_slab.h"
#include "pando/block_pool.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class HashIndex {
 public:
  /// Ids are in [1, num_ids). `block_sizes` has the tokens of a block of each group.
  HashIndex(std::size_t num_ids, std::span<const std::size_t> block_sizes, bool keep_tokens);

  using Content = BlockContent;
  /// The null block if there is none. (An optional of four bytes goes through memory: 8 ns more.)
  PageId find(const Content& content) const;
  /// Finds the blocks of a run one after the other, until one is not there: block i has its hash at
  /// hashes[i * stride]. What later ones will read is on its way meanwhile.
  std::size_t find_run(const Content& first, std::size_t block_size, std::size_t stride,
                       std::span<PageId> out) const;

  bool has(PageId id) const { return records_[index_of(id)].twin_next != 0; }
  /// `id` is not in it.
  void insert(PageId id, const Content& content);
  void erase(PageId id);
  /// Of an id that is in it.
  Content content(PageId id) const;
  bool has_twin(PageId id) const { return index_of(id) != records_[index_of(id)].twin_next; }

  std::size_t size() const { return size_; }
  /// Times that the second hash agreed and something else did not.
  std::uint64_t collisions() const { return collisions_; }
  std::size_t memory_bytes() const;
  /// O(ids).
  Status check() const;

 private:
  struct Record {
    BlockHash hash;
    std::uint32_t twin_next = 0;  // itself if it has none; 0: not in the index
    std::uint32_t twin_prev = 0;
    std::uint32_t tokens = 0;  // in its group's slab
    std::uint32_t group : 31 = 0;
    std::uint32_t alias : 1 = 0;
  };
  static_assert(sizeof(Record) == kCacheLine);
  struct Place {
    std::uint32_t tag = 0;
    std::uint32_t id = 0;  // 0: empty
  };

  static std::uint64_t key(std::uint32_t group, const BlockHash& hash) {
    return hash.check[0] + group * 0x9e3779b97f4a7c15;
  }
  std::size_t place(std::uint64_t key) const { return key & mask_; }
  static std::uint32_t tag(std::uint64_t key) { return static_cast<std::uint32_t>(key >> 32); }
  bool agrees(const Record& record, const Content& content) const;
  std::size_t place_of(const Content& content) const;  // where it is, or the empty place behind

  Table<Record> records_;
  std::size_t num_ids_;
  std::vector<Place> table_;
  std::size_t mask_;
  std::vector<TokenSlab> slabs_;  // by group; none if tokens are not kept
  std::size_t size_ = 0;
  mutable std::uint64_t collisions_ = 0;
};

}  // namespace pando
