// SPDX-License-Identifier: Apache-2.0
// Units of an index: taken and given back, and found by their hash. The table grows by one bucket
// for each item that is added once there are as many items as buckets, and splits one chain for it
// (linear hashing), so that no change touches more words than the undo log holds. Buckets lie in
// segments, each as long as all before it, and stay where they are.
//
// Belongs to FileIndex, which holds the lock; KeyTails uses it too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pando/result.h"
#include "store/file/index_mapping.h"

namespace pando {

class UnitTable {
 public:
  explicit UnitTable(IndexMapping& mapping) : mapping_(mapping) {}

  /// Room for all units that adding one page can take. References to units do not survive it.
  Status prepare();
  /// One for the caller to fill in, after prepare(); all of its words may be anything.
  UnitId take(UnitKind kind);
  void give_back(UnitId id);

  /// A page or a tail into its bucket.
  void add(UnitId id);
  void remove(UnitId id);
  /// The first of this hash for which match(unit) is true; kNoUnit: none.
  template <typename Match>
  UnitId find(std::uint32_t hash, Match&& match) {
    std::uint32_t steps = 0;
    const UnitId* first = bucket(bucket_of(hash));
    UnitId id = first == nullptr ? kNoUnit : *first;
    for (; id != kNoUnit && !match(mapping_.unit(id)); id = mapping_.unit(id).page.next)
      if (is_endless(++steps)) return kNoUnit;
    return id;
  }

  static std::uint32_t hash_of(const PackedKey& key);
  /// Every item is in its bucket, and there are as many as are counted.
  Status check();

 private:
  std::uint32_t bucket_of(std::uint32_t hash) const;
  /// Null: there is no such bucket.
  UnitId* bucket(std::uint32_t number);
  /// Of a page or a tail; anything else has no business in a bucket.
  std::uint32_t hash_of_item(UnitId id);
  bool add_segment(std::size_t segment);
  void split();
  bool is_endless(std::uint32_t steps);
  IndexState& state() { return mapping_.header().state; }

  IndexMapping& mapping_;
};

}  // namespace pando
