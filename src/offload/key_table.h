// SPDX-License-Identifier: Apache-2.0
// Finds blocks by the bytes an engine names them with. Ids are those of the blocks, in [1,
// num_ids).
//
// A table of (tag, id), probed in line from where the hash says; at most half of it is in use, its
// size is fixed, and an entry that leaves lets those behind it move up, so there are no tombstones.
// Names are compared in full. The hash has a seed of this process: nobody outside can aim at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"

namespace pando {

class KeyTable {
 public:
  explicit KeyTable(std::size_t num_ids);

  std::uint64_t hash(std::string_view bytes) const;
  /// 0: not there.
  std::uint32_t find(std::string_view bytes, std::uint64_t hash) const;
  /// Whoever has this hash: good enough to remember a key by, not to serve it.
  std::uint32_t find_hash(std::uint64_t hash) const;
  /// Neither the id nor the bytes are in it.
  void insert(std::uint32_t id, std::string_view bytes, std::uint64_t hash);
  void erase(std::uint32_t id);

  bool has(std::uint32_t id) const { return names_[id].used; }
  /// Of an id that is in it, or that was erased last.
  const std::string& bytes(std::uint32_t id) const { return names_[id].bytes; }
  std::uint64_t hash_of(std::uint32_t id) const { return names_[id].hash; }
  std::size_t size() const { return size_; }

  std::size_t memory_bytes() const;
  /// O(ids).
  Status check() const;

 private:
  struct Name {
    std::string bytes;
    std::uint64_t hash = 0;
    bool used = false;
  };
  struct Place {
    std::uint32_t tag = 0;
    std::uint32_t id = 0;  // 0: empty
  };
  static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  std::size_t home(std::uint64_t hash) const { return hash & mask_; }
  std::size_t place_of(std::uint32_t id) const;

  std::vector<Name> names_;
  std::vector<Place> places_;
  std::size_t mask_;
  std::size_t size_ = 0;
  const std::uint64_t seed_;
};

}  // namespace pando
