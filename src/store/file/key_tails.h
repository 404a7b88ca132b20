// SPDX-License-Identifier: Apache-2.0
// The tails of the keys in an index (packed_key.h), each with the number of keys that hold it; it
// goes with the last. Belongs to FileIndex, which holds the lock.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "store/file/packed_key.h"
#include "store/file/unit_table.h"

namespace pando {

class KeyTails {
 public:
  KeyTails(IndexMapping& mapping, UnitTable& table) : mapping_(mapping), table_(table) {}

  /// Nothing: no key held has this tail.
  std::optional<PackedKey> find(std::string_view key);
  /// Holds the key's tail once more; after UnitTable::prepare().
  PackedKey hold(std::string_view key);
  void release(const PackedKey& key);
  /// Nothing: there is nonsense in the index.
  std::optional<std::string> text(const PackedKey& key);

 private:
  bool has_text(const TailUnit& tail, std::string_view text);
  UnitId write_text(std::string_view text);

  IndexMapping& mapping_;
  UnitTable& table_;
};

}  // namespace pando
